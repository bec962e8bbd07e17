// A signed revocation is carried out even if the files about earlier orders are damaged. Only a restore needs them.

import { afterEach, beforeEach, expect, test } from "bun:test";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { checkAuth, type AuthOutcome } from "../../../src/node/contact/check-auth.ts";
import { generationFile } from "../../../src/node/files/generations.ts";
import { acceptOrder } from "../../../src/node/files/orders.ts";
import type { Organization } from "../../../src/node/files/organizations.ts";
import { readRevokedNote } from "../../../src/node/files/revoked-notes.ts";
import { rejection } from "../../pki/thrown.ts";
import { followDeps, makeControl, makeNodeWorld, nodePath, type NodeWorld } from "../../support/node.ts";

let world: NodeWorld;
let organization: Organization;

beforeEach(async () => {
  world = await makeNodeWorld();
  organization = await world.register();
});

afterEach(() => world[Symbol.asyncDispose]());

const check = (control = makeControl()): Promise<AuthOutcome> =>
  checkAuth(organization, followDeps(world, organization, control), 0);

const revoke = () => world.api("DELETE", nodePath(organization));
const restore = () => world.api("POST", `${nodePath(organization)}restore/`, {});
const pathOf = (name: string) => join(organization.directory, name);

const damages: [string, (path: string) => void][] = [
  ["an empty file", (path) => writeFileSync(path, "")],
  ["garbage", (path) => writeFileSync(path, "\u0000\u0001 no JSON at all")],
  ["truncated JSON", (path) => writeFileSync(path, '{"jws":"eyJ","order":{"org":"ac')],
  ["wrong types", (path) => writeFileSync(path, '{"jws":7,"order":[],"revoked_at":1,"reason":{}}')],
  ["a directory", (path) => mkdirSync(path)],
  [
    "a directory with files",
    (path) => {
      mkdirSync(path);
      writeFileSync(join(path, "note"), "of another program");
    },
  ],
];

for (const [what, damage] of damages) {
  for (const name of ["orders.json", "auth-revoked.json", "auth-restored.json", "current/sync.json"]) {
    test(`revocation is carried out with ${what} in place of ${name}, and a later restore too`, async () => {
      rmSync(pathOf(name), { recursive: true, force: true });
      damage(pathOf(name));
      await revoke();
      const control = makeControl();
      expect(await check(control)).toMatchObject({
        report: { result: "revoked", action: "stopped" },
        status: 7,
      });
      expect(control.asked).toEqual(["stop"]);
      expect(JSON.parse(readFileSync(pathOf("auth-revoked.json"), "utf8"))).toMatchObject({
        node_id: organization.config.node_id,
      });
      expect(await check()).toMatchObject({ report: { result: "revoked", action: "none" }, status: 0 });
      await restore();
      expect((await check()).report).toMatchObject({ result: "resumed", action: "started" });
      expect(readRevokedNote(organization.directory)).toBeUndefined();
    });
  }

  test(`restore is refused with ${what} in place of orders.json, because it may be a replay`, async () => {
    await revoke();
    await check();
    await restore();
    rmSync(pathOf("orders.json"));
    damage(pathOf("orders.json"));
    const control = makeControl();
    const { report, status } = await check(control);
    expect(report).toMatchObject({ result: "unsure", action: "none" });
    expect(report.reason).toContain("orders.json");
    expect(status).toBe(78);
    expect(control.asked).toEqual([]);
    expect(readRevokedNote(organization.directory)).toBeDefined();
  });

  test(`restore is carried out with ${what} in place of auth-revoked.json`, async () => {
    await revoke();
    await check();
    await restore();
    rmSync(pathOf("auth-revoked.json"));
    damage(pathOf("auth-revoked.json"));
    const control = makeControl();
    expect((await check(control)).report).toMatchObject({ result: "resumed", action: "started" });
    expect(control.asked).toContain("start");
    expect(readRevokedNote(organization.directory)).toBeUndefined();
  });
}

test("damaged auth-revoked.json keeps the organization stopped, and the reason says how to repair it", () => {
  writeFileSync(pathOf("auth-revoked.json"), "");
  expect(readRevokedNote(organization.directory)?.reason).toContain("damaged");
});

test("interrupted restore is not continued after a revocation without a new order", async () => {
  await revoke();
  await check();
  await restore();
  const failing = { ...makeControl(), start: () => Promise.reject(new Error("not now")) };
  await check(failing);
  await revoke();
  await check();
  // The control plane answers without an order.
  const through = world.system.fetch;
  world.system.fetch = async (url, init) =>
    url.includes("checkin")
      ? Response.json({
          last_checkin_at: "2030-01-01T00:00:00Z",
          server_time: "2030-01-01T00:00:00Z",
          config_version: 1,
          config_changed: false,
          certificate_not_after: "2030-01-01T00:00:00Z",
        })
      : through(url, init);
  const control = makeControl();
  await check(control);
  expect(control.asked).not.toContain("start");
  expect(readRevokedNote(organization.directory)).toBeDefined();
});

test("damaged sync.json is written again by the next synchronization", async () => {
  writeFileSync(generationFile(organization.directory, "sync.json"), "");
  const { status } = await world.agent(["sync-config"]);
  expect(status).toBe(0);
  expect(readFileSync(generationFile(organization.directory, "sync.json"), "utf8")).toContain("etag");
});

test("an old restore order is refused after the loss of orders.json", async () => {
  await revoke();
  await check();
  await restore();
  await check();
  const old = readFileSync(pathOf("orders.json"), "utf8");
  const { jws } = JSON.parse(old) as { jws: string };
  await revoke();
  await check();
  rmSync(pathOf("orders.json"));
  expect((await rejection(acceptOrder(jws, organization))).message).toContain("newer");
  // The revocation in force is stored again, and a new restore is accepted.
  expect(await check()).toMatchObject({ report: { result: "revoked" }, status: 0 });
  expect(JSON.parse(readFileSync(pathOf("orders.json"), "utf8"))).toMatchObject({
    order: { action: "revoke" },
  });
  await restore();
  expect((await check()).report).toMatchObject({ result: "resumed" });
});
