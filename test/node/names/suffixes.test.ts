// Names in another domain than `.internal`: only where root allows it, for one organization, and never one that hides what the
// machine needs.

import { afterEach, beforeEach, expect, test } from "bun:test";
import { cpSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { readHosts, writeHosts } from "../../../src/node/files/hosts.ts";
import type { Organization } from "../../../src/node/files/organizations.ts";
import {
  readPermissions,
  writePermissions,
  writeAllowedSuffixes,
} from "../../../src/node/files/permissions.ts";
import { hostsLines } from "../../../src/node/names/hosts-lines.ts";
import { readNameRecords } from "../../../src/node/names/name-records.ts";
import { makeNamesReader } from "../../../src/node/names/names-reader.ts";
import { indexNames } from "../../../src/node/names/name-index.ts";
import { makeNodeWorld, type NodeWorld } from "../../support/node.ts";

const suffix = "corp.example";
let world: NodeWorld;
let organization: Organization;
let ip: string;
const send = (text: string | undefined, directory = organization.directory) =>
  writeHosts(directory, {
    schema: 1,
    version: 1,
    view: "all",
    nodes: [{ id: 3, name: "10", ip }],
    aliases: [{ id: 1, name: "db", node_id: 3 }],
    ...(text === undefined ? {} : { suffix: text }),
  });
/** The reason why the suffix is not served, or the domains of the organization. */
const state = async (slug = "acme") => {
  const { zones } = await readNameRecords(world.root);
  const zone = zones.find((each) => each.slug === slug);
  return zone?.suffix?.reason ?? zone?.domains.filter((each) => !each.endsWith(".arpa")).join(" ");
};
const run = (...words: string[]) =>
  // Root, so that a test by another user finds the same.
  world.agent(["names", ...words]);

beforeEach(async () => {
  world = await makeNodeWorld();
  Object.assign(world.system, { isRoot: true });
  organization = await world.register();
  ip = organization.config.ip_address ?? "";
  send(suffix);
});
afterEach(() => world[Symbol.asyncDispose]());

test("are served only after root allowed exactly this domain, and until root ends it", async () => {
  expect(await state()).toBe("root has not allowed it: sudo agent names allow corp.example");
  writeAllowedSuffixes(organization.directory, ["example.org", "a.corp.example"]);
  expect(await state()).toContain("root has not allowed it");
  expect((await run("allow", suffix)).status).toBe(0);
  expect(await state()).toBe("acme.internal corp.example");
  const { names } = await readNameRecords(world.root);
  expect(hostsLines(names, new Set()).lines).toEqual([
    `${ip} n-10.acme.internal 10.acme.internal n-10.corp.example 10.corp.example`,
    `${ip} db.acme.internal db.corp.example`,
  ]);
  const listed = await run();
  expect(listed.stderr).toContain("Names of acme also end in .corp.example");
  expect((await run("disallow", suffix)).status).toBe(0);
  expect(await state()).toContain("root has not allowed it");
  expect((await run("--json")).json).toMatchObject({ suffixes: [{ suffix, served: false }] });
  expect((await run("disallow", suffix)).status).toBe(1);
});

test("follow the permission in the resolver, with NXDOMAIN for names that do not exist", async () => {
  const reader = makeNamesReader(world.root);
  const find = async (name: string) => {
    const { names, zones } = await reader.read();
    const index = indexNames(names, zones);
    return [index.zoneOf(name), index.find(name)?.addresses];
  };
  expect(await find("n-10.corp.example")).toEqual([undefined, undefined]);
  writeAllowedSuffixes(organization.directory, [suffix]);
  expect(await find("n-10.corp.example")).toEqual([suffix, [ip]]);
  expect(await find("other.corp.example")).toEqual([suffix, undefined]);
  expect(await find("corp.example")).toEqual([suffix, []]);
  expect(await find("corp.example.org")).toEqual([undefined, undefined]);
  writeAllowedSuffixes(organization.directory, []);
  expect(await find("n-10.corp.example")).toEqual([undefined, undefined]);
});

test("are refused for a public suffix, and for hosts that the machine needs, whatever root allows", async () => {
  const host = new URL(
    JSON.parse(readFileSync(join(organization.directory, "credentials.json"), "utf8")).api_base,
  ).hostname;
  const config = join(organization.directory, "config.yml");
  writeFileSync(
    config,
    `${readFileSync(config, "utf8")}\nstatic_host_map: { 10.77.0.1: ["hub.nodes.example:4242"] }\n`.replace(
      /^static_host_map: \{\}$/m,
      "",
    ),
  );
  for (const [wrong, why] of [
    ["co.uk", "public suffix"],
    ["x.internal", "meaning of their own"],
    [host, host],
    ["nodes.example", "hub.nodes.example"],
  ] as const) {
    const { status, stderr } = await run("allow", wrong);
    expect([wrong, status, stderr]).toEqual([wrong, 1, expect.stringContaining(why)]);
    // By an editor.
    writeAllowedSuffixes(organization.directory, [wrong]);
    send(wrong);
    expect(await state()).toContain(why);
  }
  for (const wrong of ["com", "a\u001b[31m.example", "10.0.0.1"]) {
    send(wrong);
    expect(await state()).toBe("it is no domain of two labels or more");
    expect((await run("allow", wrong)).status).toBe(2);
  }
  send("");
  expect(await state()).toBe("acme.internal");
});

test("belong to one organization of the machine", async () => {
  const other = join(world.root, "other");
  cpSync(organization.directory, other, { recursive: true });
  const both = await run("allow", suffix);
  expect([both.status, both.stderr]).toEqual([2, expect.stringContaining("--org-slug")]);
  expect((await run("allow", suffix, "--org-slug", "other")).status).toBe(0);
  expect([await state("other"), await state("acme")]).toEqual([
    "other.internal corp.example",
    expect.stringContaining("root has not allowed it"),
  ]);
  for (const taken of [suffix, "a.corp.example"]) {
    const { status, stderr } = await run("allow", taken, "--org-slug", "acme");
    expect([status, stderr]).toEqual([1, expect.stringContaining("allowed for the organization other")]);
  }
  // Without --org-slug, the organization that sends it.
  send("nodes.example", other);
  expect((await run("allow", "nodes.example")).status).toBe(0);
  expect(readPermissions(other).name_suffixes).toEqual([suffix, "nodes.example"]);
  expect((await run("allow", suffix, "--org-slug", "nothing")).status).toBe(4);
});

test("leave the permitted routes as they are, and the reverse", () => {
  const { directory } = organization;
  writePermissions(directory, { routes: ["0.0.0.0/0"] });
  writeAllowedSuffixes(directory, [suffix]);
  expect([readPermissions(directory).routes, readPermissions(directory).name_suffixes]).toEqual([
    ["0.0.0.0/0"],
    [suffix],
  ]);
  writePermissions(directory, { routes: [] });
  expect([readPermissions(directory).routes, readPermissions(directory).name_suffixes]).toEqual([
    [],
    [suffix],
  ]);
});

test("are sent by the control plane with a check-in, and with --dry-run nothing is allowed", async () => {
  await world.api("PATCH", "/api/org/acme/", { name_suffix: "nodes.example" });
  await world.agent(["check-auth", "--all"]);
  expect(readHosts(organization.directory)?.suffix).toBe("nodes.example");
  const planned = await run("allow", "nodes.example", "--dry-run");
  expect([planned.status, planned.stdout]).toEqual([0, expect.stringContaining("permissions.json")]);
  expect(readPermissions(organization.directory).name_suffixes).toEqual([]);
  expect((await run("permit", suffix)).status).toBe(2);
});

test("a damaged permissions.json costs this domain alone, and says so", async () => {
  writeFileSync(join(organization.directory, "permissions.json"), "{");
  expect(await state()).toContain("permissions.json");
  expect((await readNameRecords(world.root)).names).toHaveLength(2);
});
