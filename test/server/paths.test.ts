// Paths that nodes report: the latest state of each, for administrators, as long as the organization wants them.

import { expect, test } from "bun:test";
import * as v from "valibot";
import { maxPaths } from "../../src/protocol/path-report.ts";
import { writeMetrics } from "../../src/server/metrics/metrics.ts";
import { deleteEndedPaths } from "../../src/server/paths/path-reports.ts";
import { Path } from "../../src/api/paths/paths.ts";
import type { Organization } from "../../src/api/organizations.ts";
import { checkinOf, countOf, registerNode, type RegisteredNode } from "../support/nodes.ts";
import { useNumbered } from "../support/numbered.ts";
import type { TestServer } from "../support/server.ts";

let server: TestServer;
let org: Organization;
let admin: string;
useNumbered((made) => ({ server, org, admin } = made));

const send = (method: string, path: string, body?: unknown, token = admin) =>
  server.send(method, `/api/org/${org.slug}/${path}`, { token, ...(body === undefined ? {} : { body }) });
async function report(node: RegisteredNode, paths: unknown): Promise<string | undefined> {
  server.clock.ms += 30_000;
  const { paths: answered } = checkinOf(await node.checkin({ paths }));
  await server.app.services.pathReports.stop();
  return answered;
}
const list = async (path = "paths/") => v.parse(v.array(Path), (await send("GET", path)).json);
const direct = (peer: string, more = {}) => ({
  peer,
  path: "direct",
  remote: "192.0.2.7:4242",
  probe: "answers",
  rtt_ms: 12.5,
  loss: 0,
  ...more,
});
const relayed = (peer: string) => ({ peer, path: "relayed", relays: ["lh1"], probe: "broken", loss: 1 });

test("the list has the latest state of each path, with the names of both nodes", async () => {
  const [alpha, beta] = [await registerNode(server, org, "alpha"), await registerNode(server, org, "beta")];
  expect(await report(alpha, {})).toBe("taken");
  expect(await list()).toEqual([]);
  expect(await report(alpha, { whole: true, changed: [direct(beta.ip), relayed("10.77.9.9")] })).toBe(
    "taken",
  );
  expect(await list()).toEqual([
    {
      node: alpha.id,
      node_name: "alpha",
      peer: beta.id,
      peer_name: "beta",
      peer_address: beta.ip,
      path: "direct",
      remote: "192.0.2.7:4242",
      relays: [],
      relays_away: false,
      peer_away: true,
      probe: "answers",
      rtt_ms: 12.5,
      loss: 0,
      reported_at: expect.any(String),
    },
    expect.objectContaining({
      peer: null,
      peer_address: "10.77.9.9",
      relays: ["lh1"],
      rtt_ms: null,
      loss: 1,
    }),
  ]);
  await report(alpha, { changed: [direct(beta.ip, { probe: "broken", loss: 0.5 })], gone: ["10.77.9.9"] });
  expect(await list()).toMatchObject([{ peer_name: "beta", probe: "broken", loss: 0.5 }]);
  await report(beta, { changed: [direct(alpha.ip)] });
  expect(await list(`nodes/${beta.id}/peers/`)).toMatchObject([{ node_name: "beta", peer_name: "alpha" }]);
  await report(alpha, { whole: true, changed: [] });
  expect(await list(`nodes/${alpha.id}/peers/`)).toEqual([]);
});

test("a path over relays that are all away is said to be old, and counted", async () => {
  const alpha = await registerNode(server, org, "alpha");
  const [near, far] = [await registerNode(server, org, "near"), await registerNode(server, org, "far")];
  const by = (peer: string, ...relays: string[]) => direct(peer, { path: "relayed", relays });
  await far.checkin();
  server.clock.ms += 200_000;
  await near.checkin();
  await report(alpha, {
    changed: [
      by("10.77.1.1", far.ip),
      by("10.77.1.2", "far"),
      by("10.77.1.3", far.ip, near.ip),
      // It is not known which one carries it.
      by("10.77.1.4"),
      by("10.77.1.5", near.ip),
      direct("10.77.1.6"),
    ],
  });
  expect((await list()).map(({ relays_away }) => relays_away)).toEqual([
    true,
    true,
    false,
    false,
    false,
    false,
  ]);
  expect((await send("GET", "paths/counts/")).json).toEqual([
    { node: alpha.id, direct: 1, relayed: 5, broken: 0, relays_away: 2 },
  ]);
  await report(alpha, { changed: [direct(far.ip, { probe: "broken" }), direct(near.ip)] });
  // Of a peer that is away, nobody is told that the path is broken.
  const counted = async () => (await send("GET", `paths/counts/`)).json;
  expect(await counted()).toMatchObject([{ broken: 0, relays_away: 2 }]);
  const toPeers = async () => (await list()).filter(({ peer }) => peer !== null);
  expect((await toPeers()).map(({ peer_away }) => peer_away)).toEqual([false, true]);
  await far.checkin();
  expect(await counted()).toMatchObject([{ broken: 1, relays_away: 0 }]);
  expect((await toPeers()).map(({ peer_away }) => peer_away)).toEqual([false, false]);
});

