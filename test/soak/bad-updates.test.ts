// The bar of updates in rings: twenty bad updates of engines and agents on 40 machines that systemd has booted. Each stops in
// ring 1 or 2, its nodes are back within a minute, and no node outside the ring is touched. A ring is watched for a minute.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import * as v from "valibot";
import { hostTarget } from "../../build.ts";
import { Rollout, RolloutNode } from "../../src/api/rollouts.ts";
import { buildAgent } from "../support/agent.ts";
import { archive, packFiles } from "../support/engine-channel.ts";
import { engineNamed } from "../support/engines.ts";
import { startFarPlane, type FarPlane } from "../support/far-plane.ts";
import { faultyEngine, versionWith, type EngineFault } from "../support/faulty-engine.ts";
import { makeLan } from "../support/namespaces.ts";
import { describeMachine, makeMachine, type Machine } from "../support/nspawn.ts";
import { buildVersion, makeRelease, makeReleaseKey, releaseKey, standIn } from "../support/releases.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { sha256Hex } from "../../src/base/sha256.ts";

/** Fewer machines, and only some faults, for a short run by hand. */
const size = Number(process.env["FLEET_NODES"] ?? 40);
const only = process.env["FLEET_FAULTS"]?.split(",");

const watchS = 60;
/** A good one, which comes before the bad ones. */
const good = { version: "0.3.0", what: "agent that works", withinMs: 360_000 };
const isGoodChosen = only === undefined || only.some((each) => good.what.includes(each));
const backWithinMs = 60_000;
const former = "0.2.0";
const config = "/etc/overlay-agent/acme/config.yml";
/** For the shell: kills the engine of this machine. */
const killEngine = `for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline 2>/dev/null | grep -q -- '-config ${config} $' && kill -9 \${p#/proc/}; done`;
/** For the shell: does this beside the daemon, and then is the agent of that version. */
const besideDaemon = (version: string, what: string) =>
  `[ "$1" = --ipc-mode ] && { ${what}; } & exec /srv/agent-${version} "$@"`;

/** `why`: the reason of one that is refused, or goes back before it is watched. */
type Bad = { probe: RegExp; why?: RegExp; setting?: boolean } & (
  | { engine: EngineFault }
  /** `real`: the program needs a real agent of its version. */
  | { agent: string; program: (version: string) => Uint8Array; real?: boolean; key?: typeof releaseKey }
);
const atOnce = (why: RegExp) => ({ probe: /^$/, why });
const bad: Record<string, Bad> = {
  "engine ends after 45 seconds": { engine: "ends", probe: /^process of the engine$/ },
  "engine leaks 50 MB a minute": { engine: "leaks", probe: /^memory of the engine$/ },
  "engine drops IPv6": { engine: "drops IPv6", probe: /packets of IPv6/ },
  "engine wants another clock": { engine: "wants another clock", ...atOnce(/does not run with/) },
  "engine refuses its configuration": {
    engine: "refuses its configuration",
    ...atOnce(/does not accept|has no configuration for/),
  },
  "engine hears no UDP": { engine: "hears no UDP", probe: /packets of IPv[46]/ },
  "engine drops large packets": { engine: "drops large packets", probe: /^large packets/ },
  "engine hangs at a reload": {
    engine: "hangs at a reload",
    probe: /packets of IPv|of the engine/,
    setting: true,
  },
  "engine loses most packets": { engine: "loses most packets", probe: /^loss of echoes$|packets of IPv/ },
  "engine says another version": { engine: "says another version", ...atOnce(/This engine is 1.13.1, not/) },
  "engine starts again and again": { engine: "starts again and again", probe: /^process of the engine$/ },
  "agent crashes at once": {
    agent: "0.3.1",
    program: (own) => standIn(own, "kill -9 $$"),
    ...atOnce(/did not work here/),
  },
  "agent crashes after 30 seconds": {
    agent: "0.3.2",
    real: true,
    program: (own) => standIn(own, besideDaemon(own, "sleep 30; kill -9 $$")),
    probe: /^process of the agent$/,
  },
  "agent cannot check in": {
    agent: "0.3.3",
    real: true,
    program: (own) => standIn(own, `export http_proxy=http://127.0.0.1:9; exec /srv/agent-${own} "$@"`),
    probe: /^check-in of the agent$/,
  },
  "agent is for another processor": {
    agent: "0.3.4",
    program: () => foreignProgram(),
    ...atOnce(/reports version none/),
  },
  "agent ends the engine and cannot start it": {
    agent: "0.3.5",
    real: true,
    program: (own) =>
      standIn(own, besideDaemon(own, `sleep 15; while kill -0 $$; do ${killEngine}; sleep 0.2; done`)),
    probe: /packets of IPv|of the engine/,
  },
  "agent writes an invalid configuration": {
    agent: "0.3.6",
    real: true,
    program: (own) => standIn(own, besideDaemon(own, `sleep 15; echo 'broken: [' >${config}; ${killEngine}`)),
    probe: /packets of IPv|of the engine/,
  },
  "agent hangs at its start": {
    agent: "0.3.7",
    program: (own) => standIn(own, "exec sleep 1000"),
    ...atOnce(/did not work here/),
  },
  "agent says another version": {
    agent: "0.3.8",
    program: () => standIn("0.2.9", "exit 0"),
    ...atOnce(/reports version 0.2.9/),
  },
  "agent is signed by another key": {
    agent: "0.3.9",
    program: (own) => standIn(own, "exit 0"),
    key: makeReleaseKey(),
    ...atOnce(/sign/),
  },
};
const chosen = Object.entries(bad).filter(
  ([what]) => only === undefined || only.some((each) => what.includes(each)),
);

