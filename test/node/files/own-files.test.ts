// Files of an organization that others than root can change: not obeyed, and named by doctor with the line to type.

import { afterEach, beforeEach, expect, test } from "bun:test";
import {
  chmodSync,
  chownSync,
  lchownSync,
  mkdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { makeGate } from "../../../src/daemon/start-checks.ts";
import { readPermissions } from "../../../src/node/files/permissions.ts";
import { openOrganization } from "../../../src/node/files/organizations.ts";
import { rejection } from "../../pki/thrown.ts";
import { runSync } from "../../support/debian.ts";
import { asRoot } from "../../support/engines.ts";
import { makeNodeWorld, registerByCommand, type NodeWorld } from "../../support/node.ts";

const stranger = 12_345;
const sshd = "sshd:\n  enabled: true\n  listen: 127.0.0.1:2222\n";

asRoot("files of an organization", () => {
  let world: NodeWorld;
  beforeEach(async () => {
    world = await makeNodeWorld();
    await world.register();
  });
  afterEach(() => world[Symbol.asyncDispose]());
  const of = (name: string) => join(world.root, "acme", name);
  const configuration = () => readFileSync(of("config.yml"), "utf8");
  const sync = () => world.agent(["sync-config"]);
  const doctor = async () => (await world.agent(["doctor"])).stdout;

  test.each([
    ["owned by another user", (path: string) => chownSync(path, stranger, 0), "chown root: "],
    ["that every user can write", (path: string) => chmodSync(path, 0o666), "chmod go-w "],
    [
      "that a group can write",
      (path: string) => {
        chownSync(path, 0, 50_000);
        chmodSync(path, 0o664);
      },
      "chmod go-w ",
    ],
  ] as const)("an overrides.yml %s is not obeyed, and doctor says what to type", async (_, open, remedy) => {
    const path = of("overrides.yml");
    writeFileSync(path, sshd, { mode: 0o644 });
    open(path);
    const before = configuration();
    const { status, stderr } = await sync();
    expect([status, stderr]).toEqual([78, expect.stringContaining(path)]);
    expect(stderr).toContain(`then run: ${remedy}${path}`);
    expect(configuration()).toBe(before);
    const text = await doctor();
    expect(text).toMatch(new RegExp(`FAIL {2}acme files .*${path}`));
    expect(text).toContain(`→ ${remedy}${path}`);
    chownSync(path, 0, 0);
    chmodSync(path, 0o644);
    expect((await sync()).status).toBe(0);
    expect(configuration()).toContain("127.0.0.1:2222");
    expect(await doctor()).not.toMatch(/FAIL {2}acme files/);
  });

  test("what a link leads to counts, too", async () => {
    const elsewhere = join(world.root, "..", "elsewhere");
    mkdirSync(elsewhere);
    chmodSync(elsewhere, 0o755);
    writeFileSync(join(elsewhere, "own.yml"), sshd);
    chmodSync(join(elsewhere, "own.yml"), 0o644);
    symlinkSync(join(elsewhere, "own.yml"), of("overrides.yml"));
    lchownSync(of("overrides.yml"), 0, 0);
    // A home whose owner is root by then would be worse than the link: the file itself takes the place of the link.
    const remedy = `install -m 0644 ${join(elsewhere, "own.yml")} ${of("overrides.yml")}`;
    for (const path of [join(elsewhere, "own.yml"), elsewhere]) {
      chownSync(path, stranger, 0);
      const { stdout, stderr } = await sync();
      expect(stdout).toContain(`${path} belongs to user ${stranger}`);
      expect(stderr).toContain(`then run: ${remedy}\n`);
      chownSync(path, 0, 0);
    }
    expect((await sync()).status).toBe(0);
    chownSync(elsewhere, stranger, 0);
    runSync(["/bin/sh", "-c", remedy]);
    expect(statSync(elsewhere).uid).toBe(stranger);
    expect((await sync()).status).toBe(0);
  });

  test("registering again does not make such a file root's own", async () => {
    writeFileSync(of("overrides.yml"), sshd);
    chownSync(of("overrides.yml"), stranger, 0);
    const { stderr } = await registerByCommand(world, ["--force"]);
    expect(stderr).toContain(`${of("overrides.yml")} belongs to user ${stranger}`);
    expect(configuration()).not.toContain("127.0.0.1:2222");
  });

  test("a directory of another user is not written at all, and no engine starts from it", async () => {
    for (const [place, path] of [
      ["directory", of("")],
      ["generations", of("generations")],
      ["configuration root", world.root],
    ] as const) {
      const trimmed = path.replace(/\/$/, "");
      chownSync(trimmed, stranger, 0);
      const { status, stderr } = await sync();
      expect([place, status]).toEqual([place, 78]);
      expect(stderr).toContain(`chown root: ${trimmed}`);
      expect(await doctor()).toContain(`→ Check the content, then run: chown root: ${trimmed}`);
      expect(() => openOrganization(world.root, "acme")).toThrow("Only root may");
      chownSync(trimmed, 0, 0);
    }
    expect((await sync()).status).toBe(0);
  });

  test("an allowed route counts only if root wrote it", () => {
    const path = of("permissions.json");
    writeFileSync(path, '{"routes":["0.0.0.0/0"]}\n');
    expect(readPermissions(of("")).routes).toEqual(["0.0.0.0/0"]);
    chownSync(path, stranger, 0);
    expect(() => readPermissions(of("")).routes).toThrow("belongs to user");
  });

  test.each([
    ["update-run", "update-order.json"],
    ["drill-run", "drill.json"],
  ])("%s carries out no order that another user can change", async (verb, name) => {
    writeFileSync(of(name), "{}");
    chownSync(of(name), stranger, 0);
    const { status, stderr } = await world.agent([
      verb,
      "acme",
      "--state-db-path",
      join(world.root, "../state.db"),
    ]);
    expect([status, stderr]).toEqual([78, expect.stringContaining(`chown root: ${of(name)}`)]);
  });

  test("the daemon starts no engine on keys that another user can change", async () => {
    const gate = makeGate({ ...world.settings, configRoot: world.root }, world.system, { debug: () => {} });
    chownSync(of("host.key"), stranger, 0);
    const error = await rejection(gate.admit(openOrganization(world.root, "acme")));
    expect(error.message).toContain("host.key belongs to user");
  });

  test("in server mode no command starts the engine with such files", async () => {
    writeFileSync(of("overrides.yml"), sshd);
    chownSync(of("overrides.yml"), stranger, 0);
    for (const verb of ["start", "restart"]) {
      const { status, stderr } = await world.agent([verb, "acme"]);
      expect([verb, status]).toEqual([verb, 78]);
      expect(stderr).toContain(`chown root: ${of("overrides.yml")}`);
    }
    expect((await world.agent(["stop", "acme"])).stderr).not.toContain("chown");
  });

  test("unknown files in the directory, and a sticky directory above it, do not matter", async () => {
    writeFileSync(of("notes.txt"), "mine");
    chownSync(of("notes.txt"), stranger, 0);
    chmodSync(world.root, 0o1777);
    expect((await sync()).status).toBe(0);
    expect(await doctor()).not.toMatch(/FAIL {2}acme files/);
  });
});
