// File modes do not depend on the umask of a service: public files are readable by all, secrets by the owner only.

import { afterEach, beforeEach, expect, test } from "bun:test";
import { chmodSync, mkdirSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { makeDirectory } from "../../../src/base/files.ts";
import { currentGeneration, generationFiles } from "../../../src/node/files/generations.ts";
import { makeNodeWorld, registerByCommand, type NodeWorld } from "../../support/node.ts";

let world: NodeWorld;
let formerUmask: number;
beforeEach(async () => {
  world = await makeNodeWorld();
  formerUmask = process.umask(0o022);
});
afterEach(async () => {
  process.umask(formerUmask);
  await world[Symbol.asyncDispose]();
});

const inside = (name: string) => join(world.root, "acme", name);
const mode = (path: string) => (statSync(path).mode & 0o777).toString(8);
const overrides = (level: string) => writeFileSync(inside("overrides.yml"), `logging:\n  level: ${level}\n`);

function expectOpen(generation: string): void {
  expect(currentGeneration(join(world.root, "acme"))).toBe(generation);
  for (const name of [".", "generations", "current/."])
    expect(`${name} ${mode(inside(name))}`).toBe(`${name} 755`);
  for (const name of generationFiles) expect(`${name} ${mode(inside(name))}`).toBe(`${name} 644`);
  for (const name of ["host.key", "node.key", "credentials.json"]) {
    expect(`${name} ${mode(inside(name))}`).toBe(`${name} 600`);
  }
}

test("a configuration that a service with umask 077 applies is readable by all users", async () => {
  await registerByCommand(world);
  process.umask(0o077);
  overrides("debug");
  expect(await world.agent(["sync-config"])).toMatchObject({ status: 0 });
  expectOpen("2");
});

test("directories that an older version made private are readable after the next synchronization", async () => {
  await registerByCommand(world);
  for (const name of ["generations", "generations/1"]) chmodSync(inside(name), 0o700);
  expect(await world.agent(["sync-config"])).toMatchObject({ status: 0 });
  expectOpen("1");
});

test("new directories get the given mode, and existing ones keep theirs", () => {
  process.umask(0o077);
  const present = join(world.root, "present");
  mkdirSync(present);
  makeDirectory(join(present, "a/b/"), 0o755);
  makeDirectory(present, 0o755);
  expect(["", "a", "a/b"].map((name) => mode(join(present, name)))).toEqual(["700", "755", "755"]);
});
