// How names reach nodes: with the answers to check-ins, as differences, only to nodes that ask for them.
// On SQLite alone: other files run the same statements on PostgreSQL.

import { describe, expect, test } from "bun:test";
import * as v from "valibot";
import { NamesAnswer } from "../../../src/protocol/names.ts";
import { makeBook, newsFor, addChanges } from "../../../src/server/names/organization-names.ts";
import { publishLateNames } from "../../../src/server/names/publish.ts";
import { keptVersions } from "../../../src/server/allocation/held-names.ts";
import { everything, makeVisibility } from "../../../src/server/names/visibility.ts";
import { firstRules, testable } from "../../../src/server/policy/firewall.ts";
import { atOnce } from "../../../src/server/http/heavy-work.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { expectedNames, fetchNames, shownNames } from "../../support/names.ts";
import {
  checkinOf,
  codeOf,
  registerNode,
  registrationToken,
  type RegisteredNode,
} from "../../support/nodes.ts";
import { makePolicies } from "../../support/policies.ts";
import { useNumbered } from "../../support/numbered.ts";
import type { TestServer } from "../../support/server.ts";

let server: TestServer;
let org: Organization;
const { call, configVersion, parked, showNode } = useNumbered((made) => ({ server, org } = made));

/** Only ICMP from the group ops, and only out of it. */
async function closeRules() {
  const list = (await call("GET", "firewall_rules/")).json as { id: number }[];
  for (const { id } of list) await call("DELETE", `firewall_rules/${id}/`);
  for (const direction of ["inbound", "outbound"]) {
    const sides = direction === "inbound" ? ["peer", "target"] : ["target", "peer"];
    const [from = "", to = ""] = sides;
    const rule = { direction, protocol: "tcp", ports: "22", [from]: { group: "ops" }, [to]: { any: true } };
    expect((await call("POST", "firewall_rules/", rule)).status).toBe(201);
  }
}
const names = async (node: RegisteredNode) => shownNames((await fetchNames(node)).hosts);

