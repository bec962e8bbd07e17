// The daemon and organizations whose node-config.json is damaged: it runs their engines, and revocations stop them. The
// control plane is the real one; a script replaces the engine.

import { afterEach, beforeEach, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { connectControlPlane } from "../../src/daemon/control-plane.ts";
import { followOnce } from "../../src/node/contact/follow-once.ts";
import type { Organization } from "../../src/node/files/organizations.ts";
import { followDeps, makeNodeWorld, nodePath, type NodeWorld } from "../support/node.ts";
import { fileDamages, linkDamages } from "../support/node-config-damages.ts";
import { makeEnginesWorld, stateOf, type EnginesWorld } from "../support/organization-engines.ts";
import { until } from "../support/until.ts";

let node: NodeWorld;
let daemon: EnginesWorld;
let organization: Organization;

beforeEach(async () => {
  node = await makeNodeWorld();
  daemon = makeEnginesWorld(node.root);
  organization = await node.register({ mode: "desktop" });
  // The first check-in keeps a copy, and takes the news: the daemon has none to apply.
  await followOnce(organization, followDeps(node, organization), { waitS: 0 });
  // The server in this process does not notice the end of a poll by itself.
  const { fetch } = node.system;
  node.system.fetch = (url, init) => Promise.race([fetch(url, init), ended(init?.signal)]);
});

afterEach(async () => {
  await daemon[Symbol.asyncDispose]();
  await node[Symbol.asyncDispose]();
});

function ended(signal: AbortSignal | null | undefined): Promise<never> {
  return new Promise((_, reject) => {
    signal?.addEventListener("abort", () => reject(signal.reason));
  });
}

const open = () => {
  const settings = {
    ...node.settings,
    overlayBinary: join(daemon.directory, "engine"),
    stateDb: "",
    socketPath: "",
  };
  return daemon.open({ controlPlane: connectControlPlane(settings, node.system, node.log) });
};
const revoke = () => node.api("DELETE", nodePath(organization));

for (const [what, damage] of [...fileDamages, ...linkDamages]) {
  test(`${what}: the next daemon adopts the engine, and stops it when the node is revoked`, async () => {
    const first = daemon.open();
    await until(() => stateOf(first.engines, "acme") === "running");
    const { pid } = first.engines.status()[0] ?? {};
    await daemon.crash(first);
    damage(organization.directory);
    const { engines } = open();
    expect(engines.status()[0]).toMatchObject({ pid, name: "alpha" });
    expect(engines.status()[0]?.message).toContain("register --force");
    await revoke();
    expect(await engines.sync("acme")).toMatchObject({ access: "revoked" });
    await until(() => stateOf(engines, "acme") === "revoked");
    expect(engines.pid("acme")).toBeUndefined();
  });
}

for (const [what, damage] of [...fileDamages.slice(0, 1), ...linkDamages.slice(0, 1)]) {
  test(`${what} beside a whole organization, while the daemon runs: both obey`, async () => {
    daemon.register("whole", { octet: 78 });
    const { engines } = open();
    await until(() => engines.status().every(({ state }) => state === "running"));
    await until(() => engines.status("acme")[0]?.last_checkin_at !== undefined);
    damage(organization.directory);
    engines.tidy();
    engines.provision();
    await revoke();
    expect(await engines.sync("acme")).toMatchObject({ access: "revoked" });
    await until(() => stateOf(engines, "acme") === "revoked");
    expect(stateOf(engines, "whole")).toBe("running");
  });
}

test("an engine of a damaged organization does not start, and a repaired file ends that", async () => {
  const first = daemon.open();
  await first.engines.shutDown();
  await daemon.crash(first);
  writeFileSync(join(organization.directory, "node-config.json"), "");
  const { engines } = open();
  await until(() => engines.status()[0]?.state === "waiting");
  expect(engines.pid("acme")).toBeUndefined();
  writeFileSync(join(organization.directory, "node-config.json"), JSON.stringify(organization.config));
  await engines.start("acme");
  expect(stateOf(engines, "acme")).toBe("running");
});
