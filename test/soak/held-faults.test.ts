// Ten real faults on real engines, each held for 15 minutes, all side by side: no light is wrong after it was told. With
// HELD_FAULTS="0 6" only these.

import { expect, test } from "bun:test";
import { env } from "node:process";
import { buildAgent } from "../support/agent.ts";
import { command } from "../support/daemon.ts";
import { asRoot, describeEngines } from "../support/engines.ts";
import { dropFrom, makeHealingScene } from "../support/healing-scene.ts";
import { until, type Member } from "../support/members.ts";
import type { Host } from "../support/namespaces.ts";
import { startPing } from "../support/namespaces.ts";

buildAgent();

const [heldMs, lookEveryMs, toldMs] = [15 * 60_000, 10_000, 15_000];

type Scene = Awaited<ReturnType<typeof makeHealingScene>>;
/** What the first line of `status` says of node a, and of the lighthouse where that is certain. */
type Fault = {
  name: string;
  a: RegExp;
  hub?: RegExp;
  silent?: string;
  toldMs?: number;
  make(scene: Scene): Promise<unknown> | void;
};

const [running, degraded] = [/^acme is running as /, /^acme is degraded$/];

/** Drops packets in the host's own firewall. */
function drop(host: Host, ...rule: string[]): void {
  const nft = (...words: string[]) => host.run(["nft", ...words]);
  nft("add", "table", "inet", "held");
  nft("add", "chain", "inet", "held", "in", "{ type filter hook input priority 0; }");
  nft("add", "rule", "inet", "held", "in", ...rule, "drop");
}

const faults: readonly Fault[] = [
  {
    name: "the link of the lighthouse is down",
    a: degraded,
    hub: degraded,
    make: ({ hub }) => hub.host.link("down"),
  },
  { name: "the link of a is down", a: degraded, make: ({ a }) => a.host.link("down") },
  { name: "the link of b is down", a: running, silent: "b", make: ({ b }) => b.host.link("down") },
  {
    name: "packets to the lighthouse are lost",
    a: degraded,
    make: ({ hub, a }) => void dropFrom(hub.host, a.host.address),
  },
  {
    name: "packets from the lighthouse are lost",
    a: degraded,
    make: ({ hub, a }) => void dropFrom(a.host, hub.host.address),
  },
  {
    name: "the lighthouse is stopped",
    a: degraded,
    make: ({ hub }) => command(hub.places, ["stop", "acme"]),
  },
  {
    name: "a firewall drops the port of the lighthouse",
    a: degraded,
    hub: degraded,
    make: ({ hub }) => drop(hub.host, "udp", "dport", "4242"),
  },
  {
    name: "large packets from the lighthouse are lost",
    a: degraded,
    toldMs: 60_000,
    make: ({ a }) => drop(a.host, "meta", "length", ">", "1100", "ip", "protocol", "udp"),
  },
  { name: "b is stopped", a: running, silent: "b", make: ({ b }) => command(b.places, ["stop", "acme"]) },
  {
    name: "the engine of the lighthouse hangs",
    a: degraded,
    make: async ({ hub }) => {
      const { teams } = JSON.parse((await command(hub.places, ["status", "--json"])).stdout);
      process.kill(teams[0].pid, "SIGSTOP");
    },
  },
];

const only = env["HELD_FAULTS"]?.split(" ").map(Number);

async function look(member: Member, right: RegExp, what: string, silent?: string): Promise<void> {
  const { stdout } = await command(member.places, ["status"]);
  const [first = ""] = stdout.split("\n");
  const names = silent === undefined || stdout.includes(`No answer from ${silent}`);
  expect([what, right.test(first), names, stdout]).toEqual([what, true, true, stdout]);
}

asRoot("lights of real engines", () => {
  describeEngines(
    "stay true for 15 minutes",
    ({ nebula }) => {
      faults.forEach((fault, at) => {
        if (only?.includes(at) === false) return;
        test.concurrent(
          fault.name,
          async () => {
            await using scene = await makeHealingScene(nebula);
            const { a, b, hub } = scene;
            const ping = startPing(a.host, b.ip);
            await ping.reply(30_000);
            await until(
              "traffic",
              async () => (await command(a.places, ["status", "--check"])).status === 0,
              30_000,
            );
            await Bun.sleep(15_000);
            await fault.make(scene);
            await Bun.sleep(fault.toldMs ?? toldMs);
            for (let held = 0; held < heldMs; held += lookEveryMs) {
              const what = `${fault.name}, after ${held / 1000} s`;
              await look(a, fault.a, what, fault.silent);
              if (fault.hub !== undefined) await look(hub, fault.hub, `${what}, at the lighthouse`);
              await Bun.sleep(lookEveryMs);
            }
            await ping.stop();
          },
          heldMs + 240_000,
        );
      });
    },
    ["1.12"],
  );
});