/** An ELF file of an ARM processor. */
function foreignProgram(): Buffer {
  const bytes = faultyEngine();
  bytes.writeUInt16LE(183, 18);
  return bytes;
}

/** The same number of machines as `names`, some at a time. */
async function each<T>(names: readonly T[], work: (name: T) => Promise<void>): Promise<void> {
  const left = [...names];
  const worker = async () => {
    for (let next = left.shift(); next !== undefined; next = left.shift()) await work(next);
  };
  await Promise.all(Array.from({ length: 4 }, worker));
}

/** For the shell: the process of the engine in $e, and the sizes of the agent and of the engine that runs. */
const programs = `
e=; for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline 2>/dev/null | grep -q -- '-config ${config} $' && e=\${p#/proc/}; done
echo $(stat -c %s /usr/local/bin/agent) $(stat -L -c %s /proc/$e/exe)`;
/** What an update of another node must not change: also the processes of agent and engine. */
const readState = `${programs} $(systemctl show --property=MainPID --value overlay-agent) $e`;
const programsOf = (state = "") => state.split(" ").slice(0, 2).join(" ");

const noted = (line: string) => void process.stderr.write(`${line}\n`);
const seconds = (ms: number) => (ms / 1000).toFixed(1);

buildAgent();

describeMachine("bad updates of a fleet", () => {
  const stack = new AsyncDisposableStack();
  const names = ["light", ...Array.from({ length: size - 1 }, (_, at) => `node${at + 1}`)];
  const machines = new Map<string, Machine>();
  let plane: FarPlane;

  const machineOf = (name: string): Machine => {
    const machine = machines.get(name);
    if (machine === undefined) throw new Error(`There is no machine ${name}`);
    return machine;
  };

  beforeAll(async () => {
    const began = performance.now();
    stack.defer(allowInotify(16 * size));
    const { path: directory } = stack.use(temporaryDirectory());
    const layer = join(directory, "layer");
    const place = (path: string) => {
      mkdirSync(dirname(join(layer, path)), { recursive: true });
      return join(layer, path);
    };
    copyFileSync(buildVersion(directory, former), place("usr/local/bin/agent"));
    // Instead of the package's, which knows no IPv6 overlay.
    copyFileSync(engineNamed("1.12").nebula, place("usr/bin/nebula"));
    writeFileSync(place("usr/local/lib/overlay-agent/releases.url"), "/srv/latest/download\n");
    await publish(place, directory);
    const lan = stack.use(makeLan(["plane", ...names]));
    const orgFlags = ["--network6", "fd77:77::/64", "--certificate-version", "2"];
    plane = stack.use(await startFarPlane(lan.host("plane"), join(directory, "plane"), "acme", orgFlags));
    const token = await plane.makeToken(["--uses", String(size), "--lighthouse"]);
    await each(names, async (name) => {
      const { namespace } = lan.host(name);
      const machine = stack.use(makeMachine(namespace, layer));
      machines.set(name, machine);
      await machine.boot();
    });
    noted(`${size} machines are up after ${seconds(performance.now() - began)} s`);
    const register = async (name: string) => {
      const hub = name === "light" ? `--is-lighthouse --public-ip ${lan.host(name).address}` : "";
      const where = `--api-base ${plane.url} --allow-plain-http --org-slug acme --node-name ${name}`;
      const may = "--mode desktop --allow-updates agent,engine=/srv/engines/v{version}/";
      await machineOf(name).must(
        `echo ${token} | agent register ${where} --registration-token-file - ${may} ${hub}`,
        180_000,
      );
    };
    await register("light");
    await each(names.slice(1), register);
    await each(names.slice(1), async (name) => {
      await machineOf(name).until("ping -c 1 -W 2 10.77.0.1", 120_000);
    });
    noted(`${size} nodes reach the lighthouse after ${seconds(performance.now() - began)} s`);
  }, 1_800_000);

  afterAll(() => stack.disposeAsync(), 300_000);

  async function states(): Promise<Map<string, string>> {
    const all = new Map<string, string>();
    await each(names, async (name) => {
      const state = await machineOf(name).must(readState);
      expect([name, state]).toEqual([name, expect.stringMatching(/^\d+ \d+ \d+ \d+$/)]);
      all.set(name, state);
    });
    return all;
  }

  const wantedOf = (fault: Bad) =>
    "engine" in fault ? { engine: versionWith(fault.engine) } : { agent: fault.agent };
  async function begin(body: { engine: string } | { agent: string }): Promise<number> {
    for (let tries = 0; ; tries++) {
      const made = await plane
        .api("POST", "/api/org/acme/rollouts/", { ...body, watch_s: watchS })
        .catch((error: unknown) => {
          // Nodes say with their next check-in what root permits, and what they run.
          if (tries > 60) throw error;
        });
      if (made !== undefined) return v.parse(Rollout, made).id;
      await Bun.sleep(1000);
    }
  }
  const find = async (id: number) =>
    v.parse(Rollout, await plane.api("GET", `/api/org/acme/rollouts/${id}/`));
  const nodesOf = async (id: number) =>
    v.parse(
      v.array(RolloutNode),
      await plane.api("GET", `/api/org/acme/rollouts/${id}/nodes/?page_size=1000`),
    );

  /** When it was seen to stop, on the clock of performance.now(). */
  async function stopped(id: number, fault: Bad): Promise<number> {
    let isSet = fault.setting !== true;
    for (const giveUpAt = performance.now() + 480_000; ; await Bun.sleep(500)) {
      const shown = await find(id);
      if (["returning", "stopped", "passed"].includes(shown.state)) return performance.now();
      if (performance.now() > giveUpAt) throw new Error(`It has not stopped: ${JSON.stringify(shown)}`);
      if (isSet || !(await nodesOf(id)).some(({ state }) => state === "applied")) continue;
      isSet = true;
      const any = { any: true };
      const rule = { direction: "inbound", protocol: "tcp", ports: "2222", peer: any, target: any };
      await plane.api("POST", "/api/org/acme/firewall_rules/", rule);
    }
  }

  test.skipIf(!isGoodChosen)(
    `the ${good.what}: it passes all rings, and no ping is lost`,
    async () => {
      await each(names.slice(1), async (name) => {
        await machineOf(name).must("ping -i 0.2 10.77.0.1 >/tmp/pings 2>&1 & echo $! >/tmp/pings.pid");
      });
      const began = performance.now();
      const id = await begin({ agent: good.version });
      let shown = await find(id);
      const begins: string[] = [];
      for (; shown.ended_at === null && shown.state !== "paused"; shown = await find(id)) {
        if (shown.ring > begins.length) begins.push(seconds(performance.now() - began));
        await Bun.sleep(500);
      }
      const tookMs = performance.now() - began;
      const pings = { sent: 0, answered: 0 };
      await each(names.slice(1), async (name) => {
        // The last packet may be under way when ping ends, so the last one that was answered counts.
        const end =
          "kill -INT $(cat /tmp/pings.pid); sleep 1; grep -o 'icmp_seq=[0-9]*' /tmp/pings | tail -1; grep -c icmp_seq= /tmp/pings";
        const [sent = 0, answered = 0] = (await machineOf(name).must(end)).match(/\d+/g) ?? [];
        pings.sent += Number(sent);
        pings.answered += Number(answered);
      });
      noted(
        `${good.what}: ${shown.state} ${shown.rings.length} rings, begun after ${begins.join(", ")}, over after ${seconds(tookMs)} s, ${pings.sent - pings.answered} of ${pings.sent} pings lost; ${shown.reason}`,
      );
      expect(shown).toMatchObject({ state: "passed", reason: "" });
      expect(pings.answered).toBe(pings.sent);
      expect(tookMs).toBeLessThan(good.withinMs);
    },
    900_000,
  );

  for (const [what, fault] of chosen)
    test(`the ${what}: it stops in ring 1 or 2, and is taken back`, async () => {
      const before = await states();
      const began = performance.now();
      const id = await begin(wantedOf(fault));
      const stoppedAt = await stopped(id, fault);
      const touched = (await nodesOf(id)).filter(({ state }) => state !== "waiting");
      const ring = touched.map(({ node_name: name }) => name);
      const isBack = async (name: string) => {
        await machineOf(name).until(
          `agent status >/dev/null && ping -c 1 -W 1 10.77.0.1 && ping -c 1 -W 1 fd77:77::1 && [ "$(${programs})" = '${programsOf(before.get(name))}' ]`,
          180_000,
        );
      };
      await Promise.all(ring.map(isBack));
      const backMs = performance.now() - stoppedAt;
      let shown = await find(id);
      for (; shown.ended_at === null; shown = await find(id)) await Bun.sleep(500);
      noted(
        `${what}: ring ${shown.ring}, ${ring.length} nodes, stopped after ${seconds(stoppedAt - began)} s, back after ${seconds(backMs)} s; ${shown.reason}; ${shown.probe}`,
      );
      expect(shown).toMatchObject({ state: "stopped" });
      expect(shown.ring).toBeLessThanOrEqual(2);
      expect(shown.probe).toMatch(fault.probe);
      expect(shown.reason).toMatch(fault.why ?? /./);
      expect(ring).toContain(shown.failed_node ?? "");
      expect(backMs).toBeLessThan(backWithinMs);
      const after = await states();
      const others = names.filter((name) => !ring.includes(name));
      expect(others.map((name) => [name, after.get(name)])).toEqual(
        others.map((name) => [name, before.get(name)]),
      );
    }, 900_000);
});

