// Registering under a name that a former node had: it is held for a while, or `--replace` takes it over.

import { afterEach, beforeEach, expect, test } from "bun:test";
import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { rejection } from "../../pki/thrown.ts";
import { makeNodeWorld, registerByCommand, type NodeWorld } from "../../support/node.ts";

let world: NodeWorld;
beforeEach(async () => {
  world = await makeNodeWorld();
});
afterEach(() => world[Symbol.asyncDispose]());

async function nodes(): Promise<{ id: number; name: string }[]> {
  const listed = await world.api("GET", "/api/org/acme/nodes/");
  return v.parse(v.array(v.object({ id: v.number(), name: v.string() })), listed);
}

test("a held name is refused with the command for a token, which then registers the machine", async () => {
  await world.register();
  await world.agent(["unregister", "--org-slug", "acme"]);
  const credential = { registrationToken: await world.token() };
  const error = await rejection(world.register({ credential }));
  expect([error.code, error.details.errors]).toEqual(["name_held", { name: ["This name is held."] }]);
  expect(error.message).toContain("last certificate ends at 20");
  expect(error.details.hint).toContain("`agent admin token create acme --node alpha`");
  const bound = { registrationToken: await world.token({ node_name: "alpha" }) };
  expect((await world.register({ credential: bound })).config).toMatchObject({ name: "alpha" });
});

test("--new-keys makes another node of a copy, and leaves the present node to the other machine", async () => {
  const { directory, config } = await world.register();
  const read = (name: string) => readFileSync(join(directory, name), "utf8");
  const files = ["host.key", "node.key", "credentials.json"];
  const before = files.map(read);
  writeFileSync(join(directory, "overrides.yml"), "{}\n");
  const credential = { registrationToken: await world.token() };
  const same = await rejection(world.register({ credential, newKeys: true }));
  expect([same.code, same.message]).toEqual([
    "conflict",
    'This machine is "alpha" in "acme", and another machine keeps that name',
  ]);
  expect(files.map(read)).toEqual(before);
  // What a copy brings along of a registration that was begun and has the same keys.
  const pending = join(world.root, ".acme.pending");
  mkdirSync(pending, { mode: 0o700 });
  for (const name of ["host.key", "node.key"]) cpSync(join(directory, name), join(pending, name));
  const made = await world.register({ credential, newKeys: true, name: "beta" });
  expect(made.config).toMatchObject({ name: "beta" });
  expect(made.config.node_id).not.toBe(config.node_id);
  for (const [at, name] of files.entries()) expect(read(name)).not.toBe(before[at]);
  expect(read("overrides.yml")).toBe("{}\n");
  const listed = await world.api("GET", "/api/org/acme/nodes/");
  expect(listed).toMatchObject([
    { name: "alpha", state: "active" },
    { name: "beta", state: "active" },
  ]);
  const empty = await rejection(
    world.register({ credential, newKeys: true, slug: "other", name: "gamma" }).then(() => directory),
  );
  expect(empty.code).toBe("not_registered");
});

test("--replace takes the place of the former node of a machine that lost its files, with its groups", async () => {
  await world.register();
  const [former] = await nodes();
  await world.api("PATCH", `/api/org/acme/nodes/${former?.id}/`, { groups: ["web"] });
  rmSync(join(world.root, "acme"), { recursive: true });
  const credential = { accessToken: world.owner };
  await world.api("POST", `/api/org/acme/nodes/${former?.id}/checkin/`, { version: "0.1.0", uptime: 1 });
  const early = await rejection(world.register({ credential, replaces: true }));
  expect([early.code, early.details.hint]).toEqual([
    "conflict",
    expect.stringContaining("three minutes after"),
  ]);
  expect((await nodes()).map(({ id }) => id)).toEqual([former?.id ?? 0]);
  world.server.clock.ms += 200_000;
  expect((await rejection(world.register({ credential }))).details.hint).toContain("register --replace");
  const { config } = await world.register({ credential, replaces: true });
  expect(config).toMatchObject({ name: "alpha" });
  expect(config.node_id).not.toBe(former?.id);
  const listed = await world.api("GET", "/api/org/acme/nodes/");
  expect(listed).toMatchObject([{ name: "alpha", groups: ["web"], state: "active" }]);
  expect(await world.api("GET", "/api/org/acme/nodes/?revoked=true")).toMatchObject([
    { id: former?.id, groups: ["web"], revoke_reason: "its machine registers again" },
  ]);
});

test("--replace that was killed after the revocation goes on, with the groups of the former node", async () => {
  await world.register();
  const [former] = await nodes();
  const path = `/api/org/acme/nodes/${former?.id}/`;
  await world.api("PATCH", path, { groups: ["web"] });
  rmSync(join(world.root, "acme"), { recursive: true });
  await world.api("DELETE", path);
  await world.register({ credential: { accessToken: world.owner }, replaces: true });
  expect(await world.api("GET", "/api/org/acme/nodes/")).toMatchObject([{ name: "alpha", groups: ["web"] }]);
});

test("--replace gives a node that was revoked long ago no groups", async () => {
  await world.register();
  const [former] = await nodes();
  await world.api("PATCH", `/api/org/acme/nodes/${former?.id}/`, { groups: ["web"] });
  rmSync(join(world.root, "acme"), { recursive: true });
  await world.api("DELETE", `/api/org/acme/nodes/${former?.id}/`);
  await world.server.db.write((tx) => tx.run("UPDATE nodes SET revoked_at = revoked_at - 7200000"));
  await world.register({ credential: { accessToken: world.owner }, replaces: true });
  expect(await world.api("GET", "/api/org/acme/nodes/")).toMatchObject([{ name: "alpha", groups: [] }]);
});

test("--replace finds its node behind more nodes than a page holds", async () => {
  for (let at = 0; at < 3; at++)
    await world.api("POST", "/api/org/acme/nodes/", { name: `alpha-${at}`, groups: [] });
  await world.register();
  rmSync(join(world.root, "acme"), { recursive: true });
  const { fetch } = world.system;
  Object.assign(world.system, {
    fetch: (url: string, init?: Parameters<typeof fetch>[1]) =>
      fetch(url.replace("page_size=1000", "page_size=2"), init),
  });
  await world.register({ credential: { accessToken: world.owner }, replaces: true });
  expect((await nodes()).map(({ name }) => name)).toContain("alpha");
});

test("--replace without a former node registers as usual", async () => {
  await world.register({ credential: { accessToken: world.owner }, replaces: true });
  expect((await nodes()).map(({ name }) => name)).toEqual(["alpha"]);
});

test("--replace with a registration token is refused before anything is sent", async () => {
  const { status, stderr } = await registerByCommand(world, ["--replace"]);
  expect([status, stderr]).toEqual([
    2,
    expect.stringContaining("--replace needs the rights of an administrator"),
  ]);
  expect(await nodes()).toEqual([]);
});