describe("a node", () => {
  test("that does not ask for names is answered as before", async () => {
    const alpha = await registerNode(server, org, "alpha");
    await registerNode(server, org, "beta");
    expect(Object.keys(checkinOf(await alpha.checkin())).sort()).toEqual([
      "certificate_not_after",
      "config_changed",
      "config_version",
      "last_checkin_at",
      "server_time",
    ]);
    const poll = alpha.checkin({ config_version: await configVersion() }, { wait: 1 });
    await parked(alpha);
    await registerNode(server, org, "gamma");
    expect(checkinOf(await poll)).not.toHaveProperty("names");
  });

  test("gets all names once, then only what changed, and nothing without a change", async () => {
    const alpha = await registerNode(server, org, "alpha");
    const beta = await registerNode(server, org, "beta");
    const before = await configVersion();
    const first = await fetchNames(alpha);
    expect(first.answers).toMatchObject([{ whole: true, view: everything }]);
    expect(shownNames(first.hosts)).toEqual(
      [`${alpha.id} alpha ${alpha.ip} -`, `${beta.id} beta ${beta.ip} -`].sort(),
    );
    expect((await fetchNames(alpha, first.hosts)).answers).toEqual([]);
    const gamma = await registerNode(server, org, "gamma");
    const second = await fetchNames(alpha, first.hosts);
    expect(second.answers).toEqual([
      expect.objectContaining({ whole: false, nodes: [{ id: gamma.id, name: "gamma", ip: gamma.ip }] }),
    ]);
    expect(await configVersion()).toBe(before);
  });

  test.each([
    ["a rename", (id: number) => call("PATCH", `nodes/${id}/`, { name: "renamed" })],
    ["a revocation", (id: number) => call("DELETE", `nodes/${id}/`)],
    ["an alias", (id: number) => call("POST", "names/", { name: "db", node: id })],
    ["a group", (id: number) => call("PATCH", `nodes/${id}/`, { groups: ["web"] })],
  ])("that holds a poll is told of %s at once", async (what, change) => {
    const alpha = await registerNode(server, org, "alpha");
    const beta = await registerNode(server, org, "beta");
    await closeRules();
    await call("PATCH", `nodes/${alpha.id}/`, { groups: ["ops"] });
    const { hosts } = await fetchNames(alpha);
    const poll = fetchNames(
      {
        checkin: async (fields, how) =>
          alpha.checkin({ ...fields, config_version: (await showNode(alpha)).config_version }, how),
      },
      hosts,
      { wait: 55 },
    );
    await parked(alpha);
    const version = await configVersion();
    expect((await change(beta.id)).status).toBeLessThan(300);
    expect(shownNames((await poll).hosts)).toEqual(await expectedNames(server, org.id, alpha.id));
    if (what === "an alias") expect(await configVersion()).toBe(version);
  });

  test("is told of a rename without another configuration, unless a rule names the renamed node", async () => {
    const alpha = await registerNode(server, org, "alpha");
    const beta = await registerNode(server, org, "beta");
    const { hosts } = await fetchNames(alpha);
    const versions = async () => [
      await configVersion(),
      ...(await Promise.all([alpha, beta].map(async (node) => (await showNode(node)).config_version))),
    ];
    const [shared = 0, ofAlpha = 0, ofBeta = 0] = await versions();
    expect((await call("PATCH", `nodes/${beta.id}/`, { name: "renamed" })).status).toBe(200);
    // The renamed node itself gets certificates of its new name.
    expect(await versions()).toEqual([shared, ofAlpha, expect.any(Number)]);
    expect((await showNode(beta)).config_version).toBeGreaterThan(ofBeta);
    expect(shownNames((await fetchNames(alpha, hosts)).hosts)).toEqual(
      await expectedNames(server, org.id, alpha.id),
    );
    const rule = { direction: "inbound", protocol: "tcp", ports: "443", target: { any: true } };
    await call("POST", "firewall_rules/", { ...rule, peer: { node: beta.id } });
    const before = (await showNode(alpha)).config_version;
    await call("PATCH", `nodes/${beta.id}/`, { name: "again" });
    expect((await showNode(alpha)).config_version).toBeGreaterThan(before);
  });

  test("learns of a restored node with its aliases", async () => {
    const alpha = await registerNode(server, org, "alpha");
    const beta = await registerNode(server, org, "beta");
    await call("POST", "names/", { name: "db", node: beta.id });
    const before = await fetchNames(alpha);
    await call("DELETE", `nodes/${beta.id}/`);
    const revoked = await fetchNames(alpha, before.hosts);
    expect(revoked.hosts).toMatchObject({ nodes: [{ name: "alpha" }], aliases: [] });
    await call("POST", `nodes/${beta.id}/restore/`, {});
    const restored = await fetchNames(alpha, revoked.hosts);
    expect(restored.answers).toMatchObject([{ whole: false }]);
    expect(shownNames(restored.hosts)).toEqual(shownNames(before.hosts));
  });

  test("sees what rules let it reach or be reached by, and nothing of others", async () => {
    const [alpha, beta, gamma] = [
      await registerNode(server, org, "alpha"),
      await registerNode(server, org, "beta"),
      await registerNode(server, org, "gamma"),
    ];
    await closeRules();
    expect(await names(alpha)).toEqual([`${alpha.id} alpha ${alpha.ip} -`]);
    await call("PATCH", `nodes/${gamma.id}/`, { groups: ["ops"] });
    const first = await fetchNames(alpha);
    expect(shownNames(first.hosts)).toEqual(await expectedNames(server, org.id, alpha.id));
    expect(shownNames(first.hosts)).toHaveLength(2);
    expect(await names(gamma)).toHaveLength(3);
    // A node that it does not see is renamed and revoked: it hears nothing, not even an id.
    await call("PATCH", `nodes/${beta.id}/`, { name: "secret" });
    await call("POST", "names/", { name: "hidden", node: beta.id });
    expect((await fetchNames(alpha, first.hosts)).answers).toEqual([]);
    expect((await call("PATCH", "", { names_to_all: true })).status).toBe(200);
    const all = await fetchNames(alpha, first.hosts);
    expect(shownNames(all.hosts)).toEqual(await expectedNames(server, org.id, alpha.id));
    expect(all.hosts).toMatchObject({ view: everything, aliases: [{ name: "hidden" }] });
    await call("PATCH", "", { names_to_all: false });
    expect(shownNames((await fetchNames(alpha, all.hosts)).hosts)).toEqual(shownNames(first.hosts));
  });

  test("gets the whole list again with a version that the server never gave", async () => {
    const alpha = await registerNode(server, org, "alpha");
    const { hosts } = await fetchNames(alpha);
    const { answers } = await fetchNames(alpha, { ...hosts, version: hosts.version + 9 });
    expect(answers).toMatchObject([{ whole: true, nodes: [{ name: "alpha" }] }]);
  });

  test("gets its answer although names cannot be read", async () => {
    const alpha = await registerNode(server, org, "alpha");
    await server.db.write((tx) => tx.run("ALTER TABLE name_aliases RENAME TO gone"));
    try {
      const answer = checkinOf(await alpha.checkin({ names: { version: 0, view: "" } }));
      expect(answer.names).toBeUndefined();
    } finally {
      await server.db.write((tx) => tx.run("ALTER TABLE gone RENAME TO name_aliases"));
    }
  });

  test("is told of the other domain of names when it changes; one that does not ask is not", async () => {
    const alpha = await registerNode(server, org, "alpha");
    const { hosts } = await fetchNames(alpha);
    const position = { version: hosts.version, view: hosts.view };
    const ask = async (more: object = {}, wait = 0) => {
      const fields = { names: { ...position, ...more }, config_version: await configVersion() };
      return v.parse(v.optional(NamesAnswer), checkinOf(await alpha.checkin(fields, { wait })).names);
    };
    expect(await ask({ suffix: "" })).toBeUndefined();
    const before = await configVersion();
    const poll = ask({ suffix: "" }, 55);
    await parked(alpha);
    expect((await call("PATCH", "", { name_suffix: "corp.example" })).status).toBe(200);
    const told = await poll;
    expect(told).toMatchObject({ view: hosts.view, whole: false, nodes: [], suffix: "corp.example" });
    expect(await configVersion()).toBe(before);
    expect(await ask()).toBeUndefined();
    expect(await ask({ version: told?.version, suffix: "corp.example" })).toBeUndefined();
    // With a whole list, too.
    expect(await ask({ version: 0, view: "", suffix: "" })).toMatchObject({
      whole: true,
      suffix: "corp.example",
    });
    await call("PATCH", "", { name_suffix: null });
    expect((await ask({ version: told?.version, suffix: "corp.example" }))?.suffix).toBe("");
  });

  test.each([[{ version: -1, view: "" }], [{ version: 1, view: "x".repeat(65) }], ["all"]])(
    "that sends %p as its position is refused",
    async (asked) => {
      const alpha = await registerNode(server, org, "alpha");
      expect(codeOf(await alpha.checkin({ names: asked }))).toEqual([400, "validation_failed"]);
    },
  );
});