test("the list can be filtered, and its pages link to each other with the filter", async () => {
  const alpha = await registerNode(server, org, "alpha");
  const beta = await registerNode(server, org, "beta");
  await report(alpha, { changed: [direct("10.77.1.1"), relayed("10.77.1.2"), relayed("10.77.1.3")] });
  await report(beta, { changed: [relayed("10.77.1.1")] });
  expect(await list("paths/?path=direct")).toMatchObject([{ peer_address: "10.77.1.1" }]);
  expect(await list("paths/?probe=broken&search=ALPHA")).toHaveLength(2);
  const page = await send("GET", "paths/?path=relayed&page_size=2");
  expect(page.headers.get("x-total-count")).toBe("3");
  expect(page.headers.get("link")).toContain("page=2&page_size=2&path=relayed");
  expect((await send("GET", "paths/?path=sideways")).status).toBe(400);
});

test("administrators see all paths, members those of their own nodes; and only a node itself reports its own", async () => {
  const alpha = await registerNode(server, org, "alpha");
  await report(alpha, { changed: [direct("10.77.1.1")] });
  const email = `member-of-${org.slug}@example.org`;
  const member = await server.person(email);
  await server.join(org, email, "member");
  const own = await registerNode(server, org, "laptop");
  await report(own, { changed: [direct(alpha.ip), relayed("10.77.9.9")] });
  const seen = async (path: string, token = member) => {
    const { status, json } = await send("GET", path, undefined, token);
    expect(status).toBe(200);
    return v.parse(v.array(Path), json);
  };
  expect(await seen("paths/")).toEqual([]);
  expect((await send("POST", `nodes/${own.id}/transfer/`, { owner: email })).status).toBe(200);
  // Without underlay addresses: they say where other people are.
  const shown = [
    { node_name: "laptop", peer_name: "alpha", path: "direct", remote: null, rtt_ms: 12.5 },
    { node_name: "laptop", peer_address: "10.77.9.9", path: "relayed", relays: ["lh1"] },
  ];
  expect(await seen("paths/")).toMatchObject(shown);
  expect(await seen(`nodes/${own.id}/peers/`)).toMatchObject(shown);
  expect(await seen("paths/?search=alpha")).toEqual([]);
  const counts = [{ node: own.id, direct: 1, relayed: 0, broken: 1, relays_away: 0 }];
  expect((await send("GET", "paths/counts/", undefined, member)).json).toEqual(counts);
  expect(await seen(`nodes/${own.id}/peers/`, admin)).toMatchObject([{ remote: "192.0.2.7:4242" }, {}]);
  expect(await seen(`nodes/${alpha.id}/peers/`)).toEqual([]);
  for (const path of ["paths/", `nodes/${alpha.id}/peers/`])
    expect((await send("GET", path, undefined, alpha.token)).status).toBe(403);
  expect((await send("POST", `nodes/${own.id}/transfer/`, { owner: null })).status).toBe(200);
  expect(await seen("paths/")).toEqual([]);
  const body = { version: "1", uptime: 1, paths: { whole: true } };
  expect(checkinOf(await send("POST", `nodes/${alpha.id}/checkin/`, body))).not.toHaveProperty("paths");
  expect(await list()).toHaveLength(3);
});

test("an organization that wants no reports gets none, and what it had is deleted", async () => {
  const alpha = await registerNode(server, org, "alpha");
  await report(alpha, { changed: [direct("10.77.1.1")] });
  expect((await send("PATCH", "", { path_reports: false })).status).toBe(200);
  expect(await list()).toEqual([]);
  expect(await report(alpha, { changed: [direct("10.77.1.1")] })).toBe("unwanted");
  expect(await report(alpha, {})).toBe("unwanted");
  expect(await list()).toEqual([]);
  await send("PATCH", "", { path_reports: true });
  expect(await report(alpha, { whole: true, changed: [direct("10.77.1.1")] })).toBe("taken");
  expect(await list()).toHaveLength(1);
});

test.each([
  ["names"],
  [{ changed: [direct("beta")] }],
  [{ changed: [direct("10.77.1.1", { path: "sideways" })] }],
  [{ changed: [direct("10.77.1.1", { loss: 2 })] }],
  [{ changed: [direct("10.77.1.1", { remote: "x".repeat(65) })] }],
  [{ changed: Array.from({ length: maxPaths + 1 }, () => direct("10.77.1.1")) }],
])("a report that is not valid is not stored, and the check-in is answered: %#", async (paths) => {
  const alpha = await registerNode(server, org, "alpha");
  expect(await report(alpha, paths)).toBe("unwanted");
  expect(await list()).toEqual([]);
});

