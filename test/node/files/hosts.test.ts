// hosts.json: how it is read, and what names and addresses in it mean.

import { describe, expect, test } from "bun:test";
import { mkdirSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { hostsPath, indexHosts, readHosts, writeHosts } from "../../../src/node/files/hosts.ts";
import { maxNames, type HostsFile } from "../../../src/protocol/names.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

const beta = { id: 3, name: "beta", ip: "10.77.0.3", ip6: "fd00:77::3" };
const gateway = { id: 4, name: "gateway", ip: "10.77.0.4" };
const ten = { id: 5, name: "10", ip: "10.77.0.5" };
const hosts: HostsFile = {
  schema: 1,
  version: 7,
  view: "all",
  nodes: [beta, gateway, ten],
  aliases: [
    { id: 1, name: "db", node_id: 3 },
    { id: 2, name: "printer", node_id: 4, address: "192.168.1.9" },
    { id: 3, name: "lost", node_id: 99 },
    { id: 4, name: "beta", node_id: 4 },
    { id: 5, name: "n-10", node_id: 4 },
  ],
};

describe("the file", () => {
  test("is read as it was written, public, and nothing else is left beside it", () => {
    using directory = temporaryDirectory();
    expect(readHosts(directory.path)).toBeUndefined();
    writeHosts(directory.path, hosts);
    expect(readHosts(directory.path)).toEqual(hosts);
    expect(statSync(hostsPath(directory.path)).mode & 0o777).toBe(0o644);
    expect(readdirSync(directory.path)).toEqual(["hosts.json"]);
  });

  test.each([
    ["empty", ""],
    ["cut off", JSON.stringify(hosts).slice(0, 90)],
    ["a list", "[]"],
    ["of another schema", JSON.stringify({ ...hosts, schema: 2 })],
    ["with a name that is no label", JSON.stringify({ ...hosts, nodes: [{ ...beta, name: "google.com" }] })],
    ["with a text for an address", JSON.stringify({ ...hosts, nodes: [{ ...beta, ip: "beta" }] })],
    [
      "with an alias to a text",
      JSON.stringify({ ...hosts, aliases: [{ id: 1, name: "db", node_id: 3, address: "x" }] }),
    ],
    ["too long", JSON.stringify({ ...hosts, nodes: Array.from({ length: maxNames + 1 }, () => gateway) })],
  ])("counts as missing if it is %s", (_, text) => {
    using directory = temporaryDirectory();
    writeFileSync(hostsPath(directory.path), text);
    expect(readHosts(directory.path)).toBeUndefined();
  });

  test("counts as missing if it is a directory", () => {
    using directory = temporaryDirectory();
    mkdirSync(join(directory.path, "hosts.json"));
    expect(readHosts(directory.path)).toBeUndefined();
  });
});

describe("a name", () => {
  const { byName, byAddress } = indexHosts(hosts, "acme");

  test.each(["beta", "BETA", "beta.acme.internal", "beta.acme.internal.", "Beta.Acme.Internal"])(
    "%s is the node",
    (name) => {
      expect(byName(name)).toEqual({ node: beta, addresses: ["10.77.0.3", "fd00:77::3"] });
    },
  );

  test.each([
    "gamma",
    "beta.other.internal",
    "beta.acme",
    "x.beta.acme.internal",
    "acme.internal",
    "",
    ".",
    "lost",
  ])("%p is unknown", (name) => {
    expect(byName(name)).toBeUndefined();
  });

  test("that is an alias has the addresses of its node, or its own", () => {
    expect(byName("db")).toMatchObject({ node: beta, addresses: ["10.77.0.3", "fd00:77::3"] });
    expect(byName("printer.acme.internal")).toMatchObject({ node: gateway, addresses: ["192.168.1.9"] });
  });

  test("that begins with a digit has a form that is a host label, which no alias gets", () => {
    expect(byName("n-10")).toEqual({ node: ten, addresses: ["10.77.0.5"] });
    expect(byName("10")).toEqual({ node: ten, addresses: ["10.77.0.5"] });
  });

  test("of a node comes before the stated form of another", () => {
    const real = { id: 9, name: "n-10", ip: "10.77.0.9" };
    const both = indexHosts({ nodes: [ten, real], aliases: [] }, "acme");
    expect(both.byName("n-10")?.node).toEqual(real);
  });

  test("is found by any spelling of an address", () => {
    expect(byAddress("10.77.0.3")?.node).toEqual(beta);
    expect(byAddress("FD00:77:0::3")?.node).toEqual(beta);
    expect(byAddress("192.168.1.9")).toMatchObject({ node: gateway, alias: { name: "printer" } });
    expect(byAddress("192.168.1.8")).toBeUndefined();
    expect(byAddress("")).toBeUndefined();
  });
});
