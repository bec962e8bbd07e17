// Updates of agents in rings on machines that systemd has booted: a lighthouse in server mode, nodes in desktop mode, and one
// whose root permits no update of the agent. A bad version stops at the first node, which goes back by itself.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import * as v from "valibot";
import { hostTarget } from "../../build.ts";
import { Rollout } from "../../src/api/rollouts.ts";
import { buildAgent } from "../support/agent.ts";
import { startFarPlane, type FarPlane } from "../support/far-plane.ts";
import { makeLan } from "../support/namespaces.ts";
import { describeMachine, makeMachine, type Machine } from "../support/nspawn.ts";
import { buildVersion, makeRelease, releaseKey, standIn } from "../support/releases.ts";
import { inFull } from "../support/soak.ts";
import { temporaryDirectory } from "../support/temporary.ts";

buildAgent();

const former = "0.1.0";
const good = "0.3.0";
const watchS = 10;
/** Programs with a fault. `agent`: a real agent of its version. */
const bad: Record<string, { version: string; program: string; probe: string; isSlow: boolean }> = {
  "crashes at once": { version: "0.2.1", program: "kill -9 $$", probe: "", isSlow: false },
  "crashes after some seconds": {
    version: "0.2.2",
    program: `[ "$1" = --ipc-mode ] && { sleep 12; kill -9 $$; } & exec /srv/agent-0.2.2 "$@"`,
    probe: "process of the agent",
    isSlow: true,
  },
  "cannot check in": {
    version: "0.2.3",
    program: `export http_proxy=http://127.0.0.1:9; exec /srv/agent-0.2.3 "$@"`,
    probe: "check-in of the agent",
    isSlow: true,
  },
};
const nodes = { light: "server", desk: "desktop", shop: "desktop", pinned: "server" } as const;

