// One organization whose files are damaged, beside one that is whole: the commands go on with the other, say one line of
// the damage, and `register --force` and `unregister` always mend it.

import { afterEach, beforeEach, expect, test } from "bun:test";
import { cpSync, existsSync, lstatSync, mkdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { listOrganizations } from "../../src/node/files/list-organizations.ts";
import { openOrganization, readCredentials, writeCredentials } from "../../src/node/files/organizations.ts";
import { readModes } from "../../src/node/enroll/services.ts";
import { makeNodeWorld, registerByCommand, type NodeWorld } from "../support/node.ts";

let world: NodeWorld;
const pathOf = (...names: string[]) => join(world.root, "acme", ...names);

beforeEach(async () => {
  world = await makeNodeWorld();
  await world.register();
  await world.server.organization("whole", "10.78.0.0/16");
  // The other organization is a copy with its own name: it answers no question to a control plane, but has all files.
  cpSync(pathOf(), join(world.root, "whole"), { recursive: true, dereference: true });
  const { config } = openOrganization(world.root, "acme");
  const own = JSON.stringify({ ...config, org_slug: "whole", network: "10.78.0.0/16" });
  writeFileSync(join(world.root, "whole", "node-config.json"), own);
  const credentials = readCredentials(pathOf());
  writeCredentials(join(world.root, "whole"), { ...credentials, org_slug: "whole" });
});

afterEach(() => world[Symbol.asyncDispose]());

const config = "node-config.json";
const damages: [string, (path: string) => void][] = [
  ["an empty file", (path) => writeFileSync(path, "")],
  ["garbage", (path) => writeFileSync(path, "\u0000\u0001 no JSON at all")],
  ["truncated JSON", (path) => writeFileSync(path, '{"schema":1,"node_id":3,"name":"al')],
  ["another program's JSON", (path) => writeFileSync(path, '{"schema":2,"node_id":"x","mode":"fast"}')],
  ["a directory", (path) => mkdirSync(join(path, "deep"), { recursive: true })],
  ["a link that leads nowhere", (path) => symlinkSync("nowhere/node-config.json", path)],
];

function damage(name: string, how: (path: string) => void): void {
  rmSync(pathOf(name), { recursive: true, force: true });
  how(pathOf(name));
}

for (const [what, how] of damages) {
  test(`status shows one bad line for ${what} in place of ${config}`, async () => {
    damage(config, how);
    const { status, stdout, json } = await world.agent(["status", "--json"]);
    expect(status).toBe(0);
    expect(json).toMatchObject({
      teams: [
        { team: "acme", message: expect.stringContaining("register --force") },
        { team: "whole", name: "alpha" },
      ],
    });
    expect(stdout).toContain("node-config.json");
    const lines = (await world.agent(["status"])).stdout.split("\n");
    expect(lines.filter((line) => line.startsWith("whole ")).length).toBe(1);
  });

  test(`other commands go on with ${what} in place of ${config}`, async () => {
    damage(config, how);
    const logs = await world.agent(["logs"]);
    expect(logs.stderr).toContain("acme: ");
    expect(logs.json ?? logs.stdout).toBeDefined();
    const doctor = await world.agent(["doctor", "--json"]);
    const checks: unknown = doctor.json;
    expect(checks).toMatchObject({ ok: false });
    expect(doctor.stdout.match(/"org_slug":"acme"/g)).toHaveLength(1);
    expect(doctor.stdout).toContain('"id":"collisions","verdict":"');
    expect((await world.agent(["check-port", "45871"])).status).toBe(0);
    for (const command of ["checkin", "check-auth", "sync-config"]) {
      const planned = await world.agent([command, "--dry-run"]);
      expect(planned.stderr).toContain("acme: ");
      if (command !== "sync-config")
        expect([planned.status, planned.stdout]).toMatchObject([0, expect.stringContaining("whole")]);
    }
    expect(readModes(world.root)).toContainEqual({ slug: "whole", mode: "server" });
  });

  test(`register --force mends ${what} in place of ${config}, and keeps mode and keys`, async () => {
    const before = openOrganization(world.root, "acme").config;
    damage(config, how);
    expect((await registerByCommand(world)).status).not.toBe(0);
    const words = [
      "register",
      "--api-base",
      "https://control.example",
      "--org-slug",
      "acme",
      "--node-name",
      "alpha",
    ];
    const { status } = await world.agent(
      [...words, "--force", "--no-start", "--registration-token-file", "-"],
      {
        stdin: `${await world.token()}\n`,
      },
    );
    expect(status).toBe(0);
    const { config: mended } = openOrganization(world.root, "acme");
    expect(mended).toMatchObject({ node_id: before.node_id, mode: "server", ip_address: before.ip_address });
  });

  test(`unregister removes an organization with ${what} in place of ${config}`, async () => {
    damage(config, how);
    expect((await world.agent(["unregister", "--org-slug", "acme", "--dry-run"])).status).toBe(0);
    const { status, stderr } = await world.agent(["unregister", "--org-slug", "acme"]);
    expect([status, stderr]).toMatchObject([0, expect.stringContaining("agent admin node delete acme ")]);
    expect(existsSync(pathOf())).toBe(false);
    expect(listOrganizations(world.root)).toEqual(["whole"]);
  });
}

const others = [
  "host.key",
  "node.key",
  "host.crt",
  "ca.crt",
  "config.yml",
  "credentials.json",
  "orders.json",
  "generations",
  "current",
];
for (const name of others) {
  for (const [what, how] of damages) {
    if (name === "generations" && what === "a directory") continue;
    test(`unregister and a new registration work with ${what} in place of ${name}`, async () => {
      damage(name, how);
      expect((await world.agent(["status"])).stdout).toContain("whole");
      const forced = await registerByCommand(world, ["--force"]);
      // A node whose key is gone is another one to the control plane, until an administrator deletes the former.
      if (name.endsWith(".key")) expect(forced.stderr).toMatch(/name|registered already/);
      else expect(forced.status).toBe(0);
      damage(name, how);
      expect((await world.agent(["unregister", "--org-slug", "acme"])).status).toBe(0);
      expect(existsSync(pathOf())).toBe(false);
    });
  }
}

test("commands fail if no organization can be opened, and name each", async () => {
  for (const name of ["acme", "whole"]) writeFileSync(join(world.root, name, config), "garbage");
  for (const words of [["logs"], ["checkin", "--dry-run"], ["check-auth", "--dry-run"]]) {
    const { status, stderr } = await world.agent(words);
    expect([words, status]).toEqual([words, 78]);
    expect(stderr).toMatch(/whole: .*\n.*acme\/node-config.json is damaged/);
  }
});

test("unregister says so where nothing tells which node it was", async () => {
  for (const name of [config, "credentials.json", "generations", "current"])
    damage(name, (path) => writeFileSync(path, ""));
  const { status, stderr, json } = await world.agent(["unregister", "--org-slug", "acme", "--json"]);
  expect([status, json]).toMatchObject([0, { node_id: null, deleted: false }]);
  expect(stderr).toContain("admin node list acme");
});

test("unregister names a command that finds the node where only its number is left, and it could not be deleted", async () => {
  for (const name of [config, "node-config.copy.json", "generations", "current"])
    damage(name, (path) => writeFileSync(path, ""));
  world.system.fetch = () => Promise.reject(new Error("refused"));
  const { status, stderr, json } = await world.agent(["unregister", "--org-slug", "acme", "--json"]);
  expect([status, json]).toMatchObject([0, { node_id: 1, deleted: false }]);
  expect(stderr).toContain("the node with the number 1 by `agent admin node list acme --json`");
  expect(stderr).not.toContain("node delete acme 1");
});

test("directories that have no organization's name, or a copy of another's files, are none", async () => {
  for (const name of ["acme.bak", "acme~", ".git", "UPPER", "acme old"])
    cpSync(pathOf(), join(world.root, name), { recursive: true });
  mkdirSync(join(world.root, "letsencrypt"));
  writeFileSync(join(world.root, "letsencrypt", "options.conf"), "x");
  writeFileSync(join(world.root, "notes.txt"), "x");
  expect(listOrganizations(world.root)).toEqual(["acme", "whole"]);
  const { stdout } = await world.agent(["status"]);
  expect(stdout).toContain("of 2 organizations running");
  cpSync(pathOf(), join(world.root, "acme-bak"), { recursive: true });
  const { json } = await world.agent(["status", "--json"]);
  expect(json).toMatchObject({
    teams: [
      { team: "acme", name: "alpha" },
      { team: "acme-bak", message: expect.stringContaining('to the organization "acme"') },
      { team: "whole" },
    ],
  });
  expect(lstatSync(join(world.root, "acme-bak")).isDirectory()).toBe(true);
});

test("another organization may be registered beside a damaged one, with a fixed port", async () => {
  damage("config.yml", (path) => writeFileSync(path, "{{{ not YAML"));
  rmSync(join(world.root, "whole"), { recursive: true });
  const wishes = ["--is-lighthouse", "--public-ip", "203.0.113.7", "--dry-run"];
  const words = [
    "register",
    "--api-base",
    "https://control.example",
    "--org-slug",
    "third",
    "--no-start",
    ...wishes,
  ];
  expect((await world.agent(words)).status).toBe(0);
});
