// Name servers: the control plane sends them all names, and whose names they may tell whom.

import { expect, test } from "bun:test";
import { learningIn, maxPeerClasses } from "../../../src/protocol/names-for-peers.ts";
import type { HostsFile } from "../../../src/protocol/names.ts";
import { atOnce } from "../../../src/server/http/heavy-work.ts";
import { makeBook, prepareTable, tableOf, addChanges } from "../../../src/server/names/organization-names.ts";
import { classNameOf, tableFor } from "../../../src/server/names/names-table.ts";
import { makeVisibility } from "../../../src/server/names/visibility.ts";
import { testable } from "../../../src/server/policy/firewall.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { expectedNames, fetchNames, noHosts, shownNames } from "../../support/names.ts";
import { checkinOf, codeOf, registerNode, type RegisteredNode } from "../../support/nodes.ts";
import { useNumbered } from "../../support/numbered.ts";
import { makePolicies } from "../../support/policies.ts";
import type { TestServer } from "../../support/server.ts";

let server: TestServer;
let org: Organization;
const { call, configVersion, parked, showNode } = useNumbered((made) => ({ server, org } = made));

const addRule = async (from: unknown, to: unknown, ports = "22") => {
  for (const direction of ["inbound", "outbound"]) {
    const sides = direction === "inbound" ? { peer: from, target: to } : { peer: to, target: from };
    const rule = { direction, protocol: "tcp", ports, ...sides };
    expect((await call("POST", "firewall_rules/", rule)).status).toBe(201);
  }
};
/** Four nodes: `web` reaches `db`, nothing else is permitted. `names` is the name server. */
async function makeNodes() {
  for (const { id } of (await call("GET", "firewall_rules/")).json as { id: number }[])
    await call("DELETE", `firewall_rules/${id}/`);
  const nodes: Record<string, RegisteredNode> = {};
  for (const name of ["names", "web", "db", "lone"]) {
    const node = (nodes[name] = await registerNode(server, org, name));
    expect((await call("PATCH", `nodes/${node.id}/`, { groups: [name] })).status).toBe(200);
  }
  await addRule({ group: "web" }, { group: "db" });
  return nodes as Record<"names" | "web" | "db" | "lone", RegisteredNode>;
}
const setRole = async ({ id }: RegisteredNode, is_name_server: boolean) =>
  expect((await call("PATCH", `nodes/${id}/`, { is_name_server })).status).toBe(200);
const follow = (node: RegisteredNode, before: HostsFile = noHosts) =>
  fetchNames(node, before, { asksForPeers: true });

/** By name, what a name server tells each node. */
function told({ nodes, peers }: HostsFile): Record<string, string[]> {
  const may = peers === undefined ? () => false : learningIn(peers);
  const named = (asking: (typeof nodes)[number]) =>
    nodes.filter((each) => each.id === asking.id || may(asking.class, each.class)).map(({ name }) => name);
  return Object.fromEntries(nodes.map((asking) => [asking.name, named(asking).sort()]));
}

test("a name server gets all names and who may learn them; other nodes, and one that does not ask, what they had", async () => {
  const { names, web } = await makeNodes();
  const before = await follow(names);
  expect(before.hosts.nodes.map(({ name }) => name)).toEqual(["names"]);
  expect(before.hosts.peers).toBeUndefined();
  const poll = names.checkin(
    {
      config_version: await configVersion(),
      names: { version: before.hosts.version, view: before.hosts.view, peers: "" },
    },
    { wait: 10 },
  );
  await parked(names);
  await setRole(names, true);
  expect(checkinOf(await poll)).toHaveProperty("names");
  expect(await showNode(names)).toMatchObject({ is_name_server: true });
  const { hosts } = await follow(names, before.hosts);
  expect(told(hosts)).toEqual({ names: ["names"], web: ["db", "web"], db: ["db", "web"], lone: ["lone"] });
  expect((await follow(names, hosts)).answers).toEqual([]);
  // Another table at the same position, as after a damage.
  const { version, view } = hosts;
  const again = checkinOf(await names.checkin({ names: { version, view, peers: "another" } }));
  expect(again).toMatchObject({ names: { version, view, peers: hosts.peers } });
  // An earlier release of the node does not ask for it.
  expect((await fetchNames(names)).hosts.nodes.map(({ name }) => name)).toEqual(["names"]);
  expect((await follow(web)).hosts).not.toHaveProperty("peers");
  expect(JSON.stringify((await follow(web)).hosts)).not.toContain("class");
});

test("changes reach a name server as differences; the end of its role takes the names back", async () => {
  const { names, db, lone } = await makeNodes();
  await setRole(names, true);
  let { hosts } = await follow(names);
  const next = async () => {
    const after = await follow(names, hosts);
    hosts = after.hosts;
    return after.answers.map(({ whole, nodes, peers }) => [whole, nodes.length, peers !== undefined]);
  };
  await call("PATCH", `nodes/${db.id}/`, { name: "store" });
  expect(await next()).toEqual([[false, 1, false]]);
  // Another class, which no node was of.
  await call("PATCH", `nodes/${lone.id}/`, { groups: ["web", "db"] });
  expect(await next()).toEqual([[false, 1, true]]);
  expect(told(hosts)).toMatchObject({ lone: ["lone", "store", "web"], web: ["lone", "store", "web"] });
  await call("DELETE", `nodes/${db.id}/`);
  await next();
  expect(told(hosts)).toEqual({ names: ["names"], lone: ["lone", "web"], web: ["lone", "web"] });
  await addRule({ group: "names" }, { any: true });
  expect(await next()).toEqual([[true, 3, true]]);
  expect(told(hosts)["names"]).toEqual(["lone", "names", "web"]);
  await call("PATCH", "", { names_to_all: true });
  expect(await next()).toEqual([[true, 3, true]]);
  expect(hosts.peers).toMatchObject({ all: true });
  expect(told(hosts)["web"]).toEqual(["lone", "names", "web"]);
  await call("PATCH", "", { names_to_all: false });
  await setRole(names, false);
  await next();
  expect(hosts).not.toHaveProperty("peers");
  expect(hosts.nodes.some((each) => "class" in each)).toBe(false);
  expect(shownNames(hosts)).toEqual(await expectedNames(server, org.id, names.id));
});

