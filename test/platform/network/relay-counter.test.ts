// The counter of relayed packets: what nft is told, and what its answers mean. test/e2e/relayed-bytes.test.ts counts packets.

import { expect, test } from "bun:test";
import { readRelayed } from "../../../src/platform/network/relay-counter.ts";
import type { System } from "../../../src/base/system.ts";

type Answer = { status: number; stdout: string };
const listed = (name: string, bytes: number): Answer => ({
  status: 0,
  stdout: JSON.stringify({
    nftables: [{ metainfo: { version: "1.0.6" } }, { counter: { name, bytes, packets: 1 } }],
  }),
});

function makeSystem(answers: Answer[], change: Partial<Pick<System, "isRoot" | "platform">> = {}) {
  const ran: { words: string[]; input: string | undefined }[] = [];
  const system: Parameters<typeof readRelayed>[2] = {
    platform: "linux",
    isRoot: true,
    random: (bytes) => new Uint8Array(bytes).fill(0xab),
    async run(argv, options) {
      ran.push({ words: argv.slice(1), input: options?.input });
      const { status, stdout } = answers.shift() ?? { status: 1, stdout: "" };
      return { status, stdout, stderr: "", timedOut: false };
    },
    ...change,
  };
  return { system, ran };
}

const none: Answer = { status: 1, stdout: "" };
const done: Answer = { status: 0, stdout: "" };
const list = ["-j", "list", "counters", "table", "inet", "overlay-agent-relay-acme"];

test("reads the counter that is there", async () => {
  const { system, ran } = makeSystem([listed("p4242xabc", 1234)]);
  expect(await readRelayed("acme", 4242, system)).toEqual({ counter: "p4242xabc", bytes: 1234 });
  expect(ran.map(({ words }) => words)).toEqual([list]);
});

test("makes the table where there is none, for another port, and after a damaged answer", async () => {
  for (const first of [
    none,
    listed("p4243xabc", 99),
    { status: 0, stdout: "{" },
    listed("p4242xabc", -1),
    { status: 0, stdout: '{"nftables":[]}' },
  ]) {
    const { system, ran } = makeSystem([first, done]);
    expect(await readRelayed("acme", 4242, system)).toEqual({ counter: "p4242xabababababab", bytes: 0 });
    expect(ran[1]?.words).toEqual(["-f", "-"]);
    expect(ran[1]?.input).toContain("udp sport 4242 @th,64,16 0x1101 counter name");
    expect(ran[1]?.input).toContain("delete table inet overlay-agent-relay-acme\n");
    expect(ran[1]?.input).not.toMatch(/drop|reject|flush/);
  }
});

test("counts nothing without rights, without a port, on other systems, and if nft refuses", async () => {
  expect(await readRelayed("acme", 4242, makeSystem([none, none]).system)).toBeUndefined();
  for (const [port, change] of [
    [4242, { isRoot: false }],
    [4242, { platform: "darwin" }],
    [0, {}],
  ] as const) {
    const { system, ran } = makeSystem([listed("p4242xabc", 5)], change);
    expect(await readRelayed("acme", port, system)).toBeUndefined();
    expect(ran).toEqual([]);
  }
});