/** Each systemd of a machine has several, and all machines share the limit of this one. Returns what sets the limit back. */
function allowInotify(instances: number): () => void {
  const path = "/proc/sys/fs/inotify/max_user_instances";
  const before = readFileSync(path, "utf8");
  writeFileSync(path, String(Math.max(instances, Number(before))));
  return () => writeFileSync(path, before);
}

/** Writes what nodes download. A node refuses a list with a lower number than one that it has seen: the good agent comes first, then engines. */
async function publish(place: (path: string) => string, directory: string): Promise<void> {
  const engines = [];
  if (isGoodChosen) {
    const executables = { [hostTarget()]: readFileSync(buildVersion(directory, good.version)) };
    const release = { version: good.version, sequence: 1, executables };
    await makeRelease(dirname(place(`srv/download/v${good.version}/x`)), release, releaseKey);
  }
  for (const [at, [, fault]] of chosen.entries()) {
    if ("engine" in fault) {
      const version = versionWith(fault.engine);
      writeFileSync(join(directory, "nebula"), faultyEngine(fault.engine), { mode: 0o755 });
      const content = packFiles(directory, ["nebula"]);
      writeFileSync(place(`srv/engines/v${version}/${archive}`), content);
      engines.push({ version, file: archive, sha256: sha256Hex(content) });
      continue;
    }
    const { agent: version, program, real = false, key = releaseKey } = fault;
    if (real) copyFileSync(buildVersion(directory, version), place(`srv/agent-${version}`));
    const executables = { [hostTarget()]: program(version) };
    const release = { version, sequence: at + 3, executables };
    await makeRelease(dirname(place(`srv/download/v${version}/x`)), release, key);
  }
  // The list has its place where the address names no version.
  const list = { version: former, sequence: 2, executables: {}, engines };
  await makeRelease(dirname(place("srv/engines/v/x")), list, releaseKey);
}
