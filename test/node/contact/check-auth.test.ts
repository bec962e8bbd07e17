// Only a signed order stops or restarts an overlay. The table below lists answers that are not a revocation.

import { afterEach, beforeEach, expect, test } from "bun:test";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { AppError } from "../../../src/base/errors.ts";
import {
  checkAuth,
  refuseUnnotedRevocation,
  type AuthOutcome,
} from "../../../src/node/contact/check-auth.ts";
import { followOnce } from "../../../src/node/contact/follow-once.ts";
import { followOrganization } from "../../../src/node/contact/follow.ts";
import { currentGeneration } from "../../../src/node/files/generations.ts";
import { openOrganization, type Organization } from "../../../src/node/files/organizations.ts";
import {
  beginRestore,
  forgetWasStopped,
  readRestoredNote,
  readRevokedNote,
  writeRevokedNote,
} from "../../../src/node/files/revoked-notes.ts";
import { acceptOrder } from "../../../src/node/files/orders.ts";
import { makeSigningKey, publicHalf, type SigningKey } from "../../../src/pki/tokens.ts";
import { signOrder } from "../../../src/pki/signed-messages.ts";
import type { Order } from "../../../src/protocol/orders.ts";
import { rejection } from "../../pki/thrown.ts";
import { followDeps, makeControl, makeNodeWorld, nodePath, type NodeWorld } from "../../support/node.ts";

let world: NodeWorld;
let organization: Organization;

beforeEach(async () => {
  world = await makeNodeWorld();
  organization = await world.register();
});

afterEach(() => world[Symbol.asyncDispose]());

const deps = (control = makeControl()) => followDeps(world, organization, control);

const check = (control = makeControl()): Promise<AuthOutcome> => checkAuth(organization, deps(control), 0);
const revoke = () => world.api("DELETE", nodePath(organization));
const restore = () => world.api("POST", `${nodePath(organization)}restore/`, {});

test("an accepted node is ok with exit 0", async () => {
  expect(await check()).toEqual({ report: { org_slug: "acme", result: "ok", action: "none" }, status: 0 });
});

test("a revocation stops the overlay once, and exits 7 once", async () => {
  await revoke();
  const control = makeControl();
  const first = await check(control);
  expect(first).toMatchObject({ report: { result: "revoked", action: "stopped" }, status: 7 });
  expect(control.asked).toEqual(["stop"]);
  const note: unknown = JSON.parse(readFileSync(join(organization.directory, "auth-revoked.json"), "utf8"));
  expect(note).toMatchObject({ node_id: organization.config.node_id });
  expect(Object.keys(note ?? {})).toEqual(expect.arrayContaining(["revoked_at", "reason", "node_id"]));
  expect(await check(control)).toMatchObject({ report: { result: "revoked", action: "none" }, status: 0 });
  world.system.fetch = () => Promise.reject(new Error("no route"));
  const offline = await check(control);
  expect(offline).toMatchObject({ report: { result: "revoked", action: "none" }, status: 6 });
});

test("after a kill between note and stop, the next run stops the overlay", async () => {
  await revoke();
  await check();
  const control = makeControl();
  await check(control);
  expect(control.asked).toEqual(["stop"]);
});

test("a restore starts the overlay only if a user wants it then, whatever it was at the revocation", async () => {
  for (const [before, after] of [
    [true, true],
    [true, false],
    [false, true],
    [false, false],
  ]) {
    await revoke();
    const stopping = makeControl({ wanted: before ?? true });
    expect((await check(stopping)).report).toMatchObject({ result: "revoked", action: "stopped" });
    await restore();
    const control = makeControl({ wanted: after ?? true });
    const { report, status } = await check(control);
    expect({ status, ...report }).toMatchObject({
      status: 0,
      result: "resumed",
      action: after === true ? "started" : "none",
    });
    expect(readRevokedNote(organization.directory)).toBeUndefined();
    expect(control.asked.filter((each) => each === "start")).toEqual(after === true ? ["start"] : []);
    expect((await check(control)).report).toMatchObject({ result: "ok", action: "none" });
  }
});

test("a note of version 0.1.0 keeps a stopped overlay stopped, until a user starts it", async () => {
  for (const isStarted of [false, true]) {
    await revoke();
    await check();
    const note = readRevokedNote(organization.directory);
    expect(note).not.toHaveProperty("was_wanted");
    if (note !== undefined) writeRevokedNote(organization.directory, { ...note, was_wanted: false });
    if (isStarted) forgetWasStopped(organization.directory);
    await restore();
    expect((await check()).report).toMatchObject({
      result: "resumed",
      action: isStarted ? "started" : "none",
    });
  }
});

