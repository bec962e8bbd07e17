// What a kill of `register --force` and `unregister` leaves between any two of their renames, and what the next command
// of any kind makes of it without a network.

import { afterEach, beforeEach, expect, test } from "bun:test";
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { lockPath } from "../../../src/node/files/lock.ts";
import { listOrganizations } from "../../../src/node/files/list-organizations.ts";
import { openOrganization } from "../../../src/node/files/organizations.ts";
import { finishReplacement, putInPlace } from "../../../src/node/files/replacement.ts";
import { Credentials } from "../../../src/protocol/organization-files.ts";
import { exchangeDirectories } from "../../../src/platform/c-library.ts";
import { lockFile } from "../../../src/platform/file-lock.ts";
import { rejection, thrown } from "../../pki/thrown.ts";
import { makeNodeWorld, registerByCommand, type NodeWorld } from "../../support/node.ts";

let world: NodeWorld;
beforeEach(async () => {
  world = await makeNodeWorld();
});
afterEach(() => world[Symbol.asyncDispose]());

const at = (name: string) => join(world.root, name);
const names = () => readdirSync(world.root).sort();
const tokenIn = (name: string) =>
  v.parse(Credentials, JSON.parse(readFileSync(join(at(name), "credentials.json"), "utf8"))).api_token;

/** A registration, and a second one of the same node that is complete but not in its place yet. */
async function prepare(): Promise<{ former: string; next: string }> {
  await world.register();
  const former = tokenIn("acme");
  cpSync(at("acme"), at("kept"), { recursive: true, verbatimSymlinks: true });
  await world.register({ force: true });
  renameSync(at("acme"), at(".acme.pending"));
  renameSync(at("kept"), at("acme"));
  return { former, next: tokenIn(".acme.pending") };
}

const commands = [
  ["status"],
  ["checkin"],
  ["check-auth"],
  ["sync-config"],
  ["stop", "acme"],
  ["logs", "acme"],
  ["doctor"],
  ["unregister", "--org-slug", "acme"],
];

for (const words of commands) {
  test(`between the two renames: ${words[0]} finishes the replacement`, async () => {
    const { next } = await prepare();
    writeFileSync(join(at(".acme.pending"), "lock"), "");
    renameSync(at("acme"), at(".acme.replaced"));
    expect(listOrganizations(world.root)).toEqual(["acme"]);
    await world.agent(words);
    if (words[0] === "unregister") return expect(names()).toEqual([]);
    expect(names()).toEqual(["acme"]);
    expect(tokenIn("acme")).toBe(next);
    expect(readdirSync(at("acme"))).not.toContain("lock");
  });
}

test("status between the two renames shows the organization", async () => {
  await prepare();
  renameSync(at("acme"), at(".acme.replaced"));
  const { stdout } = await world.agent(["status", "--json"]);
  expect(JSON.parse(stdout)).toMatchObject({ teams: [{ team: "acme", name: "alpha", mode: "server" }] });
});

test("without a complete new directory the former one comes back", async () => {
  const { former } = await prepare();
  rmSync(join(at(".acme.pending"), "credentials.json"));
  renameSync(at("acme"), at(".acme.replaced"));
  expect(openOrganization(world.root, "acme").slug).toBe("acme");
  expect(tokenIn("acme")).toBe(former);
  expect(names()).toEqual([".acme.pending", "acme"]);
  await world.register({ force: true });
  expect(names()).toEqual(["acme"]);
});

test("a replacement that another process is about to finish is left to it", async () => {
  await prepare();
  renameSync(at("acme"), at(".acme.replaced"));
  const lock = lockFile(lockPath(at(".acme.pending")));
  expect(thrown(() => finishReplacement(world.root, "acme"))).toMatchObject({ code: "busy" });
  expect(names()).toEqual([".acme.pending", ".acme.replaced"]);
  lock?.release();
  finishReplacement(world.root, "acme");
  expect(names()).toEqual(["acme"]);
});

test("remains of a former registration that is being removed are no organization", async () => {
  await world.register();
  renameSync(at("acme"), at(".acme.replaced"));
  rmSync(join(at(".acme.replaced"), "node-config.json"));
  expect(listOrganizations(world.root)).toEqual([]);
  expect(thrown(() => openOrganization(world.root, "acme"))).toMatchObject({ code: "not_registered" });
});

test("two directories are exchanged in one step, and nothing is exchanged with a missing one", () => {
  for (const name of ["a", "b"]) {
    mkdirSync(at(name));
    writeFileSync(join(at(name), name), name);
  }
  expect(exchangeDirectories(at("a"), at("b"))).toBe(true);
  expect([readdirSync(at("a")), readdirSync(at("b"))]).toEqual([["b"], ["a"]]);
  expect(exchangeDirectories(at("a"), at("none"))).toBe(false);
  expect(existsSync(at("none"))).toBe(false);
});

for (const can of [true, false]) {
  test(`the new directory gets its place ${can ? "by an exchange" : "by two renames"}; remains go`, async () => {
    const { next } = await prepare();
    mkdirSync(at(".acme.replaced"));
    putInPlace(at(".acme.pending"), at("acme"), can ? exchangeDirectories : () => false);
    expect([names(), tokenIn("acme")]).toEqual([["acme"], next]);
  });
}

test("killed right after the exchange: the former directory is no pending registration", async () => {
  const { next, former } = await prepare();
  const note = { revoked_at: "2026-11-20T00:00:00Z", reason: "left", node_id: 1 };
  writeFileSync(join(at("acme"), "auth-revoked.json"), JSON.stringify(note));
  writeFileSync(join(at("acme"), "overrides.yml"), "logging:\n  level: debug\n");
  exchangeDirectories(at(".acme.pending"), at("acme"));
  const key = readFileSync(join(at("acme"), "host.key"), "utf8");
  expect([tokenIn("acme"), tokenIn(".acme.pending")]).toEqual([next, former]);
  rmSync(join(at("acme"), "overrides.yml"), { force: true });
  expect(await registerByCommand(world, ["--force"])).toMatchObject({ status: 0 });
  expect(names()).toEqual(["acme"]);
  for (const gone of ["auth-revoked.json", "overrides.yml"])
    expect(existsSync(join(at("acme"), gone))).toBe(false);
  expect(readFileSync(join(at("acme"), "host.key"), "utf8")).toBe(key);
  expect(statSync(at("acme")).mode & 0o777).toBe(0o755);
});

test("a first registration needs no exchange, and a second one without --force is refused as before", async () => {
  await world.register();
  expect(await rejection(world.register())).toMatchObject({ code: "conflict" });
  expect(names()).toEqual(["acme"]);
});

test("a stopped organization in server mode stays stopped when it is registered again, but not in desktop mode", async () => {
  await world.register();
  writeFileSync(join(at("acme"), "stopped"), "");
  await world.register({ force: true });
  expect(existsSync(join(at("acme"), "stopped"))).toBe(true);
  const moved = await world.register({ force: true, mode: "desktop" });
  expect(moved.config.mode).toBe("desktop");
  expect(existsSync(join(at("acme"), "stopped"))).toBe(false);
});
