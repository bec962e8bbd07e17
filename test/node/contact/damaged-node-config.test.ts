// An organization whose node-config.json is damaged, or whose `current` leads nowhere, still obeys revocations, and nothing
// else.

import { afterEach, beforeEach, expect, test } from "bun:test";
import { cpSync, existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { checkAuth } from "../../../src/node/contact/check-auth.ts";
import { currentGeneration, readSyncState } from "../../../src/node/files/generations.ts";
import type { Organization } from "../../../src/node/files/organizations.ts";
import { makeKeys, sendRegistration } from "../../support/nodes.ts";
import { acceptOrder } from "../../../src/node/files/orders.ts";
import { keepCopy, openForRevocations } from "../../../src/node/files/damaged-organization.ts";
import { readRevokedNote } from "../../../src/node/files/revoked-notes.ts";
import { makeSigningKey, publicHalf, type SigningKey } from "../../../src/pki/tokens.ts";
import { signOrder } from "../../../src/pki/signed-messages.ts";
import type { Order } from "../../../src/protocol/orders.ts";
import { RegisterAnswer } from "../../../src/protocol/registration.ts";
import { rejection } from "../../pki/thrown.ts";
import { followDeps, makeControl, makeNodeWorld, nodePath, type NodeWorld } from "../../support/node.ts";
import { fileDamages, linkDamages } from "../../support/node-config-damages.ts";

let world: NodeWorld;
let organization: Organization;

beforeEach(async () => {
  world = await makeNodeWorld();
  organization = await world.register();
});

afterEach(() => world[Symbol.asyncDispose]());

const open = () => openForRevocations(world.root, "acme");
const check = (control = makeControl()) => checkAuth(open(), followDeps(world, open(), control), 0);
const revoke = () => world.api("DELETE", nodePath(organization));
const damages = [...fileDamages, ...linkDamages];

for (const [what, damage] of damages) {
  test(`${what}: a revocation stops the overlay, and a restore is not accepted`, async () => {
    await check();
    damage(organization.directory);
    await revoke();
    const control = makeControl();
    expect(await check(control)).toMatchObject({
      report: { org_slug: "acme", result: "revoked", action: "stopped" },
      status: 7,
    });
    expect(control.asked).toEqual(["stop"]);
    expect(readRevokedNote(organization.directory)).toMatchObject({ node_id: organization.config.node_id });
    await world.api("POST", `${nodePath(organization)}restore/`, {});
    const later = makeControl();
    expect(await check(later)).toMatchObject({ report: { result: "revoked", action: "none" }, status: 0 });
    expect(later.asked).not.toContain("start");
  });

  test(`${what}: without a revocation nothing changes, and no version is confirmed`, async () => {
    await check();
    damage(organization.directory);
    const generation = currentGeneration(organization.directory);
    await world.api("POST", "/api/org/acme/groups/", { name: "new" });
    await world.api("PATCH", nodePath(organization), { groups: ["new"] });
    const before = await world.api("GET", nodePath(organization));
    const control = makeControl();
    const { report, status } = await check(control);
    expect([report.result, report.action, status]).toEqual(["unsure", "none", 78]);
    expect(report.reason).toContain("node-config.json");
    expect([control.asked, currentGeneration(organization.directory)]).toEqual([[], generation]);
    expect(await world.api("GET", nodePath(organization))).toMatchObject({
      applied_config_version: v.parse(v.object({ applied_config_version: v.number() }), before)
        .applied_config_version,
    });
  });

  test(`${what}: check-auth --all obeys the revocation and goes on with the other organization`, async () => {
    await check();
    await world.server.organization("whole", "10.78.0.0/16");
    cpSync(organization.directory, join(world.root, "whole"), { recursive: true, dereference: true });
    const own = JSON.stringify({ ...organization.config, org_slug: "whole", network: "10.78.0.0/16" });
    writeFileSync(join(world.root, "whole", "node-config.json"), own);
    damage(organization.directory);
    await revoke();
    const { status, json } = await world.agent(["check-auth", "--all", "--json"]);
    expect(json).toMatchObject({
      organizations: [{ org_slug: "acme", result: "revoked", action: "stopped" }, { org_slug: "whole" }],
    });
    expect(status).toBe(7);
    expect((await world.agent(["check-auth", "--org-slug", "acme"])).status).toBe(0);
    expect(existsSync(join(organization.directory, "auth-revoked.json"))).toBe(true);
  });
}

const Blocked = v.object({ pki: v.object({ blocklist: v.array(v.string()) }) });
const blocklistIn = (text: string) => v.parse(Blocked, Bun.YAML.parse(text)).pki.blocklist;

async function registerPeer(): Promise<() => Promise<unknown>> {
  const body = { name: "beta", ...(await makeKeys("beta")), registration_token: await world.token() };
  const { node } = v.parse(RegisterAnswer, (await sendRegistration(world.server, "acme", body)).json);
  return () => world.api("DELETE", `/api/org/acme/nodes/${node.id}/`);
}

for (const [what, damage] of fileDamages) {
  test(`${what}: the revocation of another node gets into the configuration in force`, async () => {
    const { directory } = organization;
    await check();
    const version = readSyncState(directory)?.config_version;
    const revokePeer = await registerPeer();
    damage(directory);
    await revokePeer();
    const control = makeControl();
    expect((await check(control)).report.result).toBe("unsure");
    expect(blocklistIn(readFileSync(join(directory, "config.yml"), "utf8"))).toHaveLength(1);
    expect(control.asked).toEqual(["reload"]);
    expect(readSyncState(directory)?.config_version).toBe(version);
    // Nothing new: the engine is left alone.
    expect((await check(control)).report.result).toBe("unsure");
    expect(control.asked).toEqual(["reload"]);
  });
}

test("without a file in force the engine gets no configuration of revocations alone", async () => {
  await check();
  const revokePeer = await registerPeer();
  rmSync(join(organization.directory, "current"));
  await revokePeer();
  const control = makeControl();
  await check(control);
  expect(control.asked).toEqual([]);
  expect(world.logged.join("\n")).toContain("NOT in force");
});

const keys = async () => [await makeSigningKey("order"), await makeSigningKey("order-2")] as const;

function order(action: Order["action"], key: SigningKey): Promise<string> {
  const { node_id } = organization.config;
  const content = { org: "acme", node_id, action, reason: "left", seq: 5, iat: 1_800_000_000, jti: "j" };
  return signOrder(content, key);
}

test("a directory without the copy, of an earlier version, uses its generations, and all their order keys", async () => {
  const [former, present] = await keys();
  const { directory, config } = organization;
  for (const [name, key] of [
    ["7", former],
    ["8", present],
  ] as const) {
    cpSync(join(directory, "generations", "1"), join(directory, "generations", name), { recursive: true });
    const text = JSON.stringify({ ...config, order_key: publicHalf(key) });
    writeFileSync(join(directory, "generations", name, "node-config.json"), text);
  }
  rmSync(join(directory, "node-config.json"));
  writeFileSync(join(directory, "node-config.json"), "");
  expect((await acceptOrder(await order("revoke", former), open())).order.seq).toBe(5);
  rmSync(join(directory, "orders.json"));
  expect((await acceptOrder(await order("revoke", present), open())).order.seq).toBe(5);
  rmSync(join(directory, "orders.json"));
  const stranger = await makeSigningKey("order");
  expect((await rejection(acceptOrder(await order("revoke", stranger), open()))).code).toBe(
    "untrusted_answer",
  );
  expect((await rejection(acceptOrder(await order("restore", present), open()))).code).toBe(
    "bad_configuration",
  );
});

test("a copy of another organization or node has no say", () => {
  keepCopy({ ...organization, config: { ...organization.config, org_slug: "other" } });
  writeFileSync(join(organization.directory, "node-config.json"), "");
  expect(open).toThrow("is damaged");
});