test("a restored node starts with its new certificate, because peers block the former one", async () => {
  const certificate = () => readFileSync(join(organization.directory, "host.crt"), "utf8");
  const former = certificate();
  await revoke();
  await check();
  await restore();
  let atStart = "";
  const control = { ...makeControl({ running: false }), start: async () => void (atStart = certificate()) };
  expect((await check(control)).report).toMatchObject({ result: "resumed", action: "started" });
  expect(atStart).not.toBe("");
  expect(atStart).not.toBe(former);
});

test("two runs that restore at once both succeed", async () => {
  await revoke();
  await check();
  await restore();
  // Another process has renamed the note just before this one.
  beginRestore(organization.directory);
  beginRestore(organization.directory);
  expect(readRestoredNote(organization.directory)).toBeDefined();
  const outcomes = await Promise.all([check(), check(), check()]);
  expect(outcomes.map(({ status }) => status)).toEqual([0, 0, 0]);
  expect(readRevokedNote(organization.directory)).toBeUndefined();
  expect(readRestoredNote(organization.directory)).toBeUndefined();
});

/** Makes the next write of this file fail, as on a full disk. */
function block(name: string): string {
  const path = join(organization.directory, `.${name}.${process.pid}.tmp`);
  mkdirSync(path);
  return path;
}

test("a revocation is carried out on a full disk, and stored later", async () => {
  await revoke();
  const names = ["orders.json", "auth-revoked.json"];
  const blocked = names.map(block);
  const control = makeControl();
  const first = await check(control);
  expect(first).toMatchObject({ report: { result: "revoked", action: "stopped" }, status: 7 });
  expect(first.report.reason).toContain("could not be stored");
  expect(await check(control)).toMatchObject({ report: { result: "revoked", action: "none" }, status: 0 });
  expect(control.asked).toEqual(["stop", "stop"]);
  // The empty file keeps the services stopped.
  expect(readFileSync(join(organization.directory, "auth-revoked.json"), "utf8")).toBe("");
  expect(existsSync(join(organization.directory, "orders.json"))).toBe(false);
  for (const path of blocked) rmSync(path, { recursive: true });
  expect(await check()).toMatchObject({ report: { result: "revoked", action: "stopped" }, status: 7 });
  for (const name of names)
    expect(JSON.parse(readFileSync(join(organization.directory, name), "utf8"))).toBeObject();
  await restore();
  expect((await check()).report).toMatchObject({ result: "resumed", action: "started" });
});

test("where nothing can be written, a start asks the control plane first", async () => {
  await refuseUnnotedRevocation(organization, deps());
  await revoke();
  // With room on the disk, the note says whether the node is revoked.
  await refuseUnnotedRevocation(organization, deps());
  block(".auth-probe");
  const control = makeControl();
  const { code, message } = await rejection(refuseUnnotedRevocation(organization, deps(control)));
  expect({ code, message }).toEqual({ code: "access_revoked", message: expect.stringContaining("revoked") });
  expect(control.asked).toEqual(["stop"]);
  world.system.fetch = () => Promise.reject(new Error("no route"));
  await refuseUnnotedRevocation(organization, deps());
});

test("an interrupted or failed restore is completed by the next check-in", async () => {
  await revoke();
  await check();
  await restore();
  const control = makeControl();
  const failing = { ...control, start: () => Promise.reject(new AppError("engine_failed", "not now")) };
  await world.api("POST", "/api/org/acme/groups/", { name: "a" });
  await world.api("PATCH", nodePath(organization), { groups: ["a"] });
  expect((await check(failing)).report).toMatchObject({ result: "unsure", reason: "not now" });
  // The new configuration may be needed for the start.
  expect(currentGeneration(organization.directory)).toBe("2");
  expect((await check(control)).report).toMatchObject({ result: "resumed", action: "started" });
  expect(control.asked.filter((each) => each === "start")).toEqual(["start"]);
  expect((await check(control)).report).toMatchObject({ result: "ok", action: "none" });
});

test("a second revocation before the restart ends the first restore", async () => {
  await revoke();
  await check();
  await restore();
  const failing = { ...makeControl(), start: () => Promise.reject(new AppError("engine_failed", "not now")) };
  await check(failing);
  await revoke();
  await check();
  expect(readRestoredNote(organization.directory)).toBeUndefined();
  await restore();
  expect((await check()).report).toMatchObject({ result: "resumed", action: "started" });
});