test("a change of rules sends the whole list only to nodes that see other nodes then", async () => {
  const groups = ["web", "db", "ops"];
  const nodes: RegisteredNode[] = [];
  for (const group of groups) {
    const registration_token = await registrationToken(server, org, { groups: [group] });
    nodes.push(await registerNode(server, org, group, { registration_token }));
  }
  await closeRules();
  const addRule = async (ports: string, from: unknown, to: unknown) => {
    for (const direction of ["inbound", "outbound"]) {
      const sides = direction === "inbound" ? { peer: from, target: to } : { peer: to, target: from };
      const rule = { direction, protocol: "tcp", ports, ...sides };
      expect((await call("POST", "firewall_rules/", rule)).status).toBe(201);
    }
  };
  const lists = await Promise.all(nodes.map((node) => fetchNames(node)));
  /** Which nodes get answers, and whether they are whole lists. */
  const news = async () => {
    const said: string[] = [];
    for (const [at, node] of nodes.entries()) {
      const { answers } = await fetchNames(node, lists[at]?.hosts);
      for (const answer of answers) said.push(`${node.name} ${answer.whole ? "whole" : "part"}`);
      lists[at] = { ...(await fetchNames(node, lists[at]?.hosts)) };
    }
    return said;
  };
  expect(await news()).toEqual([]);
  // It concerns two groups, which see each other from now on.
  await addRule("5432", { group: "web" }, { group: "db" });
  expect(await news()).toEqual(["web whole", "db whole"]);
  // They see each other already: another port, and a rule that only repeats it.
  await addRule("5433", { group: "web" }, { group: "db" });
  await addRule("22", { group: "ops" }, { group: "db" });
  expect(await news()).toEqual([]);
});

