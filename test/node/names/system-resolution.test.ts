// Rules of Windows and files of macOS, as they are written. The real registry is in test/e2e/windows.test.ts.

import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { makeNrpt, nrptRules } from "../../../src/node/names/nrpt-rules.ts";
import { makeResolverFiles } from "../../../src/node/names/resolver-files.ts";
import type { Registry, RegistryValues } from "../../../src/platform/windows/registry.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

const zone = (slug: string, domains = [`${slug}.internal`, "77.10.in-addr.arpa"]) => ({
  slug,
  addresses: [],
  domains,
});
const acme = zone("acme");

describe("rules of Windows", () => {
  const local = String.raw`SYSTEM\CurrentControlSet\Services\Dnscache\Parameters\DnsPolicyConfig`;
  const policy = String.raw`SOFTWARE\Policies\Microsoft\Windows NT\DNSClient\DnsPolicyConfig`;
  let keys: Map<string, RegistryValues>;
  let announced: boolean[];
  let now = 0;
  const registry: Registry = {
    keysIn(path) {
      const below = [...keys.keys()].filter((key) => key.startsWith(`${path}\\`));
      return keys.has(path) || below.length > 0 ? below.map((key) => key.slice(path.length + 1)) : undefined;
    },
    read: (path, names) =>
      Object.fromEntries(Object.entries(keys.get(path) ?? {}).filter(([name]) => names.includes(name))),
    write: (path, values) => void keys.set(path, { ...keys.get(path), ...values }),
    remove: (path) => void keys.delete(path),
    announce: (inPolicy) => void announced.push(inPolicy),
  };
  const nrpt = () => makeNrpt({ registry, host: "127.0.0.9", monotonic: () => now });
  const rule = {
    Version: 2,
    Name: [".acme.internal", ".77.10.in-addr.arpa"],
    GenericDNSServers: "127.0.0.9",
    ConfigOptions: 8,
  };
  const foreign = { Name: [".corp.example"], GenericDNSServers: "10.0.0.1", ConfigOptions: 8, Version: 2 };

  beforeEach(() => {
    keys = new Map([[`${local}\\{foreign}`, foreign]]);
    announced = [];
    now = 0;
  });

  test("one rule has 50 domains at most, and each domain once", () => {
    const rules = nrptRules([...Array.from({ length: 101 }, (_, at) => `d${at}.example`), "d1.example"], "h");
    expect([...rules.values()].map(({ Name }) => (Name as string[]).length)).toEqual([50, 50, 1]);
  });

  test("are among the machine's own; those of others stay, also at the end", async () => {
    const links = nrpt();
    expect(await links.keep([acme])).toEqual({
      way: "nrpt",
      links: [{ slug: "acme", state: "served" }],
      in_policy: false,
    });
    expect(keys.get(`${local}\\overlay-agent-1`)).toEqual(rule);
    expect([keys.size, announced]).toEqual([2, [false]]);
    links.close();
    expect([...keys]).toEqual([[`${local}\\{foreign}`, foreign]]);
  });

  test("of two organizations stand side by side, and one goes with its organization", async () => {
    const links = nrpt();
    const other = zone("other", ["other.internal", "77.10.in-addr.arpa"]);
    await links.keep([acme, other]);
    const namesOf = () => keys.get(`${local}\\overlay-agent-1`)?.["Name"];
    expect(namesOf()).toEqual([".acme.internal", ".77.10.in-addr.arpa", ".other.internal"]);
    await links.keep([other]);
    expect(namesOf()).toEqual([".other.internal", ".77.10.in-addr.arpa"]);
    await links.keep([]);
    expect(keys.size).toBe(1);
  });

  test("are in the group policy too as long as it has the table, which stays", async () => {
    keys.set(policy, {});
    keys.set(`${policy}\\{foreign}`, foreign);
    const links = nrpt();
    expect(await links.keep([acme])).toMatchObject({ way: "nrpt", in_policy: true });
    expect(keys.get(`${policy}\\overlay-agent-1`)).toEqual(rule);
    expect(announced).toEqual([true]);
    expect(links.without("the port is taken")).toEqual({ way: "none", reason: "the port is taken" });
    expect([...keys.keys()]).toEqual([`${local}\\{foreign}`, policy, `${policy}\\{foreign}`]);
  });

  test("what a killed process left is replaced at the next start", async () => {
    keys.set(`${local}\\overlay-agent-1`, { ...rule, GenericDNSServers: "127.0.0.1" });
    keys.set(`${local}\\overlay-agent-2`, rule);
    await nrpt().keep([acme]);
    expect(keys.get(`${local}\\overlay-agent-1`)).toEqual(rule);
    expect(keys.has(`${local}\\overlay-agent-2`)).toBe(false);
    expect(announced).toEqual([false]);
  });

  test("come back when another program removes them; if it goes on, the state says so", async () => {
    const links = nrpt();
    await links.keep([acme]);
    const states = [];
    for (let round = 0; round < 4; round++) {
      keys.delete(`${local}\\overlay-agent-1`);
      now += 2000;
      const way = await links.keep([acme]);
      states.push("links" in way ? way.links[0]?.state : way.way);
      expect(keys.has(`${local}\\overlay-agent-1`)).toBe(true);
    }
    expect(states).toEqual(["served", "served", "disputed", "disputed"]);
    now += 2000;
    expect(await links.keep([acme])).toMatchObject({ links: [{ state: "served" }] });
  });

  test("a registry that refuses is a reason, and the next look tries again", async () => {
    const refusing = { ...registry, write: () => expect.unreachable("Windows error 5") };
    const links = makeNrpt({ registry: refusing, host: "127.0.0.9", monotonic: () => now });
    expect(await links.keep([acme])).toMatchObject({
      way: "none",
      reason: expect.stringContaining("Windows error 5"),
    });
  });
});

