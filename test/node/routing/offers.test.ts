// What root offers to route, as it is written, and the rules that come of it.

import { expect, test } from "bun:test";
import { advertisedNow } from "../../../src/node/routing/offers.ts";
import { parsePermissions } from "../../../src/node/files/granted/permission-flags.ts";
import { writePermissions } from "../../../src/node/files/permissions.ts";
import { emptyMachine } from "../../support/machine.ts";
import { makeNodeWorld } from "../../support/node.ts";
import { tableBody } from "../../../src/node/routing/router-table.ts";
import { parseTcpPeers } from "../../../src/platform/network/tcp-peers.ts";
import { parseOffer } from "../../../src/protocol/routing/advertised.ts";
import { formatOffer } from "../../../src/protocol/routing/format-offer.ts";

test("offers are read and written back; what is no offer is refused", () => {
  const offers = {
    "192.168.7.0/24": { network: "192.168.7.0/24" },
    "192.168.7.0/24+masquerade": { network: "192.168.7.0/24", masquerade: true },
    "10.201.7.0/24=192.168.7.0/24@192.168.7.1+masquerade": {
      network: "10.201.7.0/24",
      behind: "192.168.7.0/24",
      watch: "192.168.7.1",
      masquerade: true,
    },
    "fd00:7::/64": { network: "fd00:7::/64" },
  };
  for (const [text, offer] of Object.entries(offers)) {
    expect(parseOffer(text)).toEqual(offer);
    expect(formatOffer(offer)).toBe(text);
  }
  for (const text of [
    "",
    "0.0.0.0/0",
    "192.168.7.1/24",
    "10.201.7.0/24=192.168.0.0/16",
    "fd00:7::/64=fd00:8::/64",
    "192.168.7.0/24@192.168.8.1",
    "10.201.7.0/24=192.168.7.0/24@10.201.7.1",
    "192.168.7.0/24+other",
  ])
    expect([text, parseOffer(text)]).toEqual([text, undefined]);
});

test("rules are about the tunnel, the offered networks and interfaces that forwarded nothing before, and nothing else", () => {
  const offer = { network: "10.201.7.0/24", behind: "192.168.7.0/24", masquerade: true };
  const plain = { network: "192.168.8.0/24" };
  const filter = {
    tunnel: "acme",
    tunnels: ["acme", "other"],
    overlays: ["10.77.0.0/16"],
    watched: [
      { offer, device: "eth1", from: undefined },
      { offer: plain, device: "eth2", from: undefined },
    ],
    down: new Set([plain.network]),
    closed: [],
    opened: ["acme", "eth1"],
    opens6: false,
  };
  const body = tableBody(filter);
  expect(body).toContain('iifname "eth1" oifname != { "acme", "other" } drop');
  expect(body).not.toContain('iifname "eth2"');
  expect(body).toContain('iifname "acme" ip daddr != { 192.168.7.0/24, 192.168.8.0/24 } drop');
  expect(body).toContain("dnat ip prefix to ip daddr map { 10.201.7.0/24 : 192.168.7.0/24 }");
  expect(body).toContain("snat ip prefix to ip saddr map { 192.168.7.0/24 : 10.201.7.0/24 }");
  expect(body).toContain('ip saddr { 10.77.0.0/16 } oifname "eth1" ip daddr 192.168.7.0/24 masquerade');
  expect(body.match(/echo-request/g)).toHaveLength(1);
  const bare = { ...filter, watched: filter.watched.slice(1), down: new Set<string>(), opened: [] };
  expect(tableBody(bare)).toBe("");
  // Root has ended its offer, and the certificate still has the network.
  expect(tableBody({ ...bare, watched: [], closed: ["192.168.9.0/24"] })).toMatch(/echo-request .* drop/);
  const offer6 = { network: "fd00:7::/64", masquerade: true };
  const six = {
    ...bare,
    overlays: ["10.77.0.0/16", "fd77::/64"],
    watched: [...bare.watched, { offer: offer6, device: "eth3", from: undefined }],
    opens6: true,
  };
  const body6 = tableBody(six);
  expect(body6).toContain('iifname "acme" ip6 daddr != { fd00:7::/64 } drop');
  expect(body6).toContain(
    'meta nfproto ipv6 iifname != { "acme", "other" } oifname != { "acme", "other" } drop',
  );
  expect(body6).toContain('meta nfproto ipv6 oifname "acme" iifname != { "eth3" } drop');
  expect(body6).toContain('ip6 saddr { fd77::/64 } oifname "eth3" ip6 daddr fd00:7::/64 masquerade');
  expect(body6).not.toContain("ip daddr");
});

test("hosts of open TCP connections are read from the kernel's table", () => {
  const table = `  sl  local_address rem_address   st tx_queue
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000
   1: 0200A8C0:C350 0A07A8C0:1E61 01 00000000:00000000
   2: 0200A8C0:C351 0B07A8C0:1E61 06 00000000:00000000
   3: 0000000000000000FFFF00000200A8C0:C352 0000000000000000FFFF00000C07A8C0:1E61 08 00000000:00000000
   4: junk
`;
  expect(parseTcpPeers(table)).toEqual(["192.168.7.10", "192.168.7.12"]);
  expect(parseTcpPeers("")).toEqual([]);
});

test("a network that overlaps the overlay is not offered: the flag is refused, and one from the registration left out", async () => {
  await using world = await makeNodeWorld();
  const { directory } = await world.register();
  const offer = (text: string, slug = "acme") =>
    parsePermissions((flag) => (flag === "advertise" ? text : undefined), { configRoot: world.root, slug });
  for (const text of ["10.77.0.0/16", "10.0.0.0/8", "10.77.3.0/24", "10.201.3.0/24=10.77.3.0/24"])
    expect(() => offer(`192.168.7.0/24,${text}`)).toThrow(
      `--advertise: ${text} overlaps the overlay's own network 10.77.0.0/16`,
    );
  expect(offer("192.168.7.0/24").advertise).toEqual(["192.168.7.0/24"]);
  // At a registration the overlay is not known yet.
  writePermissions(directory, offer("192.168.7.0/24,10.77.3.0/24", "later"));
  expect(advertisedNow(directory)?.map(({ network }) => network)).toEqual(["192.168.7.0/24"]);
  const { stdout } = await world.agent(["doctor"]);
  expect(stdout).toContain(
    "the offer 10.77.3.0/24 is left out: it overlaps the overlay's own network 10.77.0.0/16",
  );
});

test("an offered network that is not near the machine is named, and offered all the same", async () => {
  await using world = await makeNodeWorld();
  await world.register();
  const machine = {
    ...emptyMachine,
    addresses: [{ device: "eth0", address: "192.168.7.9/24" }],
    routes: [{ device: "eth1", network: "172.16.0.0/12" }],
  };
  world.system.machineState = async () => machine;
  const offers = "192.168.7.0/24,172.16.3.0/24,10.201.7.0/24=192.168.8.0/24,192.168.50.0/24";
  const { status, stderr } = await world.agent(["sync-config", "--advertise", offers]);
  expect(status).toBe(0);
  expect(
    [...stderr.matchAll(/This machine is not in (\S+) and has no route to it/g)].map(([, name]) => name),
  ).toEqual(["192.168.8.0/24", "192.168.50.0/24"]);
  expect(stderr).toContain("An administrator approves");
});