test("nodes with equal views see the same nodes, under one policy and after a change of it", () => {
  const { policy, edited } = makePolicies(23);
  let [kept, differed] = [0, 0];
  for (let round = 0; round < 60; round++) {
    const before = policy(12);
    const after = { ...edited(before), members: before.members };
    const seen = new Map<string, string>();
    for (const { rules, members } of [before, after]) {
      const visibility = makeVisibility(atOnce(testable(rules)), false);
      for (const member of members) {
        const own = visibility.classOf(member);
        const all = members
          .map((other) => (visibility.sees(own, visibility.classOf(other)) ? "1" : "0"))
          .join("");
        if (seen.has(own.view)) kept++;
        else differed++;
        expect(`${round} ${own.view} ${seen.get(own.view) ?? all}`).toBe(`${round} ${own.view} ${all}`);
        seen.set(own.view, all);
      }
    }
  }
  expect(Math.min(kept, differed)).toBeGreaterThan(100);
});

test("a change that was not published is found by the upkeep", async () => {
  const alpha = await registerNode(server, org, "alpha");
  const { hosts } = await fetchNames(alpha);
  await server.db.writeFor({ org: org.id }, (tx) =>
    tx.run("UPDATE nodes SET name = 'older' WHERE id = $1", [alpha.id]),
  );
  expect((await fetchNames(alpha, hosts)).answers).toEqual([]);
  await publishLateNames(server.app.services);
  expect((await fetchNames(alpha, hosts)).hosts.nodes).toMatchObject([{ name: "older" }]);
});

