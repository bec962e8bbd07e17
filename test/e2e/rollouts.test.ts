// Updates in rings with real engines in namespaces: a good one goes through all nodes without a lost ping, bad ones stop at the
// first node, which goes back by itself, and no other node is touched.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { buildAgent } from "../support/agent.ts";
import { enginesOf, untilStatus } from "../support/daemon.ts";
import { inCi } from "../support/debian.ts";
import { openChannel, packEngine, packFiles } from "../support/engine-channel.ts";
import { asRoot, engines, missing, type Engine } from "../support/engines.ts";
import { startPing, type Host } from "../support/namespaces.ts";
import { fourNodes, isEnded, startRingNodes, type RingNode, type RingNodes } from "../support/ring-nodes.ts";
import { temporaryDirectory } from "../support/temporary.ts";

buildAgent();
const [, older, newer] = engines;
if (inCi && missing !== undefined) throw new Error(missing);

const watchS = 10;

let stack: AsyncDisposableStack;
let rings: RingNodes;
let nodes: RingNode[];
let publish: (version: string) => void;

/** The same engine with another version of the same length: what is wrong with it is done to its machine from outside. */
function renamed({ nebula, version }: Engine, other: string): Buffer {
  const bytes = readFileSync(nebula);
  for (let at = bytes.indexOf(version); at !== -1; at = bytes.indexOf(version, at + 1))
    bytes.write(other, at);
  return bytes;
}

async function start({ nebula }: Engine): Promise<void> {
  stack = new AsyncDisposableStack();
  const directory = stack.use(temporaryDirectory());
  const channel = stack.use(openChannel());
  publish = (version) => {
    if (newer === undefined) return;
    writeFileSync(join(directory.path, "nebula"), renamed(newer, version), { mode: 0o755 });
    channel.publish(version, packFiles(directory.path, ["nebula"]));
  };
  if (newer !== undefined) channel.publish(newer.version, packEngine(directory.path, newer));
  rings = stack.use(await startRingNodes({ names: fourNodes, nebula, channel }));
  ({ nodes } = rings);
}

const versionOf = ({ host, overlay }: RingNode) =>
  /Version: (\S+)/.exec(host.run([overlay, "-version"]))?.[1];

type Fault = { begin(host: Host, pid: number): void; end(host: Host): void };

/** While a node runs this version, it has the fault. */
function doFault(version: string, fault: Fault): Disposable & { nodes: Set<string> } {
  const having = new Map<string, number>();
  const met = new Set<string>();
  const timer = setInterval(() => {
    for (const node of nodes) {
      const pid = badEngine(node, version);
      if (having.get(node.name) === pid) continue;
      if (having.has(node.name)) fault.end(node.host);
      having.delete(node.name);
      if (pid === undefined) continue;
      having.set(node.name, pid);
      met.add(node.name);
      fault.begin(node.host, pid);
    }
  }, 500);
  return {
    nodes: met,
    [Symbol.dispose]() {
      clearInterval(timer);
      for (const { name, host } of nodes) if (having.has(name)) fault.end(host);
    },
  };
}

function badEngine(node: RingNode, version: string): number | undefined {
  const [pid] = enginesOf(node.places);
  if (pid === undefined || versionOf(node) !== version) return undefined;
  try {
    return statSync(`/proc/${pid}/exe`).ino === statSync(node.overlay).ino ? pid : undefined;
  } catch {
    return undefined;
  }
}

asRoot("updates in rings", () => {
  beforeAll(async () => {
    if (older !== undefined) await start(older);
  }, 120_000);
  afterAll(async () => stack?.disposeAsync());

  const isHere = older !== undefined && newer !== undefined;
  const drop = (rule: string): Fault => ({
    begin(host) {
      host.run(["nft", "add", "table", "inet", "bad"]);
      host.run(["nft", "add", "chain inet bad out { type filter hook output priority 0; }"]);
      host.run(["nft", `add rule inet bad out ${rule} drop`]);
    },
    end: (host) => void host.run(["nft", "delete", "table", "inet", "bad"]),
  });
  const endsAfter = (ms: number): Fault => {
    const timers = new Map<Host, Timer>();
    // It may have been taken back since the last look: `kill` of a process that is gone throws nothing here.
    const kill = (pid: number) => void Bun.spawnSync(["kill", "-9", String(pid)]);
    return {
      begin: (host, pid) => void timers.set(host, setTimeout(kill, ms, pid)),
      end: (host) => clearTimeout(timers.get(host)),
    };
  };
  const bad: Record<string, { version: string; fault: Fault; probe: string }> = {
    "ends after some seconds": {
      version: "1.13.1",
      fault: endsAfter(12_000),
      probe: "process of the engine",
    },
    "drops large packets": {
      version: "1.13.2",
      fault: drop("udp dport 4242 meta length > 1200"),
      probe: "large packets of IPv4",
    },
    "drops everything": { version: "1.13.3", fault: drop("udp dport 4242"), probe: "small packets of IPv4" },
  };

  for (const [what, { version, fault, probe }] of Object.entries(bad))
    test.skipIf(!isHere)(
      `stop at the first node where the engine ${what}`,
      async () => {
        publish(version);
        using faults = doFault(version, fault);
        const { id } = await rings.begin({ engine: version }, watchS);
        const shown = await rings.until(id, isEnded, 100_000);
        expect([...faults.nodes]).toEqual([shown.failed_node ?? ""]);
        expect(shown).toMatchObject({ state: "stopped", ring: 1 });
        expect(shown.probe).toContain(probe);
        expect(shown.failed_node).not.toBeNull();
        expect(shown.log).not.toBe("");
        expect(nodes.map(versionOf)).toEqual(nodes.map(() => older?.version));
        for (const { places } of nodes) await untilStatus(places, "acme", ({ state }) => state === "running");
      },
      120_000,
    );

  test.skipIf(!isHere)(
    "go through all nodes, which stay reachable",
    async () => {
      const desk = nodes[1];
      const lighthouse = nodes[0];
      if (desk === undefined || lighthouse === undefined || newer === undefined) return;
      const { id } = await rings.begin({ engine: newer.version }, watchS);
      const shown = await rings.until(id, isEnded, 150_000);
      expect(shown).toMatchObject({ state: "passed" });
      expect(shown.rings.map(({ passed }) => passed)).toEqual([1, 3]);
      expect(nodes.map(versionOf)).toEqual(nodes.map(() => newer.version));
      const ping = startPing(desk.host, "10.77.0.1");
      await ping.reply(20_000);
      await ping.stop();
    },
    170_000,
  );
});