test("a node that reports too often is told to wait", async () => {
  const alpha = await registerNode(server, org, "alpha");
  expect(await report(alpha, { changed: [direct("10.77.1.1")] })).toBe("taken");
  server.clock.ms += 9000;
  expect(checkinOf(await alpha.checkin({ paths: { gone: ["10.77.1.1"] } })).paths).toBe("later");
  server.clock.ms += 1000;
  expect(checkinOf(await alpha.checkin({ paths: { gone: ["10.77.1.1"] } })).paths).toBe("taken");
});

test("one organization cannot take the room of all while the database is slow", async () => {
  const { pathReports } = server.app.services;
  const other = await server.organization(`${org.slug}-other`, "10.88.0.0/16");
  const makeNodes = (orgId: number, count: number) =>
    server.db.write(async (tx) => {
      const ids: number[] = [];
      for (let at = 0; at < count; at++) {
        const sql = `INSERT INTO nodes (org_id, name, ip, state, created_at) VALUES ($1, $2, $3, 'active', 0) RETURNING id`;
        const ip = `10.9.${at >> 8}.${at & 255}`;
        ids.push(Number((await tx.get(sql, [orgId, `many-${at}`, ip]))?.["id"]));
      }
      return ids;
    });
  const [many, [one = 0]] = [await makeNodes(org.id, 300), await makeNodes(other.id, 1)];
  const peers = Array.from({ length: maxPaths }, (_, at) => `10.77.3.${at}`);
  const all = {
    changed: peers.map((peer) => direct(peer)),
    gone: peers.map((peer) => `${peer}0`.slice(0, 9)),
  };
  const { promise: slow, resolve: goOn } = Promise.withResolvers<void>();
  const writing = server.db.writeFor("rows", () => slow);
  const answers: string[] = [];
  for (const id of many) answers.push(await pathReports.take(org.id, id, all));
  expect(new Set(answers)).toEqual(new Set(["taken", "later"]));
  expect(answers.filter((each) => each === "taken").length).toBeLessThan(100);
  expect(await pathReports.take(other.id, one, { changed: [direct("10.77.1.1")] })).toBe("taken");
  goOn();
  await writing;
  await pathReports.stop();
  const stored = await server.db.all("SELECT node_id FROM paths WHERE org_id = $1 GROUP BY node_id", [
    org.id,
  ]);
  expect(stored).toHaveLength(answers.filter((each) => each === "taken").length);
  expect(await countOf(server, "SELECT count(*) AS n FROM paths WHERE org_id = $1", other.id)).toBe(1);
  expect(await pathReports.take(org.id, many.at(-1) ?? 0, all)).toBe("taken");
  await pathReports.stop();
}, 60_000);

test("a report is taken with a held check-in too", async () => {
  const alpha = await registerNode(server, org, "alpha");
  const answer = checkinOf(await alpha.checkin({ paths: { changed: [direct("10.77.1.1")] } }, { wait: 1 }));
  expect(answer.paths).toBe("taken");
  await server.app.services.pathReports.stop();
  expect(await list()).toHaveLength(1);
});

test("paths of revoked nodes are hidden at once and deleted later, and a node keeps its newest 200", async () => {
  const [alpha, beta] = [await registerNode(server, org, "alpha"), await registerNode(server, org, "beta")];
  await report(beta, { changed: [direct("10.77.1.1")] });
  await send("DELETE", `nodes/${beta.id}/`);
  expect(await list()).toEqual([]);
  const many = (net: number) => Array.from({ length: maxPaths }, (_, at) => direct(`10.77.${net}.${at}`));
  await report(alpha, { changed: many(1) });
  await report(alpha, { changed: many(2) });
  await deleteEndedPaths(server);
  const rows = await server.db.all("SELECT peer FROM paths WHERE org_id = $1", [org.id]);
  expect(rows).toHaveLength(maxPaths);
  expect(rows.every(({ peer }) => String(peer).startsWith("10.77.2."))).toBe(true);
});