describe("ten thousand nodes", () => {
  const count = 10_000;
  const visibility = makeVisibility(
    atOnce(testable(firstRules.map((rule, at) => ({ ...rule, id: at + 1 })))),
    false,
  );
  const entry = (id: number, version: number, more = {}) => {
    const ip = `10.77.${id >> 8}.${id & 255}`;
    return { id, name: `node-${id}`, ip, ip6: null, groups: [], isGone: false, version, ...more };
  };
  const filled = () => {
    const book = makeBook(visibility, 0);
    addChanges(
      book,
      count,
      Array.from({ length: count }, (_, at) => entry(at + 1, at + 1)),
      [],
    );
    return book;
  };

  test("a new node gets them in bounded pages, also while they change", () => {
    const book = filled();
    const list = new Map<number, string>();
    let position: { version: number; view: string; part?: boolean } = { version: 0, view: "" };
    let pages = 0;
    for (;;) {
      const news = newsFor(book, 7, position);
      expect(news?.whole).toBe(pages === 0 ? true : undefined);
      expect(JSON.stringify(news).length).toBeLessThan(150_000);
      for (const { id, name } of news?.nodes ?? []) list.set(id, name);
      for (const id of news?.removed_nodes ?? []) list.delete(id);
      pages++;
      if (news?.more !== true) break;
      position = { version: news.version, view: news.view, part: true };
      const version = book.version + 1;
      addChanges(
        book,
        version,
        [entry(pages, version, { name: `changed-${pages}` }), entry(5000 + pages, version, { isGone: true })],
        [],
      );
    }
    expect(pages).toBe(7);
    expect(list.size).toBe(count - 6);
    expect(list.get(6)).toBe("changed-6");
  });

  test("later parts of the list name no node that the viewer never saw, but those that it lost meanwhile", () => {
    const seen = { peer: { group: "seen" }, target: { group: "seen" } };
    const rules = firstRules.map((rule, at) => ({ ...rule, ...seen, id: at + 1 }));
    const book = makeBook(makeVisibility(atOnce(testable(rules)), false), 0);
    const node = (id: number) => entry(id, id, { groups: id % 2 === 1 ? ["seen"] : [] });
    addChanges(
      book,
      count,
      Array.from({ length: count }, (_, at) => node(at + 1)),
      [],
    );
    const list = new Map<number, string>();
    const removed: number[] = [];
    let news = newsFor(book, 7, { version: 0, view: "" });
    for (let pages = 1; news !== undefined; pages++) {
      for (const { id, name } of news.nodes ?? []) list.set(id, name);
      for (const id of news.removed_nodes ?? []) list.delete(id);
      removed.push(...(news.removed_nodes ?? []));
      if (news.more !== true) break;
      // Of the first part.
      if (pages === 1)
        addChanges(
          book,
          count + 1,
          [entry(1, count + 1), entry(3, count + 1, { name: "renamed", groups: ["seen"] })],
          [],
        );
      news = newsFor(book, 7, { version: news.version, view: news.view, part: true });
    }
    expect(removed).toEqual([1]);
    expect([list.size, list.has(1), list.get(3)]).toEqual([count / 2 - 1, false, "renamed"]);
    // The list is complete: the next request is for the changes.
    expect(newsFor(book, 7, { version: news?.version ?? 0, view: news?.view ?? "" })).toBeUndefined();
  });

  test("a node that was regrouped and then renamed is lost, or gained with its aliases, in whichever part", () => {
    const seen = { peer: { group: "seen" }, target: { group: "seen" } };
    const rules = firstRules.map((rule, at) => ({ ...rule, ...seen, id: at + 1 }));
    const book = makeBook(makeVisibility(atOnce(testable(rules)), false), 0);
    const ids = Array.from({ length: count }, (_, at) => at + 1);
    const groupsOf = (id: number) => (id % 2 === 1 ? ["seen"] : []);
    const alias = { id: 1, name: "nas", node_id: 2, isGone: false, version: 2 };
    addChanges(
      book,
      count,
      ids.map((id) => entry(id, id, { groups: groupsOf(id) })),
      [alias],
    );
    const { view = "" } = newsFor(book, 7, { version: 0, view: "" }) ?? {};
    // More than one part, all of one version.
    const regrouped = ids.slice(0, 4000).filter((id) => id !== 7);
    addChanges(
      book,
      count + 1,
      regrouped.map((id) => entry(id, count + 1, { groups: groupsOf(id + 1) })),
      [],
    );
    addChanges(
      book,
      count + 2,
      [1, 2].map((id) => entry(id, count + 2, { name: `renamed-${id}`, groups: groupsOf(id + 1) })),
      [],
    );
    const list = new Map(ids.filter((id) => id % 2 === 1).map((id) => [id, `node-${id}`]));
    const aliases: string[] = [];
    let position: { version: number; view: string; part?: boolean } = {
      version: count,
      view: view.split("@")[0] ?? "",
    };
    for (let parts = 1; ; parts++) {
      const news = newsFor(book, 7, position);
      for (const id of news?.removed_nodes ?? []) list.delete(id);
      for (const { id, name } of news?.nodes ?? []) list.set(id, name);
      aliases.push(...(news?.aliases ?? []).map(({ name }) => name));
      expect(new Set(news?.nodes?.map(({ id }) => id)).size).toBe(news?.nodes?.length ?? 0);
      if (news?.more !== true) {
        expect(parts).toBe(2);
        break;
      }
      position = { version: news.version, view: news.view, part: true };
    }
    expect([list.has(1), list.get(2), [...new Set(aliases)]]).toEqual([false, "renamed-2", ["nas"]]);
  });

  test("a rename costs each node less than 200 bytes", () => {
    const book = filled();
    addChanges(book, count + 1, [entry(42, count + 1, { name: "renamed" })], []);
    for (const id of [1, 42, count]) {
      const news = newsFor(book, id, { version: count, view: everything });
      expect(news?.nodes).toMatchObject([{ id: 42, name: "renamed" }]);
      expect(JSON.stringify(news).length).toBeLessThan(200);
    }
  });

  test("a node that was away for longer than changes are kept gets the whole list", () => {
    const book = makeBook(visibility, keptVersions);
    addChanges(book, keptVersions + 5, [entry(1, 3), entry(2, keptVersions + 5)], []);
    const position = { version: keptVersions - 1, view: everything };
    expect(newsFor(book, 1, position)).toMatchObject({ whole: true, nodes: [{ id: 1 }, { id: 2 }] });
    expect(newsFor(book, 1, { ...position, part: true })?.whole).toBeUndefined();
    expect(newsFor(book, 1, { ...position, version: keptVersions })?.whole).toBeUndefined();
  });

  test("changes that a node does not see are skipped, and counted after some time", () => {
    const closed = makeVisibility({ inbound: [], outbound: [] }, false);
    const book = makeBook(closed, 0);
    addChanges(book, 2, [entry(1, 1), entry(2, 2)], []);
    const { view } = newsFor(book, 1, { version: 0, view: "" }) ?? { view: "" };
    for (let version = 3; version <= 66; version++)
      addChanges(book, version, [entry(2, version, { name: `n${version}` })], []);
    expect(newsFor(book, 1, { version: 2, view })).toBeUndefined();
    addChanges(book, 67, [entry(2, 67)], []);
    expect(newsFor(book, 1, { version: 2, view })).toEqual({ version: 67, view });
  });
});