const error = (status: number, code: string) => () =>
  Response.json({ error: "x", code, detail: "No.", status_code: status }, { status });
const portal = "<html>Sign in</html>";
const noRevocations: [string, () => Response | Promise<Response>][] = [
  ["a bare 401", () => new Response(null, { status: 401 })],
  ["a bare 403", () => new Response(null, { status: 403 })],
  ["a 401 in the right shape", error(401, "token_not_valid")],
  ["a 403 in the right shape", error(403, "permission_denied")],
  ["a 403 that says revoked, without an order", error(403, "node_revoked")],
  ["a 404 in the right shape", error(404, "not_found")],
  ["a 500", error(500, "internal")],
  ["a proxy's 503", () => new Response("try later", { status: 503 })],
  ["a throttle", error(429, "throttled")],
  ["a captive portal's page", () => new Response(portal, { headers: { "Content-Type": "text/html" } })],
  ["a redirect to a portal", () => Response.redirect("https://portal.example/", 302)],
  ["a TLS failure", () => Promise.reject(new Error("self signed certificate"))],
  ["a DNS failure", () => Promise.reject(Object.assign(new Error("no such host"), { code: "ENOTFOUND" }))],
];
for (const [what, answer] of noRevocations) {
  test(`${what} is not a revocation: exit 6, and the engine keeps running`, async () => {
    world.system.fetch = async () => answer();
    const control = makeControl();
    expect(await check(control)).toMatchObject({ report: { result: "unsure", action: "none" }, status: 6 });
    expect(control.asked).toEqual([]);
    expect(readRevokedNote(organization.directory)).toBeUndefined();
  });
}

test("a clock that is wrong by years is not a revocation", async () => {
  const { now } = world.system;
  world.system.now = () => now() + 20 * 365 * 86_400_000;
  const control = makeControl();
  const { report } = await check(control);
  expect(report.action).toBe("none");
  expect(control.asked).toEqual([]);
  expect(readRevokedNote(organization.directory)).toBeUndefined();
});

/** A node whose order key is known to the test. */
async function heldKey(): Promise<{ key: SigningKey; order: (change?: Partial<Order>) => Promise<string> }> {
  const key = await makeSigningKey("order-1");
  const path = join(organization.directory, "node-config.json");
  writeFileSync(path, JSON.stringify({ ...organization.config, order_key: publicHalf(key) }));
  organization = openOrganization(world.root, "acme");
  const base: Order = {
    org: "acme",
    node_id: organization.config.node_id,
    action: "revoke",
    seq: 100,
    iat: 1,
    reason: "test",
    jti: "1",
  };
  return { key, order: (change = {}) => signOrder({ ...base, ...change }, key) };
}

test("an order needs the right signature, node, organization and sequence number", async () => {
  const { order } = await heldKey();
  const stranger = await makeSigningKey("order-1");
  const own = organization.config.node_id;
  const forged = await signOrder(
    { org: "acme", node_id: own, action: "revoke", seq: 999, iat: 1, reason: "x", jti: "x" },
    stranger,
  );
  const refused = [forged, await order({ node_id: own + 1 }), await order({ org: "other" }), "nonsense", ""];
  for (const jws of refused) expect((await rejection(acceptOrder(jws, organization))).exitStatus).toBe(6);
  expect(existsSync(join(organization.directory, "orders.json"))).toBe(false);

  const first = await order();
  expect((await acceptOrder(first, organization)).order).toMatchObject({ seq: 100, action: "revoke" });
  // The last order is accepted again, but not a lower number, or another order with the same number.
  expect((await acceptOrder(first, organization)).order).toMatchObject({ seq: 100 });
  expect(
    (await rejection(acceptOrder(await order({ seq: 99, action: "restore" }), organization))).message,
  ).toContain("newer");
  expect((await rejection(acceptOrder(await order({ action: "restore" }), organization))).message).toContain(
    "newer",
  );
  expect((await acceptOrder(await order({ seq: 101, action: "restore" }), organization)).order).toMatchObject(
    {
      seq: 101,
    },
  );
  expect((await rejection(acceptOrder(first, organization))).message).toContain("newer");
});

