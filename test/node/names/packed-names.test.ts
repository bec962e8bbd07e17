// Names in one block of bytes: found as in a list, and kept in a file for the next start.

import { expect, test } from "bun:test";
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { writeHosts } from "../../../src/node/files/hosts.ts";
import { makeNamesReader, prepareNames } from "../../../src/node/names/names-reader.ts";
import type { NameRecord } from "../../../src/node/names/name-records.ts";
import { addressKey, openNames, packNames } from "../../../src/node/names/packed-names.ts";
import { readPrepared } from "../../../src/node/names/prepared-names.ts";
import { writeOrganization } from "../../support/organization-engines.ts";
import { makeRandom } from "../../support/random.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

const keyOf = (address: string) => addressKey(address) ?? expect.unreachable();

test("each of 600 names and its addresses are found, and nothing else", () => {
  const random = makeRandom(7);
  const names = Array.from({ length: 600 }, (_, at): NameRecord => {
    const slug = ["acme", "ümlaut", "other"][at % 3] ?? "";
    const label = `${Math.floor(random() * 1e9).toString(36)}-${at}`;
    const all = [`n-${label}.${slug}.internal`, `${label}.${slug}.internal`];
    const addresses = [`10.${at % 3}.${at >> 8}.${at & 255}`, `fd00::${at.toString(16)}:1`];
    return { kind: "node", slug, node: label, names: all.slice(at % 2), addresses };
  });
  const packed = openNames(packNames(names));
  for (const { names: own, addresses } of names) {
    for (const name of own) expect(packed.addressesOf(name)).toEqual(addresses);
    for (const address of addresses) expect(packed.namesAt(keyOf(address))).toEqual([own[0] ?? ""]);
    expect(packed.addressesOf(`${own[0]}x`)).toBeUndefined();
  }
  for (const name of ["", "n", "zzz", "\u{ffff}", "p0a000001"])
    expect(packed.addressesOf(name)).toBeUndefined();
  expect(packed.namesAt(keyOf("10.9.0.1"))).toEqual([]);
  expect(packed.list(() => true, 10_000)).toEqual(names);
  expect(packed.list((slug) => slug === "other", 5).map(({ node }) => node)).toEqual(
    names.filter(({ slug }) => slug === "other").flatMap(({ node }, at) => (at < 5 ? [node] : [])),
  );
  expect(openNames(packNames([])).addressesOf("a")).toBeUndefined();
});

/** A machine with so many names that they are prepared in a file. */
function manyNames() {
  const directory = temporaryDirectory();
  const root = join(directory.path, "root");
  const path = join(directory.path, "names.packed");
  writeOrganization(root, "acme", {});
  const write = (first: string) => {
    const nodes = Array.from({ length: 5500 }, (_, at) => ({
      id: at + 1,
      name: at === 0 ? first : `${"long-".repeat(10)}name-${at}`,
      ip: `10.77.${(at + 256) >> 8}.${at & 255}`,
    }));
    writeHosts(join(root, "acme"), { schema: 1, version: 1, view: "all", nodes, aliases: [] });
  };
  write("beta");
  let runs = 0;
  const disk = { isFull: false };
  const preparer = {
    read: () => readPrepared(path),
    async run() {
      runs++;
      if (!disk.isFull) await prepareNames(path, root);
      return !disk.isFull;
    },
  };
  const start = () => makeNamesReader(root, preparer);
  return { path, disk, write, start, runs: () => runs, [Symbol.dispose]: () => directory[Symbol.dispose]() };
}

test("many names are prepared once, and again after a change or for a damaged file", async () => {
  using machine = manyNames();
  const reader = machine.start();
  const known = await reader.read();
  expect(known.zones.map(({ slug }) => slug)).toEqual(["acme"]);
  expect(known.names.addressesOf("beta.acme.internal")).toEqual(["10.77.1.0"]);
  expect(statSync(machine.path).mode & 0o777).toBe(0o600);
  expect(await reader.read()).toBe(known);
  expect((await machine.start().read()).names.namesAt(keyOf("10.77.1.0"))).toEqual(["beta.acme.internal"]);
  expect(machine.runs()).toBe(1);

  machine.write("gamma");
  const changed = await reader.read();
  expect(changed.names.addressesOf("beta.acme.internal")).toBeUndefined();
  expect(changed.names.addressesOf("gamma.acme.internal")).toEqual(["10.77.1.0"]);
  expect(machine.runs()).toBe(2);

  const bytes = readFileSync(machine.path);
  bytes.writeUInt8(bytes.readUInt8(bytes.length - 9) ^ 1, bytes.length - 9);
  writeFileSync(machine.path, bytes);
  expect((await machine.start().read()).names.addressesOf("gamma.acme.internal")).toEqual(["10.77.1.0"]);
  expect(machine.runs()).toBe(3);

  machine.disk.isFull = true;
  machine.write("delta");
  const present = await reader.read();
  expect(present.names.addressesOf("delta.acme.internal")).toEqual(["10.77.1.0"]);
  expect(await reader.read()).toBe(present);
  expect(machine.runs()).toBe(4);
}, 30_000);