describeMachine("updates of agents in rings", () => {
  const stack = new AsyncDisposableStack();
  let plane: FarPlane;
  const machines = new Map<string, Machine>();

  beforeAll(async () => {
    const { path: directory } = stack.use(temporaryDirectory());
    const place = (path: string) => {
      const at = join(directory, "layer", path);
      mkdirSync(dirname(at), { recursive: true });
      return at;
    };
    copyFileSync(buildVersion(directory, former), place("usr/local/bin/agent"));
    writeFileSync(place("usr/local/lib/overlay-agent/releases.url"), "/srv/latest/download\n");
    if (inFull)
      for (const { version, isSlow } of Object.values(bad))
        if (isSlow) copyFileSync(buildVersion(directory, version), place(`srv/agent-${version}`));
    const publish = (version: string, sequence: number, program: Uint8Array) =>
      makeRelease(
        place(`srv/download/v${version}`),
        { version, sequence, executables: { [hostTarget()]: program } },
        releaseKey,
      );
    for (const [at, { version, program }] of Object.values(bad).entries())
      await publish(version, at + 1, standIn(version, program));
    await publish(good, 9, readFileSync(buildVersion(directory, good)));
    const lan = stack.use(makeLan(["plane", ...Object.keys(nodes)]));
    plane = stack.use(await startFarPlane(lan.host("plane"), join(directory, "plane")));
    const register = async (name: keyof typeof nodes) => {
      const { namespace, address } = lan.host(name);
      const machine = stack.use(makeMachine(namespace, join(directory, "layer")));
      machines.set(name, machine);
      await machine.boot();
      const isLight = name === "light";
      const token = await plane.makeToken(isLight ? ["--lighthouse"] : []);
      const where = `--api-base ${plane.url} --allow-plain-http --org-slug acme --node-name ${name}`;
      const flags = `--mode ${nodes[name]} --allow-updates ${name === "pinned" ? "engine" : "agent"}`;
      const more = isLight ? `--is-lighthouse --public-ip ${address}` : "";
      await machine.must(
        `echo ${token} | agent register ${where} --registration-token-file - ${flags} ${more}`,
      );
    };
    await register("light");
    await Promise.all([register("desk"), register("shop"), register("pinned")]);
    for (const name of ["desk", "shop"] as const)
      await machines.get(name)?.until("ping -c 1 -W 1 10.77.0.1", 30_000);
    // Nodes say with their next check-in what root permits.
    await Promise.all([...machines.values()].map((machine) => machine.must("agent check-auth --all")));
  }, 300_000);

  afterAll(() => stack.disposeAsync());

  const versions = async () => {
    const read = `agent version --no-check --json | grep -o '"version":"[^"]*"' | cut -d '"' -f 4`;
    const all = [...machines].map(async ([name, machine]) => [name, await machine.must(read)] as const);
    return Object.fromEntries(await Promise.all(all));
  };
  const formerEverywhere = { light: former, desk: former, shop: former, pinned: former };

  async function rollOut(agent: string): Promise<Rollout> {
    for (let tries = 0; ; tries++) {
      const made = await plane
        .api("POST", "/api/org/acme/rollouts/", { agent, watch_s: watchS })
        .catch((error: unknown) => {
          // Nodes say with their next check-in what root permits.
          if (tries > 60) throw error;
        });
      if (made !== undefined) return v.parse(Rollout, made);
      await Bun.sleep(1000);
    }
  }
  async function ended(id: number, ms: number): Promise<Rollout> {
    for (const giveUpAt = performance.now() + ms; ; await Bun.sleep(500)) {
      const shown = v.parse(Rollout, await plane.api("GET", `/api/org/acme/rollouts/${id}/`));
      if (shown.ended_at !== null) return shown;
      if (performance.now() > giveUpAt) throw new Error(`It has not ended: ${JSON.stringify(shown)}`);
    }
  }

  for (const [what, { version, probe, isSlow }] of Object.entries(bad))
    if (!isSlow || inFull)
      test(`stop at the first node where the agent ${what}`, async () => {
        const { id } = await rollOut(version);
        const shown = await ended(id, 180_000);
        expect(shown).toMatchObject({ state: "stopped", ring: 1 });
        expect(["desk", "shop"]).toContain(shown.failed_node ?? "");
        expect(shown.reason).not.toBe("");
        expect(shown.probe).toBe(probe);
        expect(await versions()).toEqual(formerEverywhere);
        const others = [...machines].filter(([name]) => name !== shown.failed_node);
        for (const [, machine] of others)
          await machine.must(`! grep -q '"agent":"${version}"' /etc/overlay-agent/acme/update-order.json`);
        for (const name of ["desk", "shop"] as const)
          await machines.get(name)?.until("agent status && ping -c 1 -W 1 10.77.0.1", 30_000);
      }, 240_000);

  test("a good version goes through the lighthouse and its nodes; where root does not permit it, nothing changes", async () => {
    const { id } = await rollOut(good);
    const shown = await ended(id, 200_000);
    expect(shown).toMatchObject({ state: "passed", reason: "" });
    expect(shown.rings.map(({ passed }) => passed)).toEqual([1, 2]);
    expect(await versions()).toEqual({ light: good, desk: good, shop: good, pinned: former });
    await machines.get("desk")?.until("agent status && ping -c 1 -W 1 10.77.0.1", 30_000);
    const lower = await plane.api("POST", "/api/org/acme/rollouts/", { agent: "0.2.0" }).catch(String);
    expect(lower).toContain("has this version or a higher one");
  }, 240_000);

  test("settings go through all nodes, also in server mode and where root permits no update", async () => {
    const settings = { tun: { mtu: 1290 }, timers: { connection_alive_interval: 3 } };
    const body = { settings, watch_s: watchS };
    const { id } = v.parse(Rollout, await plane.api("POST", "/api/org/acme/rollouts/", body));
    const shown = await ended(id, 200_000);
    expect(shown).toMatchObject({ state: "passed", reason: "" });
    expect(shown.rings.map(({ passed }) => passed)).toEqual([1, 3]);
    for (const [name, machine] of machines) {
      await machine.must("grep -q 'mtu: 1290' /etc/overlay-agent/acme/config.yml");
      if (name !== "light") await machine.until("ping -c 1 -W 1 10.77.0.1", 30_000);
    }
  }, 240_000);

  test("a harmful setting stops at a node in server mode, which goes back", async () => {
    const Nodes = v.array(v.object({ id: v.number(), name: v.string() }));
    // Relays change last.
    for (const { id, name } of v.parse(Nodes, await plane.api("GET", "/api/org/acme/nodes/")))
      if (name === "desk" || name === "shop")
        await plane.api("PATCH", `/api/org/acme/nodes/${id}/`, { is_relay: true });
    const server = machines.get("pinned");
    if (server === undefined) throw new Error("There is no machine in server mode");
    const config = "/etc/overlay-agent/acme/config.yml";
    for (const name of ["desk", "shop"] as const)
      await machines.get(name)?.until(`grep -q 'am_relay: true' ${config}`, 60_000);
    await server.until("ping -c 1 -W 1 10.77.0.1", 60_000);
    const mark = `grep -q 'disabled: true' ${config}`;
    const settings = {
      tun: { mtu: 1290, disabled: true },
      timers: { connection_alive_interval: 3 },
    };
    const body = { settings, watch_s: watchS };
    const { id } = v.parse(Rollout, await plane.api("POST", "/api/org/acme/rollouts/", body));
    await server.until(mark, 90_000);
    const shown = await ended(id, 120_000);
    expect(shown).toMatchObject({ state: "stopped", ring: 1, failed_node: "pinned" });
    expect(shown.probe).toContain("small packets of IPv4");
    await server.until("ping -c 1 -W 1 10.77.0.1", 30_000);
    for (const machine of machines.values()) await machine.must(`! ${mark}`);
  }, 240_000);
});
