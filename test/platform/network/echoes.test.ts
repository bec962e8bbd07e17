import { expect, test } from "bun:test";
import type { EchoReply, OpenEcho } from "../../../src/platform/network/echo-socket.ts";
import { Echoes } from "../../../src/platform/network/echoes.ts";

/** Echoes whose answers come when the test says so. */
function makeEchoes() {
  const world = { now: 0, asked: new Array<{ to: string; answer(): void }>() };
  const open: OpenEcho = async (_, onReply: (reply: EchoReply) => void) => ({
    send: (to, sequence, payload) => {
      world.asked.push({ to, answer: () => onReply({ sequence, payload }) });
      return true;
    },
    close() {},
  });
  return { world, echoes: new Echoes({ open, monotonic: () => world.now }) };
}

test("an answer of the address that a key had before does not count for its new one", async () => {
  const { world, echoes } = makeEchoes();
  const ask = async (to: string) => {
    echoes.set(new Map([["exit", { from: "10.77.0.9", to, mark: "" }]]));
    await echoes.send(() => 0);
  };
  await ask("10.77.0.1");
  await ask("10.77.0.2");
  world.now = 20;
  expect(world.asked.map(({ to }) => to)).toEqual(["10.77.0.1", "10.77.0.2"]);
  world.asked[0]?.answer();
  expect(echoes.get("exit")).toMatchObject({ to: "10.77.0.2", aliveSince: undefined, silentSince: 0 });
  world.asked[1]?.answer();
  expect(echoes.get("exit")).toMatchObject({ aliveSince: 20, rttMs: 20, silentSince: undefined });
});
