// Twelve real faults on real engines, each held for 15 minutes, all side by side: from 15 s on, all judges tell the same, and
// nothing wrong. Ordinary tests hold one of them for a few looks. With HELD_FAULTS="0 6" only these.

import { afterAll, expect, test } from "bun:test";
import { copyFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { env } from "node:process";
import * as v from "valibot";
import { paths } from "../support/paths.ts";
import { buildAgent, runAgent } from "../support/agent.ts";
import { command, enginesOf, startDaemon } from "../support/daemon.ts";
import { installMissing } from "../support/debian.ts";
import { asRoot, describeEngines } from "../support/engines.ts";
import { dropFrom, makeHealingScene } from "../support/healing-scene.ts";
import { makeSite, pingPeer } from "../support/machine-node.ts";
import { nodesOf, until, type Member } from "../support/members.ts";
import { startPing, type Host } from "../support/namespaces.ts";
import { describeMachine } from "../support/nspawn.ts";
import { inFull, shuffled } from "../support/soak.ts";
import { temporaryDirectory } from "../support/temporary.ts";

buildAgent();

const heldMs = inFull ? 15 * 60_000 : 10_000;
const lookEveryMs = 20_000;
/** `doctor` and `netcheck` at each of so many looks. */
const examineEvery = 5;
const toldMs = 15_000;

type Scene = Awaited<ReturnType<typeof makeHealingScene>> & { nebula: string };
/** What all judges say of one node. */
type Right = {
  headline: string;
  /** Of `status`, the gravest first; `doctor` and `netcheck` tell the same. */
  kinds: readonly string[];
  says?: string;
  /** Checks of `doctor` and of `netcheck` that fail. */
  doctor: readonly string[];
  netcheck: readonly string[];
  /** What the control plane says; undefined where it is not asked. */
  finding: string | null | undefined;
};
type Fault = {
  name: string;
  /** Of node a, and of the lighthouse. */
  a: Right;
  hub?: Right;
  /** The clock of node a, for `faketime`. */
  clock?: string;
  make(scene: Scene): unknown;
  /** Ends it, after which all judges find node a well. */
  heal?(scene: Scene): unknown;
  /** Ordinary tests hold it, too. */
  isUsual?: boolean;
};

const well: Right = {
  headline: "acme is running as ",
  kinds: [],
  doctor: [],
  netcheck: [],
  finding: null,
};
const silentLighthouse: Right = {
  headline: "acme is degraded",
  kinds: ["lighthouses_silent", "peers_silent"],
  says: "The lighthouse hub does not answer",
  doctor: ["traffic"],
  netcheck: ["traffic", "udp"],
  finding: "lighthouses_silent",
};

/** Drops packets in the host's own firewall. */
function drop(host: Host, ...rule: string[]): void {
  const nft = (...words: string[]) => host.run(["nft", ...words]);
  nft("add", "table", "inet", "held");
  nft("add", "chain", "inet", "held", "in", "{ type filter hook input priority 0; }");
  nft("add", "rule", "inet", "held", "in", ...rule, "drop");
}

const faketime = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";
const withClock = (clock: string) => (argv: readonly string[]) => [
  "env",
  `LD_PRELOAD=${faketime}`,
  `FAKETIME=${clock}`,
  "FAKETIME_DONT_FAKE_MONOTONIC=1",
  ...argv,
];

async function restartDaemon(member: Member, inside = member.host.inside): Promise<void> {
  member.daemon.signal("SIGTERM");
  await member.daemon.exited;
  member.daemon = await startDaemon({ inside }, member.places);
}

const faults: readonly Fault[] = [
  {
    name: "large packets from the lighthouse are lost",
    a: {
      headline: "acme is degraded",
      kinds: ["large_packets_lost"],
      says: "large transfers hang",
      doctor: ["traffic"],
      netcheck: ["mtu", "traffic"],
      finding: "large_packets_lost",
    },
    make: ({ a }) => drop(a.host, "meta", "length", ">", "1100", "ip", "protocol", "udp"),
  },
  {
    name: "large packets from a peer alone are lost",
    isUsual: true,
    a: {
      headline: "acme is degraded",
      kinds: ["large_packets_lost"],
      says: "bytes are lost on the way to b: large transfers hang",
      doctor: ["traffic"],
      netcheck: ["mtu", "traffic"],
      finding: "large_packets_lost",
    },
    hub: well,
    make: ({ a, b }) => drop(a.host, "ip", "saddr", b.host.address, "meta", "length", ">", "1100"),
    heal: ({ a }) => a.host.run(["nft", "delete", "table", "inet", "held"]),
  },
  {
    name: "a firewall drops the port of the lighthouse",
    a: silentLighthouse,
    hub: {
      headline: "acme is degraded",
      kinds: ["nodes_silent", "peers_silent"],
      says: "probed peers answers this lighthouse",
      doctor: ["traffic"],
      netcheck: ["traffic"],
      finding: "nodes_silent",
    },
    make: ({ hub }) => drop(hub.host, "udp", "dport", "4242"),
  },
  {
    name: "the port of the lighthouse is dropped before any node came",
    a: silentLighthouse,
    hub: {
      headline: "acme is degraded",
      kinds: ["no_node_came"],
      says: "Other nodes are online, and none has reached this lighthouse",
      doctor: ["traffic"],
      netcheck: ["traffic"],
      finding: "no_node_came",
    },
    make: async ({ hub, a, b }) => {
      drop(hub.host, "udp", "dport", "4242");
      await Promise.all([hub, a, b].map((each) => restartDaemon(each)));
      // A lighthouse waits half a minute for its first node.
      await Bun.sleep(30_000);
    },
  },
  {
    name: "the machine of the lighthouse is dead",
    a: silentLighthouse,
    make: async ({ hub }) => {
      hub.daemon.signal("SIGKILL");
      await hub.daemon.exited;
      for (const pid of enginesOf(hub.places)) process.kill(pid, "SIGKILL");
      hub.host.link("down");
    },
  },
  {
    name: "packets from the lighthouse are lost",
    a: silentLighthouse,
    make: ({ hub, a }) => void dropFrom(a.host, hub.host.address),
  },
  {
    name: "b is away, the router of a network",
    a: {
      headline: "acme is degraded",
      kinds: ["routers_silent", "peers_silent"],
      says: "10.99.1.0/24 cannot be reached: no answer from the router b",
      doctor: ["routes", "traffic"],
      netcheck: ["traffic"],
      finding: "routers_silent",
    },
    make: async ({ b, organization }) => {
      await organization.api("PATCH", paths.node("acme", b.id), { subnets: ["10.99.1.0/24"] });
      await Bun.sleep(5000);
      b.host.link("down");
    },
  },
  {
    name: "the engine of a is killed, and its program is gone",
    a: {
      headline: "acme is waiting",
      kinds: [],
      doctor: ["engine", "traffic"],
      netcheck: ["traffic"],
      finding: "not_running",
    },
    make: ({ a, nebula }) => {
      rmSync(nebula);
      for (const pid of enginesOf(a.places)) process.kill(pid, "SIGKILL");
    },
  },
  {
    name: "the control plane is gone",
    a: { ...well, doctor: ["control-plane"], netcheck: ["control_plane"], finding: undefined },
    hub: { ...well, doctor: ["control-plane"], netcheck: ["control_plane"], finding: undefined },
    make: ({ plane }) => plane.stop(),
  },
  {
    name: "b is revoked",
    a: well,
    hub: well,
    make: ({ b, organization }) => organization.api("DELETE", paths.node("acme", b.id)),
  },
  {
    name: "the clock of a is 400 days behind",
    clock: "-400d",
    a: {
      headline: "acme is degraded",
      kinds: ["certificate_not_valid_yet"],
      says: "the clock of this machine is wrong",
      doctor: ["certificate", "control-plane", "traffic"],
      netcheck: ["control_plane", "traffic"],
      finding: "certificate_not_valid_yet",
    },
    make: ({ a }) => restartDaemon(a, (argv) => a.host.inside(withClock("-400d")(argv))),
  },
  {
    name: "the certificate of a has expired while the control plane was away",
    clock: "+400d",
    a: {
      headline: "acme is degraded",
      kinds: ["certificate_expired"],
      says: "The certificate has expired",
      doctor: ["certificate", "control-plane", "node-certificate", "traffic"],
      netcheck: ["control_plane", "traffic"],
      finding: undefined,
    },
    make: async ({ a, plane }) => {
      await plane.stop();
      await restartDaemon(a, (argv) => a.host.inside(withClock("+400d")(argv)));
    },
  },
];

const Status = v.object({
  teams: v.array(
    v.object({ findings: v.optional(v.array(v.object({ kind: v.string(), what: v.string() })), []) }),
  ),
});
const Checks = v.object({
  checks: v.array(v.object({ id: v.string(), verdict: v.string(), evidence: v.string() })),
});

type Run = (words: string[]) => Promise<{ stdout: string; status: number }>;

/** Asks the judges. `run`: `agent WORDS…` on that machine. `isWhole`: `doctor` and `netcheck`, too. */
async function expectRight(
  what: string,
  { headline, kinds, says = "", doctor, netcheck, finding }: Right,
  { run, isWhole, found }: { run: Run; isWhole: boolean; found: string | null | undefined },
) {
  const text = (await run(["status"])).stdout;
  const status = v.parse(v.pipe(v.string(), v.parseJson(), Status), (await run(["status", "--json"])).stdout);
  const findings = status.teams.flatMap((each) => each.findings);
  expect({
    what,
    text,
    headline: text.slice(0, headline.length),
    kinds: findings.map(({ kind }) => kind),
    finding: found,
  }).toEqual({ what, text, headline, kinds: [...kinds], finding });
  expect(text).toContain(says);
  if (!isWhole) return;
  const examined = await Promise.all(
    ["doctor", "netcheck"].map(
      async (word) =>
        v.parse(v.pipe(v.string(), v.parseJson(), Checks), (await run([word, "--json"])).stdout).checks,
    ),
  );
  const failed = examined.map((checks) =>
    [
      ...new Set(
        checks.filter(({ id, verdict }) => verdict === "fail" && id !== mayBeBusy).map(({ id }) => id),
      ),
    ].toSorted(),
  );
  const bad = examined.map((checks) => checks.filter(({ verdict }) => ["warn", "fail"].includes(verdict)));
  expect({ what, bad, failed }).toEqual({ what, bad, failed: [[...doctor], [...netcheck]] });
  const [told, also] = bad.map((checks) =>
    checks.filter(({ id }) => id === "traffic").map(({ evidence }) => evidence.split(":")[0]),
  );
  expect(also).toEqual(told ?? []);
  for (const { what: sentence } of findings)
    expect(told?.some((evidence = "") => sentence.startsWith(evidence))).toBe(true);
}

/** It asks an engine, which has two seconds: too few on a machine with forty of them. */
const mayBeBusy = "mapping";

/** Few scenes begin at the same moment, so that a small machine is not too busy to answer. */
async function startInTurn<T>(start: () => Promise<T>): Promise<T> {
  const before = starting;
  const { promise, resolve } = Promise.withResolvers<void>();
  starting = promise;
  await before;
  return start().finally(resolve);
}
let starting: Promise<void> = Promise.resolve();

/** Calls `look` from the time on at which everything should be told, while the fault is held. */
async function hold(look: (held: string, isWhole: boolean) => Promise<void>): Promise<void> {
  await Bun.sleep(toldMs);
  const begin = performance.now();
  for (let looks = 0; looks === 0 || performance.now() - begin < heldMs; looks++) {
    await look(`held for ${Math.round((performance.now() - begin) / 1000)} s`, looks % examineEvery === 0);
    await Bun.sleep(lookEveryMs);
  }
}

const only = env["HELD_FAULTS"]?.split(" ").map(Number);
const chosen =
  only === undefined
    ? inFull
      ? faults
      : [
          ...faults.filter(({ isUsual }) => isUsual),
          ...shuffled(faults.filter(({ isUsual }) => !isUsual)).slice(0, 1),
        ]
    : faults.filter((_, at) => only.includes(at));

asRoot("the lights of real engines", () => {
  const missing = installMissing(["/usr/bin/faketime"]);
  describeEngines(
    "stay true while a fault is held",
    (engine) => {
      const directory = temporaryDirectory();
      afterAll(() => directory[Symbol.dispose]());
      for (const [at, fault] of chosen.entries()) {
        test.concurrent.skipIf(missing !== undefined && fault.clock !== undefined)(
          fault.name,
          async () => {
            // A copy, which the fault may remove.
            const nebula = join(directory.path, `nebula-${at}`);
            copyFileSync(engine.nebula, nebula);
            await using scene = await startInTurn(() => makeHealingScene(nebula));
            const { a, b, hub, organization } = scene;
            const ping = startPing(a.host, b.ip);
            await ping.reply(30_000);
            await until(
              "traffic",
              async () => (await command(a.places, ["status", "--check"])).status === 0,
              30_000,
            );
            const runOn =
              ({ host, places }: Member, clock?: string): Run =>
              (words) =>
                runAgent([...words, ...places.flags], {
                  inside: (argv) => host.inside(clock === undefined ? argv : withClock(clock)(argv)),
                });
            await Bun.sleep(inFull ? 15_000 : 5000);
            await fault.make({ ...scene, nebula });
            const ask = async (held: string, isWhole: boolean, right: Right) => {
              const nodes = right.finding === undefined ? [] : await nodesOf(organization);
              const foundOf = ({ id }: Member) => nodes.find((each) => each.id === id)?.finding;
              const what = `${fault.name}, ${held}`;
              await expectRight(what, right, { run: runOn(a, fault.clock), isWhole, found: foundOf(a) });
              if (fault.hub !== undefined)
                await expectRight(`${what}, the lighthouse`, fault.hub, {
                  run: runOn(hub),
                  isWhole,
                  found: foundOf(hub),
                });
            };
            await hold((held, isWhole) => ask(held, isWhole, fault.a));
            if (fault.heal !== undefined) {
              await fault.heal({ ...scene, nebula });
              const isWell = async () => (await command(a.places, ["status", "--check"])).status === 0;
              await until("its end", isWell, 30_000);
              await Bun.sleep(toldMs);
              await ask("healed", true, well);
            }
            await ping.stop();
          },
          heldMs + 360_000,
        );
      }
    },
    ["1.12"],
  );
});

if (inFull && only === undefined)
  describeMachine("the light of a machine in server mode", () => {
    test.concurrent(
      "stays true while its timer is masked",
      async () => {
        await using site = await startInTurn(() => makeSite(["vm"]));
        await using node = await site.boot("vm");
        const { machine } = node;
        await node.register("server");
        await machine.until(pingPeer, 20_000);
        await machine.until("agent status | head -1 | grep -q 'running as'", 90_000);
        const timer = "overlay-agent-auth.timer";
        // As with a package: a unit of /etc cannot be masked.
        await machine.must(
          `mv /etc/systemd/system/${timer} /usr/lib/systemd/system && systemctl daemon-reload && systemctl stop ${timer} && systemctl mask ${timer}`,
        );
        const right: Right = {
          headline: "acme is running, not checked",
          kinds: ["not_checked"],
          says: "The timer of its checks is masked",
          doctor: ["traffic"],
          netcheck: ["traffic"],
          finding: undefined,
        };
        await hold((held, isWhole) =>
          expectRight(`the timer is masked, ${held}`, right, {
            run: (words) => machine.run(`agent ${words.join(" ")}`),
            isWhole,
            found: undefined,
          }),
        );
      },
      heldMs + 600_000,
    );
  });