describe("files of macOS", () => {
  let directory: ReturnType<typeof temporaryDirectory>;
  let path: string;
  let now = 0;
  const files = () =>
    makeResolverFiles({ directory: path, server: { host: "127.0.0.1", port: 5399 }, monotonic: () => now });
  const read = (name: string) => readFileSync(join(path, name), "utf8");

  beforeEach(() => {
    directory = temporaryDirectory();
    path = join(directory.path, "resolver");
    now = 0;
  });
  afterEach(() => directory[Symbol.dispose]());

  test("one for each domain, and none is left at the end", async () => {
    const links = files();
    expect(await links.keep([acme])).toEqual({
      way: "resolver_files",
      links: [{ slug: "acme", state: "served" }],
    });
    expect(readdirSync(path).toSorted()).toEqual(["77.10.in-addr.arpa", "acme.internal"]);
    expect(read("acme.internal")).toMatch(/^# Written by .*\nnameserver 127\.0\.0\.1\nport 5399\n$/);
    expect(readdirSync(directory.path)).toEqual(["resolver"]);
    await links.keep([zone("other", ["other.internal"])]);
    expect(readdirSync(path)).toEqual(["other.internal"]);
    links.close();
    expect(readdirSync(path)).toEqual([]);
  });

  test("a file or link of another program is never changed, and the state names it", async () => {
    mkdirSync(path);
    writeFileSync(join(path, "acme.internal"), "nameserver 10.0.0.1\n");
    writeFileSync(join(path, "theirs"), "");
    symlinkSync("theirs", join(path, "other.internal"));
    const links = files();
    expect(await links.keep([acme, zone("other", ["other.internal"])])).toMatchObject({
      links: [
        { slug: "acme", state: "refused", reason: expect.stringContaining("acme.internal") },
        { slug: "other", state: "refused" },
      ],
    });
    expect(read("77.10.in-addr.arpa")).toContain("127.0.0.1");
    links.close();
    expect(readdirSync(path).toSorted()).toEqual(["acme.internal", "other.internal", "theirs"]);
    expect([read("acme.internal"), read("theirs")]).toEqual(["nameserver 10.0.0.1\n", ""]);
  });

  test("what a killed process left is replaced or removed by the next one", async () => {
    await files().keep([acme]);
    writeFileSync(join(path, "acme.internal"), read("acme.internal").replace("5399", "5398"));
    await files().keep([zone("acme", ["acme.internal"])]);
    expect(readdirSync(path)).toEqual(["acme.internal"]);
    expect(read("acme.internal")).toContain("port 5399");
  });

  test("a removed file comes back; without a place for files, names have a reason", async () => {
    const links = files();
    await links.keep([acme]);
    links.close();
    await links.keep([acme]);
    expect(existsSync(join(path, "acme.internal"))).toBe(true);
    path = join(directory.path, "resolver/acme.internal");
    expect(await files().keep([acme])).toMatchObject({ way: "none" });
  });
});
