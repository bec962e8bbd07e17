// How a node keeps hosts.json: from the answers of the control plane, and whatever happens to the file.

import { afterEach, beforeEach, expect, test } from "bun:test";
import { mkdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { applyNames, makeNamesKeeper, type NamesKeeper } from "../../../src/node/contact/fetch-names.ts";
import { hostsPath, readHosts, writeHosts } from "../../../src/node/files/hosts.ts";
import type { HostsFile } from "../../../src/protocol/names.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

const alpha = { id: 1, name: "alpha", ip: "10.77.0.1" };
const beta = { id: 2, name: "beta", ip: "10.77.0.2" };
const gamma = { id: 3, name: "gamma", ip: "10.77.0.3" };
const db = { id: 1, name: "db", node_id: 2 };
const hosts: HostsFile = { schema: 1, version: 5, view: "all", nodes: [alpha, beta], aliases: [db] };

let directory: ReturnType<typeof temporaryDirectory>;
let warnings: string[];
let now: number;
let keeper: NamesKeeper;
const make = () => {
  const warn = (text: string, more?: object) => void warnings.push(`${text} ${JSON.stringify(more)}`);
  const log = { debug() {}, info() {}, warn, error() {} };
  return makeNamesKeeper({ slug: "acme", directory: directory.path }, { system: { now: () => now }, log });
};
const never = async () => {
  throw new Error("asked again");
};

beforeEach(() => {
  directory = temporaryDirectory();
  [warnings, now] = [[], 1_000_000];
  keeper = make();
});
afterEach(() => directory[Symbol.dispose]());

test("without a file, everything is asked for; then what the file has", () => {
  expect(keeper.request()).toEqual({ version: 0, view: "", suffix: "", peers: "" });
  writeHosts(directory.path, hosts);
  expect(make().request()).toEqual({ version: 5, view: "all", suffix: "", peers: "" });
});

test("a whole list in several answers is written once, sorted, when it is complete", async () => {
  writeHosts(directory.path, { ...hosts, view: "rules-1" });
  keeper.request();
  const asked: unknown[] = [];
  await keeper.addAnswer(
    { version: 7, view: "all", whole: true, more: true, nodes: [gamma], aliases: [db] },
    async (names) => {
      asked.push(names);
      expect(readHosts(directory.path)?.view).toBe("rules-1");
      return { version: 9, view: "all", nodes: [beta], aliases: [{ id: 2, name: "lost", node_id: 8 }] };
    },
  );
  expect(asked).toEqual([{ version: 7, view: "all", part: true, peers: "" }]);
  expect(readHosts(directory.path)).toEqual({
    schema: 1,
    version: 9,
    view: "all",
    nodes: [beta, gamma],
    aliases: [db],
  });
  expect(keeper.request()).toEqual({ version: 9, view: "all", suffix: "", peers: "" });
});

test("a list that breaks off in the middle leaves the file as it was", async () => {
  writeHosts(directory.path, hosts);
  keeper.request();
  await keeper.addAnswer({ version: 7, view: "all", whole: true, more: true, nodes: [gamma] }, never);
  expect(readHosts(directory.path)).toEqual(hosts);
  expect(warnings).toHaveLength(1);
});

test("an answer without names, or with none that changed, does not touch the file", async () => {
  writeHosts(directory.path, hosts);
  const before = statSync(hostsPath(directory.path)).mtimeMs;
  await keeper.addAnswer(undefined, never);
  expect(statSync(hostsPath(directory.path)).mtimeMs).toBe(before);
  expect(keeper.request()).toEqual({ version: 5, view: "all", suffix: "", peers: "" });
});

test.each([
  ["deleted", () => rmSync(hostsPath(directory.path))],
  ["damaged", () => writeFileSync(hostsPath(directory.path), '{"schema":1')],
  [
    "replaced by the list of other rights",
    () => writeHosts(directory.path, { ...hosts, view: "rules-1", nodes: [] }),
  ],
  ["set back", () => writeHosts(directory.path, { ...hosts, version: 2, nodes: [] })],
])("differences are not applied to a file that was %s meanwhile: all is asked for", async (_, act) => {
  writeHosts(directory.path, hosts);
  keeper.request();
  act();
  const before = readHosts(directory.path);
  await keeper.addAnswer({ version: 6, view: "all", nodes: [gamma] }, never);
  expect(readHosts(directory.path)).toEqual(before);
  expect(keeper.request()).toEqual({
    version: before?.version ?? 0,
    view: before?.view ?? "",
    suffix: "",
    peers: "",
  });
  expect(warnings).toEqual([]);
});

test.each([
  ["no names", "names"],
  ["a name that is no label", { version: 6, view: "all", nodes: [{ ...gamma, name: "google.com" }] }],
  ["an address that is none", { version: 6, view: "all", nodes: [{ ...gamma, ip: "10.77.0" }] }],
  ["too much", { version: 6, view: "all", nodes: Array.from({ length: 5001 }, () => gamma) }],
])("an answer that holds %s changes nothing, and is asked for again after a minute", async (_, answer) => {
  writeHosts(directory.path, hosts);
  keeper.request();
  await keeper.addAnswer(answer, never);
  expect(readHosts(directory.path)).toEqual(hosts);
  expect(warnings).toEqual([expect.stringContaining("trying again in a minute")]);
  expect(keeper.request()).toBeUndefined();
  now += 60_000;
  expect(keeper.request()).toEqual({ version: 5, view: "all", suffix: "", peers: "" });
  await keeper.addAnswer(answer, never);
  expect(warnings).toHaveLength(1);
});

test("a clock that is set back does not prolong the pause after a failure", async () => {
  keeper.request();
  await keeper.addAnswer("no names", never);
  expect(keeper.request()).toBeUndefined();
  now -= 86_400_000;
  expect(keeper.request()).toBeDefined();
});

test("a file that cannot be written is told once, and stays as it is", async () => {
  mkdirSync(hostsPath(directory.path));
  for (let round = 0; round < 3; round++) {
    keeper.request();
    await keeper.addAnswer({ version: 6, view: "all", whole: true, nodes: [gamma] }, never);
    now += 60_000;
  }
  expect(warnings).toEqual([expect.stringContaining("hosts.json")]);
});

test("a removed node takes its aliases with it; a removed and an added one may have one name", () => {
  const answer = { version: 6, view: "all", whole: false, more: false, aliases: [], removed_aliases: [] };
  expect(applyNames(hosts, { ...answer, nodes: [], removed_nodes: [2] })).toMatchObject({
    nodes: [alpha],
    aliases: [],
  });
  const renamed = { ...gamma, name: "beta" };
  expect(applyNames(hosts, { ...answer, nodes: [renamed], removed_nodes: [2, 99] })).toMatchObject({
    nodes: [alpha, renamed],
    version: 6,
  });
});

test("the other domain of names is kept until the control plane sends another one, also in a whole list", async () => {
  writeHosts(directory.path, hosts);
  keeper.request();
  await keeper.addAnswer({ version: 6, view: "all", suffix: "corp.example" }, never);
  expect(readHosts(directory.path)).toEqual({ ...hosts, version: 6, suffix: "corp.example" });
  expect(keeper.request()).toEqual({ version: 6, view: "all", suffix: "corp.example", peers: "" });
  expect(make().request()).toEqual({ version: 6, view: "all", suffix: "corp.example", peers: "" });
  await keeper.addAnswer({ version: 7, view: "all", whole: true, nodes: [alpha] }, never);
  expect(readHosts(directory.path)?.suffix).toBe("corp.example");
  await keeper.addAnswer({ version: 8, view: "all", suffix: "" }, never);
  expect(readHosts(directory.path)).not.toHaveProperty("suffix");
});

test("what a name server may tell whom is kept until the control plane sends another table, or none", async () => {
  const peers = { digest: "d1", classes: ["c1"], sees: ["1"] };
  const named = { ...beta, class: "c1" };
  writeHosts(directory.path, hosts);
  keeper.request();
  const asked: unknown[] = [];
  await keeper.addAnswer(
    { version: 6, view: "peers-1", whole: true, more: true, nodes: [alpha], peers },
    async (names) => {
      asked.push(names);
      return { version: 7, view: "peers-1", nodes: [named] };
    },
  );
  // The rest of the list is asked for as a name server, or it would be another list.
  expect(asked).toEqual([{ version: 6, view: "peers-1", part: true, peers: "d1" }]);
  expect(readHosts(directory.path)).toMatchObject({ nodes: [alpha, named], peers });
  expect(keeper.request()).toEqual({ version: 7, view: "peers-1", suffix: "", peers: "d1" });
  await keeper.addAnswer(
    { version: 8, view: "all", whole: true, nodes: [alpha], peers: { digest: "" } },
    never,
  );
  expect(readHosts(directory.path)).toEqual({
    schema: 1,
    version: 8,
    view: "all",
    nodes: [alpha],
    aliases: [],
  });
  expect(keeper.request()).toMatchObject({ peers: "" });
});