test("a restore order in a 403 starts nothing", async () => {
  const { order } = await heldKey();
  const jws = await order({ action: "restore" });
  world.system.fetch = async () =>
    Response.json(
      { error: "x", code: "node_revoked", detail: "No.", status_code: 403, order: jws },
      { status: 403 },
    );
  const control = makeControl();
  expect(await check(control)).toMatchObject({ report: { result: "unsure" }, status: 6 });
  expect(control.asked).toEqual([]);
});

test("without an order key, 401 and 403 with a JSON error count as revocation", async () => {
  const { order_key: _, ...config } = organization.config;
  writeFileSync(join(organization.directory, "node-config.json"), JSON.stringify(config));
  organization = openOrganization(world.root, "acme");
  for (const answer of [
    () => new Response(null, { status: 403 }),
    error(404, "not_found"),
    error(500, "internal"),
  ]) {
    world.system.fetch = async () => answer();
    expect((await check()).report).toMatchObject({ result: "unsure", action: "none" });
  }
  world.system.fetch = async () => error(401, "token_not_valid")();
  expect(await check()).toMatchObject({ report: { result: "revoked", action: "stopped" }, status: 7 });
});

test("a failed configuration is exit 1, not a revocation", async () => {
  await world.api("POST", "/api/org/acme/groups/", { name: "a" });
  await world.api("PATCH", nodePath(organization), { groups: ["a"] });
  writeFileSync(join(organization.directory, "overrides.yml"), "pki: {}\n");
  const { report, status } = await check();
  expect(report).toMatchObject({ result: "ok", action: "none" });
  expect(report.reason).toContain('"pki"');
  expect(status).toBe(1);
});

test("a network failure during the download is an outage with exit 6", async () => {
  await world.api("POST", "/api/org/acme/groups/", { name: "a" });
  await world.api("PATCH", nodePath(organization), { groups: ["a"] });
  const { fetch } = world.system;
  world.system.fetch = async (input, init) =>
    input.includes("download_config") ? Promise.reject(new Error("away")) : fetch(input, init);
  expect(await check()).toMatchObject({ report: { result: "ok", action: "none" }, status: 6 });
});

test("with --wait, a change during the wait is applied", async () => {
  const start = performance.now();
  const waiting = deps();
  waiting.system = { ...waiting.system, now: () => world.server.clock.ms + (performance.now() - start) };
  const outcome = checkAuth(organization, waiting, 2);
  await Bun.sleep(300);
  await world.api("POST", "/api/org/acme/groups/", { name: "a" });
  await world.api("PATCH", nodePath(organization), { groups: ["a"] });
  expect(await outcome).toMatchObject({ report: { result: "ok" }, status: 0 });
  expect(readFileSync(join(organization.directory, "current/config.yml"), "utf8")).toContain("pki:");
  expect(readFileSync(join(organization.directory, "current/taken-up"), "utf8")).toBe("");
  expect(openOrganization(world.root, "acme").config.config_version).toBeGreaterThan(
    organization.config.config_version,
  );
});

test("pauses grow to at least half a minute while the control plane is unreachable", async () => {
  world.system.fetch = async () => Promise.reject(new Error("away"));
  // No waits between the tries of one request here.
  world.system.sleep = async () => {};
  const pauses: number[] = [];
  const following = deps();
  const ending = new AbortController();
  following.system = {
    ...following.system,
    sleep: async (ms) => {
      pauses.push(ms);
      if (pauses.length === 40) ending.abort();
    },
  };
  await followOrganization(organization, following, { signal: ending.signal });
  expect(pauses[0]).toBeLessThanOrEqual(4000);
  expect(Math.max(...pauses)).toBeLessThanOrEqual(60_000);
  expect(Math.min(...pauses.slice(-3))).toBeGreaterThanOrEqual(30_000);
  expect(world.logged.filter((line) => line.startsWith("warn"))).toHaveLength(1);
});

test("a turn reports the engine's state and the applied version", async () => {
  const bodies: unknown[] = [];
  const through = world.system.fetch;
  world.system.fetch = (url, init) => {
    bodies.push(JSON.parse(String(init?.body)));
    return through(url, init);
  };
  for (const wanted of [false, true])
    await followOnce(organization, deps(makeControl({ running: false, wanted })), { waitS: 0 });
  expect(bodies[1]).toMatchObject({ overlay_state: "not_running" });
  expect(bodies[0]).toMatchObject({
    overlay_state: "stopped",
    config_version: organization.config.config_version,
    confirmed_config_version: organization.config.config_version,
  });
});
