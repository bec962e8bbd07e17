// What an organization takes of a machine, as doctor and start see it. After each line that doctor prints, its finding is gone.

import { expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import * as v from "valibot";
import { makeGate } from "../../../src/daemon/start-checks.ts";
import { generationFile, readSyncState } from "../../../src/node/files/generations.ts";
import { readPermissions } from "../../../src/node/files/permissions.ts";
import type { MachineState } from "../../../src/platform/machine-state.ts";
import { stringifyYaml } from "../../../src/base/yaml.ts";
import { emptyMachine } from "../../support/machine.ts";
import { useSentConfig } from "../../support/sent-config.ts";

const here = useSentConfig();
const on = (state: Partial<MachineState>) => {
  here.world.system.machineState = async () => ({ ...emptyMachine, ...state });
};

const Checks = v.object({
  checks: v.array(
    v.object({
      id: v.string(),
      verdict: v.string(),
      evidence: v.string(),
      remedy: v.optional(v.string()),
    }),
  ),
});
async function finding(id: string) {
  const { stdout } = await here.world.agent(["doctor", "--json"]);
  return v.parse(Checks, JSON.parse(stdout)).checks.find((each) => each.id === id);
}

/** Types the `agent …` line at the end of a remedy. */
async function obey(remedy = ""): Promise<void> {
  const [, line = ""] = /agent (sync-config [^(]*)$/.exec(remedy) ?? [];
  expect((await here.world.agent(line.split(" "))).status).toBe(0);
}

test("what was in force before these rules stays, and is named once, until root allows it for good", async () => {
  const { directory } = here.organization;
  const tun = { dev: "nebula1" };
  const listen = { host: "0.0.0.0", port: 443 };
  here.tamper((config) => ({ ...config, tun: { ...here.section("tun"), ...tun }, listen }));
  // As a version before these rules left it.
  const left = stringifyYaml({ ...here.present(), tun, listen });
  for (const name of ["config.yml", "server.yml"]) writeFileSync(generationFile(directory, name), left);
  const { rules: _, ...state } = readSyncState(directory) ?? {};
  writeFileSync(generationFile(directory, "sync.json"), JSON.stringify(state));
  on({ interfaces: ["nebula1"], sockets: () => [{ protocol: "udp", address: undefined, port: 443 }] });
  expect((await here.sync()).leftOut).toEqual([]);
  expect([here.section("tun")["dev"], here.section("listen")["port"]]).toEqual(["nebula1", 443]);
  const found = await finding("permissions");
  expect(found).toMatchObject({
    verdict: "warn",
    evidence:
      "tun.dev nebula1, listen.port 443: in force from before, and would need this machine's permission today",
  });
  await obey(found?.remedy);
  expect(readPermissions(directory)).toMatchObject({ interfaces: ["nebula1"], listeners: [":443"] });
  expect((await finding("permissions"))?.verdict).toBe("ok");
  expect([here.section("tun")["dev"], here.section("listen")["port"]]).toEqual(["nebula1", 443]);
});

test("doctor compares networks, and the line that it prints ends the finding", async () => {
  expect((await finding("interfaces"))?.verdict).toBe("ok");
  on({ routes: [{ device: "wg0", network: "10.0.0.0/8" }] });
  expect(await finding("interfaces")).toMatchObject({
    verdict: "warn",
    evidence: "the overlay 10.77.0.0/16 lies in 10.0.0.0/8, a route of this machine through wg0",
  });
  on({ addresses: [{ device: "eth0", address: "10.77.200.1/24" }] });
  const found = await finding("interfaces");
  expect(found).toMatchObject({
    verdict: "fail",
    evidence:
      "the overlay 10.77.0.0/16 takes over 10.77.200.0/24, a network of this machine's interface eth0",
  });
  await obey(found?.remedy);
  expect((await finding("interfaces"))?.verdict).toBe("ok");
});

test("a network whose route an engine replaced is named, with the line that brings it back", async () => {
  const state = { interfaces: ["eth0"], addresses: [{ device: "eth0", address: "192.168.1.20/24" }] };
  on({ ...state, routes: [{ device: "ov-acme", network: "192.168.1.0/24" }] });
  expect(await finding("interfaces")).toMatchObject({
    verdict: "fail",
    remedy: "ip route replace 192.168.1.0/24 dev eth0 src 192.168.1.20",
  });
  on({ ...state, routes: [{ device: "eth0", network: "192.168.1.0/24" }] });
  expect((await finding("interfaces"))?.verdict).toBe("ok");
});

test("doctor offers to allow a route only where that has an effect", async () => {
  on({ addresses: [{ device: "eth0", address: "192.168.1.20/24" }], nameServers: ["10.0.0.53"] });
  const route = (network: string) => ({ route: network, via: "10.77.0.9" });
  here.tamper((config) => ({
    ...config,
    tun: { unsafe_routes: ["192.168.1.1/32", "10.77.3.0/24", "10.0.0.53/32"].map(route) },
  }));
  await here.sync();
  const found = await finding("configuration");
  expect(found?.remedy?.endsWith("agent sync-config --org-slug acme --allow-routes 10.0.0.53/32")).toBe(true);
});

const refusal = (work: Promise<unknown>) =>
  work.then(
    () => undefined,
    (error: unknown) => error,
  );
const lan = { addresses: [{ device: "eth0", address: "10.77.3.4/16" }] };

test("an overlay that takes over a network of this machine is refused at the registration", async () => {
  on(lan);
  // The same networks again are no new decision.
  await here.world.register({ force: true });
  await here.world.agent(["unregister", "--org-slug", "acme"]);
  expect(await refusal(here.world.register({ name: "beta" }))).toMatchObject({
    code: "collision",
    message: expect.stringContaining(
      "it takes over 10.77.0.0/16, a network of this machine's interface eth0",
    ),
  });
  await here.world.register({ name: "gamma", allow: { overlaps: ["10.77.0.0/16"] } });
  expect(readPermissions(here.organization.directory).overlaps).toEqual(["10.77.0.0/16"]);
});

test("an overlay that takes over a network of this machine is refused at start, in both modes", async () => {
  on(lan);
  const { organization, world } = here;
  const { status, json } = await world.agent(["start", "acme", "--json"]);
  expect([status, json]).toMatchObject([1, { error: { code: "collision" } }]);
  const settings = { ...world.settings, configRoot: dirname(organization.directory) };
  const gate = makeGate(settings, world.system, world.log);
  expect(await refusal(gate.check(organization, "beside others"))).toMatchObject({
    code: "collision",
    details: { hint: expect.stringContaining("sync-config --org-slug acme --allow-overlap 10.77.0.0/16") },
  });
  expect(readPermissions(join(world.root, "acme")).overlaps).toEqual([]);
});
