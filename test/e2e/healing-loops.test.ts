// How long healing takes, again and again: a path lost in one direction, and a relayed tunnel whose direct path opens.

import { expect, test } from "bun:test";
import { buildAgent } from "../support/agent.ts";
import { asRoot, describeEngines } from "../support/engines.ts";
import { dropFrom, lastGapEnd, makeHealingScene, peerOf } from "../support/healing-scene.ts";
import { until } from "../support/members.ts";
import { startPing } from "../support/namespaces.ts";
import { inFull } from "../support/soak.ts";

buildAgent();

const rounds = inFull ? 20 : 1;
/** Scenes side by side. */
const lanes = Math.min(rounds, 4);

/** Runs all rounds in lanes. Prints and returns the seconds of each. */
async function measure(what: string, round: () => Promise<number>): Promise<number[]> {
  const seconds: number[] = [];
  const lane = async () => {
    for (let at = 0; at < rounds / lanes; at++) seconds.push(await round());
  };
  await Promise.all(Array.from({ length: lanes }, lane));
  process.stderr.write(`${what}: ${seconds.map((each) => each.toFixed(1)).join(", ")} s\n`);
  return seconds;
}

asRoot("an agent", () => {
  describeEngines(
    "heals in time",
    ({ nebula }) => {
      test(`a path lost in one direction, ${rounds} of ${rounds} within 30 s`, async () => {
        const seconds = await measure("traffic after a one-way loss", async () => {
          await using scene = await makeHealingScene(nebula);
          const { a, b } = scene;
          const pings = [startPing(a.host, b.ip), startPing(b.host, a.ip)];
          await Promise.all(pings.map((ping) => ping.reply(30_000)));
          await until("probes of the direct path", async () => {
            const [one, other] = await Promise.all([peerOf(a, "b"), peerOf(b, "a")]);
            return [one, other].every((each) => each?.path === "direct" && each.probe === "answers");
          });
          const from = performance.now();
          dropFrom(b.host, a.host.address);
          await Bun.sleep(35_000);
          await Promise.all(pings.map((ping) => ping.reply(2000))).catch((error: unknown) => {
            throw new Error(`a:\n${a.daemon.log()}\nb:\n${b.daemon.log()}`, { cause: error });
          });
          await Promise.all(pings.map((ping) => ping.stop()));
          return (Math.max(...pings.map(lastGapEnd)) - from) / 1000;
        });
        expect(Math.max(...seconds)).toBeLessThan(30);
      }, 1_200_000);

      test(`a relayed tunnel whose direct path opens, ${rounds} of ${rounds} within 60 s`, async () => {
        const seconds = await measure("direct after the path opened", async () => {
          await using scene = await makeHealingScene(nebula);
          const { a, b } = scene;
          const closed = [dropFrom(b.host, a.host.address), dropFrom(a.host, b.host.address)];
          const ping = startPing(a.host, b.ip);
          await ping.reply(30_000);
          await until("the relay", async () => (await peerOf(a, "b"))?.path === "relayed", 30_000);
          await ping.stop();
          // Direct paths open at any time between two looks.
          await Bun.sleep(2000 + Math.random() * 10_000);
          for (const each of closed) each.repair();
          const from = performance.now();
          await until("the direct path", async () => (await peerOf(a, "b"))?.path === "direct", 90_000);
          return (performance.now() - from) / 1000;
        });
        expect(Math.max(...seconds)).toBeLessThan(60);
      }, 1_200_000);
    },
    ["1.12"],
  );
});
