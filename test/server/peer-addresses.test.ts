// Underlay addresses of peers, which nodes keep for the time without a lighthouse.

import { expect, test } from "bun:test";
import * as v from "valibot";
import { maxKeptPeers, PeerAddresses } from "../../src/protocol/path-report.ts";
import type { Organization } from "../../src/api/organizations.ts";
import { checkinOf, registerNode, type RegisteredNode } from "../support/nodes.ts";
import { useNumbered } from "../support/numbered.ts";
import type { TestServer } from "../support/server.ts";

let server: TestServer;
let org: Organization;
let admin: string;
useNumbered((made) => ({ server, org, admin } = made));

const call = (method: string, path: string, body?: unknown) =>
  server.send(method, `/api/org/${org.slug}/${path}`, {
    token: admin,
    ...(body === undefined ? {} : { body }),
  });
const join = (name: string, fields = {}) => registerNode(server, org, name, fields);
const lighthouse = () => join("lh", { is_lighthouse: true, public_ip: "192.0.2.1" });
async function report(node: RegisteredNode, places: Record<string, string>): Promise<void> {
  server.clock.ms += 30_000;
  const changed = Object.entries(places).map(([peer, remote]) => ({
    peer,
    path: "direct",
    remote,
    probe: "answers",
  }));
  expect(checkinOf(await node.checkin({ paths: { changed } })).paths).toBe("taken");
  await server.app.services.pathReports.stop();
  server.clock.ms += 11_000;
}
async function ask(node: RegisteredNode, since = 0, options = {}) {
  const { addresses } = checkinOf(await node.checkin({ addresses: { since } }, options));
  return v.parse(PeerAddresses, addresses);
}
const told = async (node: RegisteredNode, since?: number) =>
  Object.fromEntries((await ask(node, since)).peers.map(({ peer, remotes }) => [peer, remotes]));

test("a node gets what lighthouses report of its peers, then only what changed", async () => {
  const [lh, a, b, c] = [await lighthouse(), await join("a"), await join("b"), await join("c")];
  expect(await ask(a)).toMatchObject({ whole: true, peers: [] });
  await report(lh, { [b.ip]: "203.0.113.2:4001", [c.ip]: "203.0.113.3:4001" });
  expect(await told(a)).toEqual({ [b.ip]: ["203.0.113.2:4001"], [c.ip]: ["203.0.113.3:4001"] });
  expect(await told(b)).toEqual({ [c.ip]: ["203.0.113.3:4001"] });
  const { since } = await ask(a);
  expect(await ask(a, since)).toEqual({ since, whole: false, peers: [] });
  await report(lh, { [b.ip]: "203.0.113.2:4001", [c.ip]: "203.0.113.3:4002" });
  expect(await told(a, since)).toEqual({ [c.ip]: ["203.0.113.3:4002"] });
  // A node of an earlier version is told nothing.
  expect(checkinOf(await a.checkin({})).addresses).toBeUndefined();
});

test("a held check-in that asks is answered at once if there is something new", async () => {
  const [lh, a, b] = [await lighthouse(), await join("a"), await join("b")];
  await report(lh, { [b.ip]: "203.0.113.2:4001" });
  const { config_version } = checkinOf(await a.checkin());
  const began = performance.now();
  const answer = await a.checkin({ config_version, addresses: { since: 0 } }, { wait: 50 });
  expect(v.parse(PeerAddresses, checkinOf(answer).addresses).peers).toHaveLength(1);
  // Held, it would take 50 s.
  expect(performance.now() - began).toBeLessThan(30_000);
});

test("an address that an administrator entered is told, a hub's is in the configuration already", async () => {
  const [lh, a] = [await lighthouse(), await join("a")];
  const b = await join("b", { public_ip: "198.51.100.2" });
  expect(await told(a)).toEqual({ [b.ip]: ["198.51.100.2:4242"] });
  await report(lh, { [b.ip]: "203.0.113.2:4001" });
  expect(await told(a)).toEqual({ [b.ip]: ["198.51.100.2:4242", "203.0.113.2:4001"] });
});

test("only of peers that rules connect with the node, and never of one that is revoked", async () => {
  const [lh, a, b, c] = [await lighthouse(), await join("a"), await join("b"), await join("c")];
  const d = await join("d");
  const rules = v.parse(v.array(v.object({ id: v.number() })), (await call("GET", "firewall_rules/")).json);
  for (const { id } of rules) await call("DELETE", `firewall_rules/${id}/`);
  const tcp = { protocol: "tcp", ports: "22" };
  for (const rule of [
    { direction: "inbound", ...tcp, peer: { node: a.id }, target: { any: true } },
    { direction: "outbound", ...tcp, target: { node: a.id }, peer: { any: true } },
  ])
    expect((await call("POST", "firewall_rules/", rule)).status).toBe(201);
  await report(lh, Object.fromEntries([a, b, c, d].map(({ ip }, at) => [ip, `203.0.113.${at + 2}:4001`])));
  expect(Object.keys(await told(a))).toEqual([b.ip, c.ip, d.ip]);
  expect(Object.keys(await told(b))).toEqual([a.ip]);
  expect((await call("DELETE", `nodes/${b.id}/`)).status).toBe(204);
  expect((await call("DELETE", `nodes/${c.id}/`)).status).toBe(204);
  expect(Object.keys(await told(a))).toEqual([d.ip]);
});

test("another node's word counts only for an address from which the peer calls", async () => {
  const [, a, b, liar] = [await lighthouse(), await join("a"), await join("b"), await join("liar")];
  await b.checkin({}, { address: "203.0.113.2" });
  await report(liar, { [b.ip]: "198.51.100.9:53" });
  expect(await told(a)).toEqual({});
  await report(liar, { [b.ip]: "203.0.113.2:4001" });
  expect(await told(a)).toEqual({ [b.ip]: ["203.0.113.2:4001"] });
  // It has moved.
  await b.checkin({}, { address: "203.0.113.77" });
  expect(await told(a)).toEqual({});
});

test("a private address is told between nodes that call from private ones, and special ones never", async () => {
  const [lh, a, b, c] = [await lighthouse(), await join("a"), await join("b"), await join("c")];
  await report(lh, { [b.ip]: "10.1.2.3:4001", [c.ip]: "127.0.0.1:4001", [a.ip]: "224.0.0.1:1" });
  await b.checkin({}, { address: "10.1.2.3" });
  expect((await ask(a, 0, { address: "203.0.113.9" })).peers).toEqual([]);
  expect((await ask(a, 0, { address: "10.1.9.9" })).peers).toEqual([
    { peer: b.ip, remotes: ["10.1.2.3:4001"] },
  ]);
  expect((await ask(b, 0, { address: "10.1.2.3" })).peers).toEqual([]);
});

test("the answer has at most 256 peers", async () => {
  expect(maxKeptPeers).toBe(256);
  const schema = v.safeParse(PeerAddresses, {
    since: 1,
    peers: Array.from({ length: 257 }, (_, at) => ({
      peer: `10.77.1.${at % 250}`,
      remotes: ["203.0.113.2:1"],
    })),
  });
  expect(schema.success).toBe(false);
});
