// `--allow-updates` of the commands that take it: one organization of a machine has it, and engines come from where
// `agent overlay update` takes them.

import { afterEach, beforeEach, expect, test } from "bun:test";
import { cpSync, existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { permittedUpdates } from "../../../src/node/files/update-order.ts";
import { makeNodeWorld, registerByCommand, registerWords, type NodeWorld } from "../../support/node.ts";

let world: NodeWorld;
beforeEach(async () => {
  world = await makeNodeWorld();
});
afterEach(() => world[Symbol.asyncDispose]());

const allow = (slug: string, what: string, ...more: string[]) =>
  world.agent(["sync-config", "--org-slug", slug, "--allow-updates", what, ...more]);
const permitted = (slug: string) => permittedUpdates(join(world.root, slug));

test("a second organization is refused the updates, by each command and dry, until the first one's permission ends", async () => {
  await registerByCommand(world);
  expect((await allow("acme", "engine")).status).toBe(0);
  const beta = await world.server.organization("beta", "10.78.0.0/16");
  await world.server.join(beta, "owner@company.example", "owner");
  const made = await world.server.send("POST", "/api/org/beta/registration_tokens/", {
    token: world.owner,
    body: {},
  });
  const { token } = v.parse(v.object({ token: v.string() }), made.json);
  const second = registerWords.map((word) => (word === "acme" ? "beta" : word));
  await world.agent([...second, "--registration-token-file", "-", "--no-start"], { stdin: token });
  const others = registerWords.map((word) => (word === "acme" ? "gamma" : word));
  for (const dry of [[], ["--dry-run"]]) {
    const words = [...others, "--registration-token-file", "-", "--allow-updates", "agent", ...dry];
    for (const refused of [
      await allow("beta", "agent", ...dry),
      await world.agent(words, { stdin: "x\n" }),
    ]) {
      expect(refused).toMatchObject({ status: 1, stdout: "" });
      expect(refused.stderr).toContain("on this machine that is acme");
      expect(refused.stderr).toContain("agent sync-config --org-slug acme --allow-updates none");
    }
  }
  expect([permitted("acme"), existsSync(join(world.root, "beta/permissions.json"))]).toEqual([
    ["engine"],
    false,
  ]);
  await allow("acme", "agent,engine");
  expect(permitted("acme")).toEqual(["agent", "engine"]);
  await allow("acme", "none");
  expect((await allow("beta", "agent")).status).toBe(0);
  expect([permitted("acme"), permitted("beta")]).toEqual([[], ["agent"]]);
});

test("an interrupted registration takes no organization its updates", async () => {
  await registerByCommand(world);
  await allow("acme", "engine");
  cpSync(join(world.root, "acme"), join(world.root, ".acme.pending"), { recursive: true });
  expect(permitted("acme")).toEqual(["engine"]);
});

test("a mirror of engines is an address that a download takes", async () => {
  await registerByCommand(world);
  for (const url of ["http://192.0.2.1/x", "file:///etc/passwd", "ftp://mirror.example.org/", "mirror"]) {
    const { status, stderr } = await allow("acme", `engine=${url}`);
    expect({ url, status }).toEqual({ url, status: 2 });
    expect(stderr).toContain("engine=URL with the https:// address of a mirror");
  }
  for (const url of ["https://mirror.example.org/v{version}/", "http://127.0.0.1:8080/{version}/"]) {
    expect((await allow("acme", `engine=${url}`)).status).toBe(0);
    expect(readFileSync(join(world.root, "acme/permissions.json"), "utf8")).toContain(url);
  }
});

test("sync-config says which permissions it changed", async () => {
  await registerByCommand(world);
  expect((await allow("acme", "engine")).stdout).toBe(
    "acme: --allow-updates is now engine, was none\nacme: no other change (version 1)\n",
  );
  expect((await allow("acme", "engine")).stdout).toBe("acme: no change (version 1)\n");
  expect((await allow("acme", "none", "--json")).json).toMatchObject({
    organizations: [{ result: "same", permissions: ["allow-updates"] }],
  });
});
