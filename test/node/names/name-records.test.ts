// Which names programs of a machine get: no control plane can name foreign addresses, or take over foreign names.

import { describe, expect, test } from "bun:test";
import { hostsLines, maxHostsNames } from "../../../src/node/names/hosts-lines.ts";
import { recordsIn, type NameRecord } from "../../../src/node/names/name-records.ts";
import type { HostsFile } from "../../../src/protocol/names.ts";

const networks = ["10.77.0.0/16", "fd00:77::/64"];
const beta = { id: 3, name: "beta", ip: "10.77.0.3", ip6: "fd00:77::3" };
const none = new Set<string>();
const linesOf = (hosts: Pick<HostsFile, "nodes" | "aliases">, lighthouses = none) =>
  hostsLines(recordsIn(hosts, { slug: "acme", networks, lighthouses }), none).lines;

describe("names", () => {
  test("of a node are its full names, with both addresses", () => {
    expect(linesOf({ nodes: [beta, { id: 4, name: "10", ip: "10.77.0.4" }], aliases: [] })).toEqual([
      "10.77.0.3 beta.acme.internal",
      "fd00:77::3 beta.acme.internal",
      "10.77.0.4 n-10.acme.internal 10.acme.internal",
    ]);
  });

  test("of aliases stand behind nodes, and never take the name of one", () => {
    const aliases = [
      { id: 1, name: "db", node_id: 3 },
      { id: 2, name: "printer", node_id: 3, address: "192.168.1.9" },
      { id: 3, name: "beta", node_id: 3, address: "192.168.1.10" },
      { id: 4, name: "lost", node_id: 99 },
    ];
    expect(linesOf({ nodes: [beta], aliases })).toEqual([
      "10.77.0.3 beta.acme.internal",
      "fd00:77::3 beta.acme.internal",
      "10.77.0.3 db.acme.internal",
      "fd00:77::3 db.acme.internal",
      "192.168.1.9 printer.acme.internal",
    ]);
  });

  test("that programs look up by themselves are left out, as nodes and as aliases", () => {
    const nodes = [beta, { id: 4, name: "wpad", ip: "10.77.0.4" }];
    const aliases = [{ id: 1, name: "isatap", node_id: 3 }];
    expect(linesOf({ nodes, aliases })).toEqual([
      "10.77.0.3 beta.acme.internal",
      "fd00:77::3 beta.acme.internal",
    ]);
  });

  test("of nodes outside the overlay's networks are left out", () => {
    const nodes = [
      { ...beta, ip: "8.8.8.8" },
      { id: 4, name: "evil", ip: "127.0.0.1" },
    ];
    expect(linesOf({ nodes, aliases: [] })).toEqual(["fd00:77::3 beta.acme.internal"]);
  });

  test.each(["127.0.0.1", "169.254.169.254", "0.0.0.0", "224.0.0.1", "::1", "::ffff:127.0.0.1", "fe80::1"])(
    "of %s behind a router are left out",
    (address) => {
      const aliases = [{ id: 1, name: "evil", node_id: 3, address }];
      expect(linesOf({ nodes: [beta], aliases })).toHaveLength(2);
    },
  );

  test("that other lines of the file have are left to them", () => {
    const nodes = [{ id: 4, name: "10", ip: "10.77.0.4" }, beta];
    const names = recordsIn({ nodes, aliases: [] }, { slug: "acme", networks });
    expect(hostsLines(names, new Set(["beta.acme.internal", "n-10.acme.internal"])).lines).toEqual([
      "10.77.0.4 10.acme.internal",
    ]);
  });

  test("above the maximum: lighthouses and aliases stay, nodes are left out and counted", () => {
    const name = (id: number, kind: NameRecord["kind"]): NameRecord => ({
      names: [`x${id}.acme.internal`],
      addresses: [`10.77.${id >> 8}.${id & 255}`],
      slug: "acme",
      node: `x${id}`,
      kind,
    });
    const many = Array.from({ length: maxHostsNames + 5 }, (_, at) => name(at, "node"));
    const { lines, leftOut } = hostsLines([...many, name(5000, "alias"), name(5001, "lighthouse")], none);
    expect(lines).toHaveLength(maxHostsNames);
    expect(leftOut).toBe(7);
    expect(lines[0]).toContain("x5001.");
    expect(lines.at(-1)).toContain("x5000.");
  });

  test("short names are the preferred ones, each of one organization, and never those of other lines", () => {
    const nodes = [
      beta,
      { id: 4, name: "10", ip: "10.77.0.4" },
      { id: 5, name: "localhost", ip: "10.77.0.5" },
      { id: 7, name: "laptop", ip: "10.77.0.7" },
    ];
    const web = { id: 6, name: "web", ip: "10.77.0.6" };
    const names = ["acme", "other"].flatMap((slug) =>
      recordsIn({ nodes: [...nodes, web], aliases: [] }, { slug, networks: networks.slice(0, 1) }),
    );
    // The name of the machine itself, without a line in the file.
    expect(hostsLines(names, new Set(["web"]), true, "Laptop.lan").lines).toEqual([
      "10.77.0.3 beta.acme.internal beta",
      "10.77.0.4 n-10.acme.internal 10.acme.internal n-10",
      "10.77.0.5 localhost.acme.internal",
      "10.77.0.7 laptop.acme.internal",
      "10.77.0.6 web.acme.internal",
      "10.77.0.3 beta.other.internal",
      "10.77.0.4 n-10.other.internal 10.other.internal",
      "10.77.0.5 localhost.other.internal",
      "10.77.0.7 laptop.other.internal",
      "10.77.0.6 web.other.internal",
    ]);
  });

  test("no short name is one that a system has for itself", () => {
    const own = ["localdomain", "broadcasthost", "ip6-localhost", "ip6-loopback", "ip6-allnodes", "ip6-x"];
    const nodes = own.map((name, at) => ({ id: at, name, ip: `10.77.0.${at + 1}` }));
    const names = recordsIn({ nodes, aliases: [] }, { slug: "acme", networks: networks.slice(0, 1) });
    expect(hostsLines(names, none, true).lines).toEqual(
      own.map((name, at) => `10.77.0.${at + 1} ${name}.acme.internal`),
    );
  });
});