test("the metrics have shares, broken pairs counted once, and round trips", async () => {
  const [alpha, beta] = [await registerNode(server, org, "alpha"), await registerNode(server, org, "beta")];
  await server.db.write((tx) => tx.run("UPDATE nodes SET ip6 = 'fd77::' || id WHERE org_id = $1", [org.id]));
  await report(alpha, { changed: [{ ...relayed(beta.ip), rtt_ms: 40 }, direct("10.77.1.1", { rtt_ms: 3 })] });
  // One side names the other by its IPv6 address.
  await report(beta, { changed: [relayed(`fd77::${alpha.id}`)] });
  const text = await writeMetrics(server.app.services);
  const value = (line: string) =>
    text
      .split("\n")
      .find((each) => each.startsWith(`overlay_agent_${line} `))
      ?.split(" ")[1];
  const labels = `organization="${org.slug}"`;
  expect(value(`paths{${labels},path="relayed"}`)).toBe("2");
  expect(value(`paths{${labels},path="direct"}`)).toBe("1");
  expect(Number(value(`paths_relayed_share{${labels}}`))).toBeCloseTo(2 / 3);
  expect(value(`paths_broken_pairs{${labels}}`)).toBe("1");
  expect(value(`path_round_trip_seconds_bucket{${labels},le="0.005"}`)).toBe("1");
  expect(value(`path_round_trip_seconds_bucket{${labels},le="0.05"}`)).toBe("2");
  expect(value(`path_round_trip_seconds_count{${labels}}`)).toBe("2");
  expect(Number(value(`path_round_trip_seconds_sum{${labels}}`))).toBeCloseTo(0.043);
});

test("relays that a node names by their addresses are listed by their names", async () => {
  const [alpha, beta] = [await registerNode(server, org, "alpha"), await registerNode(server, org, "beta")];
  const by = (...relays: string[]) => ({ peer: "10.77.9.9", path: "relayed", relays, probe: "answers" });
  await report(alpha, { whole: true, changed: [by(beta.ip, "10.77.9.7", "lh1")] });
  expect(await list()).toMatchObject([{ relays: ["beta", "10.77.9.7", "lh1"] }]);
});

test("healings are events with their evidence, without underlay addresses, and 20 an hour at most", async () => {
  const [alpha, beta] = [await registerNode(server, org, "alpha"), await registerNode(server, org, "beta")];
  const healing = { peer: beta.ip, result: "healed", silent_s: 14, witness: "10.77.0.9" };
  const events = async () => {
    const { json } = await send("GET", "events/?limit=1000");
    return v
      .parse(v.array(v.looseObject({ type: v.string() })), json)
      .filter(({ type }) => type === "node.healing");
  };
  expect(await report(alpha, { healings: [{ ...healing, remote: "192.0.2.7:4242" }] })).toBe("taken");
  expect(await events()).toMatchObject([
    { subject: `node/${alpha.id}`, after: { ...healing, peer_name: "beta" }, actor: { kind: "node" } },
  ]);
  expect(JSON.stringify(await events())).not.toContain("192.0.2.7");
  expect(await report(alpha, { healings: [{ ...healing, peer: "10.77.9.8", witness: beta.ip }] })).toBe(
    "taken",
  );
  expect(JSON.stringify(await events())).toContain('"witness_name":"beta"');
  const many = Array.from({ length: 19 }, () => ({ peer: "10.77.9.9", result: "given_up", silent_s: 1 }));
  expect(await report(alpha, { healings: many })).toBe("taken");
  expect(await report(alpha, { healings: many })).toBe("taken");
  expect(await events()).toHaveLength(20);
  // With paths, in one report.
  expect(await report(beta, { healings: [healing], changed: [direct(alpha.ip)] })).toBe("taken");
  expect([(await events()).length, (await list()).length]).toEqual([21, 1]);
  expect(await report(alpha, { healings: [{ ...healing, peer: "no address" }] })).toBe("unwanted");
  const count = "SELECT count(*) AS n FROM events WHERE org_id = $1 AND type = 'node.healing'";
  server.clock.ms += 3_600_000;
  expect(await report(alpha, { healings: [healing] })).toBe("taken");
  expect(await countOf(server, count, org.id)).toBe(22);
});

test("paths are counted by node; nodes without paths are left out", async () => {
  const [alpha, beta] = [await registerNode(server, org, "alpha"), await registerNode(server, org, "beta")];
  await registerNode(server, org, "quiet");
  const changed = [
    direct(beta.ip),
    relayed("10.77.9.9"),
    { peer: "10.77.9.8", path: "relayed", probe: "answers" },
  ];
  await report(alpha, { whole: true, changed });
  await report(beta, { whole: true, changed: [{ peer: "10.77.9.8", path: "none", probe: "not_probed" }] });
  const counts = async (query = "") => (await send("GET", `paths/counts/${query}`)).json;
  expect(await counts()).toEqual([
    { node: alpha.id, direct: 1, relayed: 1, broken: 1, relays_away: 0 },
    { node: beta.id, direct: 0, relayed: 0, broken: 0, relays_away: 0 },
  ]);
  expect(await counts("?page_size=1&page=2")).toEqual([expect.objectContaining({ node: beta.id })]);
  expect((await send("GET", "paths/counts/?search=x")).status).toBe(400);
});