test("a name server that is revoked is sent nothing, and has its role again when it is restored", async () => {
  const { names } = await makeNodes();
  await setRole(names, true);
  await call("DELETE", `nodes/${names.id}/`);
  expect(codeOf(await names.checkin({ names: { version: 0, view: "", peers: "" } }))).toEqual([
    403,
    "node_revoked",
  ]);
  expect((await call("POST", `nodes/${names.id}/restore/`, {})).status).toBe(200);
  expect((await follow(names)).hosts.nodes).toHaveLength(4);
});

test("who learns whose name by a table is who sees whom by the rules", () => {
  const { policy } = makePolicies(41);
  let [seen, hidden] = [0, 0];
  for (let round = 0; round < 60; round++) {
    const { rules, members } = policy(12);
    const visibility = makeVisibility(atOnce(testable(rules)), false);
    const classes = members.map((member) => visibility.classOf(member));
    const may = learningIn(atOnce(tableFor(visibility, classes)));
    for (const one of classes) {
      for (const other of classes) {
        const sees = visibility.sees(one, other);
        expect(may(classNameOf(visibility, one), classNameOf(visibility, other))).toBe(sees);
        if (sees) seen++;
        else hidden++;
      }
    }
  }
  expect(Math.min(seen, hidden)).toBeGreaterThan(100);
});

test("classes of other rules, unknown ones and too many are told nothing", () => {
  const rulesFor = (count: number) =>
    Array.from({ length: count }, (_, at) => ({ group: `g${at}` })).flatMap((side, at) =>
      (["inbound", "outbound"] as const).map((direction) => ({
        id: at + 1,
        direction,
        protocol: "tcp" as const,
        ports: "22",
        peer: side,
        target: side,
        description: "",
      })),
    );
  const make = (count: number, toAll = false) => {
    const visibility = makeVisibility(atOnce(testable(rulesFor(count))), toAll);
    const classes = Array.from({ length: count }, (_, at) =>
      visibility.classOf({ id: at + 1, name: `n${at}`, ip: `10.77.1.${at}`, ip6: null, groups: [`g${at}`] }),
    );
    return {
      table: atOnce(tableFor(visibility, classes)),
      names: classes.map((each) => classNameOf(visibility, each)),
    };
  };
  const [few, others] = [make(maxPeerClasses), make(3)];
  const may = learningIn(few.table);
  expect(may(few.names[2], few.names[2])).toBe(true);
  expect(may(few.names[2], few.names[3])).toBe(false);
  for (const unknown of [undefined, "", others.names[2]]) {
    expect(may(unknown, unknown)).toBe(false);
    expect(may(few.names[2], unknown)).toBe(false);
  }
  const many = make(maxPeerClasses + 1);
  expect(many.table).toMatchObject({ too_many: true, classes: [], sees: [] });
  expect(learningIn(many.table)(many.names[0], many.names[0])).toBe(false);
  expect(make(maxPeerClasses + 1, true).table).toMatchObject({ all: true, digest: "all" });
});

test("the table is made in small steps, and after a change in as many as there are changed nodes", () => {
  const rules = Array.from({ length: 40 }, (_, at) => ({
    id: at + 1,
    direction: at % 2 === 0 ? ("inbound" as const) : ("outbound" as const),
    protocol: "tcp" as const,
    ports: "22",
    peer: { group: `g${at}` },
    target: { group: `g${at + 1}` },
    description: "",
  }));
  const book = makeBook(makeVisibility(atOnce(testable(rules)), false), 0);
  const entry = (at: number, version: number, isNameServer = false) => ({
    id: at + 1,
    name: `n${at}`,
    ip: `10.77.1.${at}`,
    ip6: null,
    groups: [`g${at % 40}`],
    isGone: false,
    isNameServer,
    version,
  });
  const steps = () => [...prepareTable(book)].length;
  addChanges(
    book,
    1,
    Array.from({ length: 100 }, (_, at) => entry(at, 1)),
    [],
  );
  expect(steps()).toBe(0);
  addChanges(book, 2, [entry(0, 2, true)], []);
  // One for each node, and one for each class.
  expect(steps()).toBe(100 + 40);
  const asked = { version: 0, view: "", peers: "" };
  const table = tableOf(book, 1, asked);
  expect([table.classes.length, table.digest]).toEqual([40, book.table?.value.digest ?? ""]);
  addChanges(book, 3, [entry(7, 3), entry(8, 3)], []);
  expect(steps()).toBe(2);
  expect(tableOf(book, 1, asked)).toBe(table);
});
