// The audit log in the console: filters, readable differences, and the chain of hashes.

import { describe, expect, test } from "bun:test";
import { createHash } from "node:crypto";
import { emptyChain, verifyEnd, verifyNext } from "../../../src/console/activity/chain.ts";
import { changesOf } from "../../../src/console/activity/event-changes.ts";
import { weekOf } from "../../../src/console/activity/week.ts";
import {
  foundWords,
  exportName,
  filterOf,
  makeMatch,
  parts,
  subjectOf,
  thingsOf,
  type Filter,
} from "../../../src/console/activity/event-filter.ts";
import { readBack, type Span } from "../../../src/console/activity/read-back.ts";
import { eventTypes, type Event as AuditEvent } from "../../../src/api/events.ts";
import { eventHash, eventText } from "../../../src/server/audit/record.ts";

const at = Date.UTC(2026, 10, 1, 12);
const actor = { kind: "person", id: 7, ip: "192.0.2.1" };

const event = (id: number, more: Partial<AuditEvent> = {}): AuditEvent => ({
  id,
  at: new Date(at + id * 3_600_000).toISOString(),
  type: "node.updated",
  actor,
  subject: `node/${id}`,
  before: { name: "old" },
  after: { name: `web-${id}` },
  hash: "",
  ...more,
});

test("filters combine: actor by e-mail, type with an asterisk, subject by name, days", () => {
  const names = new Map([[7, "Ada@example.org"]]);
  const none: Filter = { about: "", search: "", actor: "", type: "", subject: "", from: "", to: "" };
  const events = [
    event(1),
    event(2, { type: "rule.created", subject: "rule/1" }),
    event(3, { actor: { kind: "server", id: null, ip: null }, hash: "7777" }),
    event(40, { hash: "ab".repeat(32) }),
  ];
  const found = (filter: Partial<Filter>) =>
    events.filter(makeMatch({ ...none, ...filter }, names)).map(({ id }) => id);
  expect(found({})).toEqual([1, 2, 3, 40]);
  expect(found({ actor: "ada@" })).toEqual([1, 2, 40]);
  expect(found({ actor: "server" })).toEqual([3]);
  expect(found({ type: "node.*" })).toEqual([1, 3, 40]);
  expect(found({ type: "node" })).toEqual([]);
  expect(found({ type: "rule.created", actor: "192.0.2.1" })).toEqual([2]);
  expect(found({ subject: "WEB-3" })).toEqual([3]);
  expect(found({ search: "old web-40" })).toEqual([40]);
  // A whole subject is one thing, not all whose number begins with it; a part of a hash is no text that anyone searches.
  expect(found({ subject: "node/4" })).toEqual([]);
  expect(found({ subject: "node/40" })).toEqual([40]);
  expect(found({ search: "7777" })).toEqual([]);
  expect(found({ search: "abab" })).toEqual([]);
  expect(found({ search: ` ${"ab".repeat(32)}` })).toEqual([40]);
  const day = (id: number) => {
    const local = new Date(at + id * 3_600_000);
    return `${local.getFullYear()}-${String(local.getMonth() + 1).padStart(2, "0")}-${String(local.getDate()).padStart(2, "0")}`;
  };
  expect(found({ from: day(40) })).toEqual([40]);
  expect(found({ to: day(1), from: day(1) })).toContain(1);
  expect(found({ to: day(1) })).not.toContain(40);
  expect(found({ from: "yesterday" })).toEqual([1, 2, 3, 40]);
  // An alias is another name of its node.
  events.push(
    event(41, {
      type: "name.created",
      subject: "name/intranet",
      before: null,
      after: { name: "intranet", node: 7 },
    }),
    event(42, {
      type: "name.deleted",
      subject: "name/intranet",
      before: { name: "intranet", node: 7 },
      after: null,
    }),
  );
  expect(found({ subject: "node/7" })).toEqual([41, 42]);
});

test("what the control plane notes for questions about the past is shown where it is asked for alone", () => {
  const note = event(1, { type: "policy.recorded" });
  const shows = (search: string) => makeMatch(filterOf(new URLSearchParams(search)), new Map())(note);
  expect(["", "about=policy", "type=policy.*", "search=policy"].map(shows)).toEqual([
    false,
    false,
    true,
    true,
  ]);
});

test("a part of the log, its failures, and hours of a day are filters", () => {
  const none: Filter = { about: "", search: "", actor: "", type: "", subject: "", from: "", to: "" };
  const local = (hour: number) => new Date(2026, 10, 26, hour, 30).toISOString();
  const events = [
    event(1, { at: local(8) }),
    event(2, { at: local(11), type: "rule.created" }),
    event(3, { at: local(12), type: "security.login_failed" }),
    event(4, { at: local(13), type: "certificate.expiring" }),
  ];
  const found = (filter: Partial<Filter>) =>
    events.filter(makeMatch({ ...none, ...filter }, new Map())).map(({ id }) => id);
  expect(found({ about: "nodes" })).toEqual([1]);
  expect(found({ about: "access" })).toEqual([2]);
  expect(found({ about: "people" })).toEqual([3]);
  expect(found({ about: "certificates" })).toEqual([4]);
  expect(found({ about: "failures" })).toEqual([3, 4]);
  expect(found({ about: "constructor" })).toEqual([1, 2, 3, 4]);
  // An hour is its beginning on both sides, so that the next hours are not in it.
  expect(found({ from: "2026-11-26T08", to: "2026-11-26T12" })).toEqual([1, 2]);
  expect(found({ from: "2026-11-26T12" })).toEqual([3, 4]);
  expect(found({ from: "2026-11-26T12", to: "2026-11-26" })).toEqual([3, 4]);
  expect(filterOf(new URLSearchParams({ from: "2026-11-26T08", to: "2026-11-26T8" }))).toMatchObject({
    from: "2026-11-26T08",
    to: "",
  });
});

test("each type of event is in a part of the log, or of the control plane's own", () => {
  const known = new Set<string>(Object.values(parts).flatMap(([, kinds]) => kinds));
  const left = eventTypes.map((type) => type.slice(0, type.indexOf("."))).filter((kind) => !known.has(kind));
  expect([...new Set(left)]).toEqual(["alarm", "drill", "events", "organization", "server", "webhook"]);
});

test("a week has the hours of seven local days, and links to a quarter of each", () => {
  const now = new Date(2026, 10, 26, 14, 20).getTime();
  const hour = (day: number, of: number, types: Record<string, number>) => ({
    at: new Date(2026, 10, day, of).toISOString(),
    count: Object.values(types).reduce((sum, each) => sum + each, 0),
    types,
  });
  const { bars, days } = weekOf(
    [
      // Before the first of the seven days.
      hour(19, 23, { "node.created": 9 }),
      hour(20, 0, { "node.created": 2 }),
      hour(26, 13, { "node.created": 1, "security.login_failed": 3 }),
    ],
    now,
  );
  expect(bars).toEqual([
    { place: 0, count: 2, failures: 0 },
    { place: 6 * 24 + 13, count: 4, failures: 3 },
  ]);
  expect(days.map(({ spans }) => spans.length)).toEqual([4, 4, 4, 4, 4, 4, 4]);
  expect(days[0]?.spans[0]).toEqual({ from: "2026-11-20T00", to: "2026-11-20T06", count: 2, failures: 0 });
  expect(days[6]?.spans[2]).toEqual({ from: "2026-11-26T12", to: "2026-11-26T18", count: 4, failures: 3 });
  // The end of a day is the beginning of the next one.
  expect(days[6]?.spans[3]?.to).toBe("2026-11-27T00");
});

test("an export reads the log back to its first day, page by page", async () => {
  const log = Array.from({ length: 25 }, (_, index) => event(index + 1));
  const asked: number[] = [];
  const told: number[] = [];
  // The newest events before an id, the oldest first, as GET events/ answers.
  const page = async (before: number) => {
    asked.push(before);
    return log.filter(({ id }) => id < before).slice(-10);
  };
  const span = { start: undefined, end: undefined };
  const readAll = (more: Partial<Span>, max: number) =>
    readBack(page, { ...span, ...more }, max, (count) => told.push(count));
  const read = async (start?: number) => {
    const { events: found, isAll } = await readAll({ start }, 1000);
    expect(isAll).toBe(true);
    return found.map(({ id }) => id);
  };
  const all = log.map(({ id }) => id).toReversed();
  expect(await read()).toEqual(all);
  expect(asked.slice(1)).toEqual([16, 6, 1]);
  expect(told).toEqual([10, 20, 25, 25]);
  // What is older than the first day is in the last page, and the filter leaves it out.
  expect(await read(at + 12 * 3_600_000)).toEqual(all.slice(0, 20));
  // It keeps a bounded number, and says so. What is newer than the last day does not count.
  const some = await readAll({ end: at + 15 * 3_600_000 }, 5);
  expect([some.events.map(({ id }) => id), some.isAll]).toEqual([[14, 13, 12, 11, 10, 9, 8, 7, 6], false]);
});

test("the name of an export says which days it covers, and whether it is filtered", () => {
  const none: Filter = { about: "", search: "", actor: "", type: "", subject: "", from: "", to: "" };
  const at = (day: number) => new Date(2026, 10, day, 12).toISOString();
  const events = [event(2, { at: at(21) }), event(1, { at: at(3) })];
  expect(exportName("acme", none, events)).toBe("acme-events-2026-11-03-2026-11-21.csv");
  const days = { ...none, from: "2026-11-01", to: "2026-11-22" };
  expect(exportName("acme", days, events)).toBe("acme-events-2026-11-01-2026-11-22.csv");
  // One that leaves older events out does not promise their days.
  expect(exportName("acme", days, events, false)).toBe("acme-events-2026-11-03-2026-11-22.csv");
  expect(exportName("acme", { ...none, type: "node.*" }, [])).toBe("acme-events-filtered.csv");
});

test("the address has filters; what is no day there is none", () => {
  const words = new URLSearchParams({ type: "node.*", from: "../../x", to: "2026-11-30" });
  expect(filterOf(words)).toEqual({
    about: "",
    search: "",
    actor: "",
    type: "node.*",
    subject: "",
    from: "",
    to: "2026-11-30",
  });
});

test("the list says how much of the log it shows, and where the rest is", () => {
  const words = (isFiltered: boolean, isAll: boolean) =>
    foundWords({ found: 12, read: 200 }, { isFiltered, isAll });
  expect(words(false, true)).toBe("All 200 events");
  expect(words(true, true)).toBe("12 events match");
  expect(foundWords({ found: 1, read: 9 }, { isFiltered: true, isAll: true })).toBe("1 event matches");
  expect(words(false, false)).toBe("The newest 200 events; an export reads the others, too");
  expect(words(true, false)).toBe("12 of the newest 200 events match; an export reads the others, too");
});

test("the history of a rule has the applied policies that made, described or removed it", () => {
  const none: Filter = { about: "", search: "", actor: "", type: "", subject: "", from: "", to: "" };
  const policy = (id: number, after: AuditEvent["after"], type = "policy.applied") =>
    event(id, { type, subject: "policy", before: null, after });
  const events = [
    event(1, { type: "rule.created", subject: "rule/8" }),
    policy(2, { rule_ids: [8, 9], nodes: [{ id: 3 }] }),
    policy(3, { rule_ids: [80], version: 8 }),
    // As former versions recorded it.
    policy(4, { rules_created: [{ ports: "8" }], rules_deleted: [{ id: 8, ports: "22" }] }),
    policy(5, { rule_ids: [8] }, "policy.reverted"),
    event(6, { type: "node.updated", subject: "node/3" }),
    event(7, { type: "token.created", subject: "token/1", after: { rule_ids: [8] } }),
    policy(8, { rule_ids: "8", rules_deleted: null }),
  ];
  const found = (subject: string) =>
    events.filter(makeMatch({ ...none, subject }, new Map())).map(({ id }) => id);
  expect(found("rule/8")).toEqual([1, 2, 4, 5]);
  expect(found("node/3")).toEqual([2, 6]);
  expect(found("token/8")).toEqual([]);
});

test("of lists only what came and went is shown, of records only the fields that differ", () => {
  const before = { groups: ["web", "eu"], tun: { mtu: 1300, drop: true }, owner_id: null, same: [1] };
  const after = { groups: ["eu", "db"], tun: { mtu: 1400, drop: true }, owner_id: 3, same: [1] };
  expect(changesOf({ before, after })).toEqual([
    { field: "groups", removed: ["web"], added: ["db"] },
    { field: "tun mtu", removed: ["1300"], added: ["1400"] },
    { field: "owner id", removed: ["none"], added: ["3"] },
  ]);
  expect(changesOf({ before: null, after: { name: "", rule: [{ ports: "22", protocol: "tcp" }] } })).toEqual([
    { field: "name", removed: [], added: ["(empty)"] },
    { field: "rule", removed: [], added: ["ports 22, protocol tcp"] },
  ]);
  const hostile = JSON.parse('{"__proto__": {"constructor": "x"}, "toString": 1}') as Record<string, unknown>;
  expect(changesOf({ before: null, after: hostile }).map(({ field }) => field)).toEqual([
    "__proto__ constructor",
    "toString",
  ]);
  expect(changesOf({ before: null, after: null })).toEqual([]);
});

test("sides of rules are words, and counts of nothing are left out", () => {
  const after = {
    counts: { rules_created: 1, nodes: 0 },
    peer: { group: "web" },
    target: { any: true },
    rules_created: [{ ports: "22", peer: { group: "web" }, target: { node: 7 }, description: "" }],
  };
  expect(changesOf({ before: { peer: { cidr: "10.0.0.0/8" }, target: { any: true } }, after })).toEqual([
    { field: "peer", removed: ["cidr 10.0.0.0/8"], added: ["group web"] },
    { field: "counts rules created", removed: [], added: ["1"] },
    { field: "rules created", removed: [], added: ["ports 22, peer group web, target node 7"] },
  ]);
  expect(changesOf({ before: null, after: { target: { any: true } } })).toEqual([
    { field: "target", removed: [], added: ["any"] },
  ]);
});

test("an event without the name of its node shows the name that the newest other event gives", () => {
  const nameless = event(9, { subject: "node/1", before: null, after: { reason: "lost" } });
  const things = thingsOf([nameless, event(2, { subject: "node/1", after: { name: "new" } }), event(1)]);
  expect(subjectOf(nameless, things)).toBe("new (once old, web-1) (node/1)");
  expect(subjectOf(event(1), things)).toBe("web-1 (node/1)");
  expect(subjectOf(event(3, { subject: "node/3", after: null, before: null }), things)).toBe("node/3");
  const filter: Filter = { about: "", search: "", actor: "", type: "", subject: "new", from: "", to: "" };
  expect(makeMatch(filter, new Map(), things)(nameless)).toBe(true);
  // Who remembers the former name finds what happened before and after it.
  expect(makeMatch({ ...filter, subject: "web-1" }, new Map(), things)(nameless)).toBe(true);
  // A search looks at what the page shows, too.
  const search = makeMatch(
    { ...filter, subject: "", search: "joined 8" },
    new Map(),
    things,
    ({ id }) => `${id} joined`,
  );
  expect([search({ ...nameless, id: 8 }), search({ ...nameless, id: 5 })]).toEqual([true, false]);
});

describe("the chain of hashes", () => {
  const sha256 = async (text: string) => createHash("sha256").update(text).digest("hex");

  /** Events as the server records them, after the hash `previous`. */
  function chained(events: readonly AuditEvent[], previous = ""): AuditEvent[] {
    let head = previous;
    return events.map((each) => {
      const json = (details: AuditEvent["before"]) => (details === null ? null : JSON.stringify(details));
      const { type, subject } = each;
      const row = { type, subject, at: Date.parse(each.at), actor: JSON.stringify(each.actor) };
      head = eventHash(head, eventText({ ...row, before: json(each.before), after: json(each.after) }));
      return { ...each, hash: head };
    });
  }

  test("an event that an earlier version hashed with a lone surrogate is proven; a forgery with the same letter is not", async () => {
    const [one, two, three] = chained([event(1), { ...event(2), subject: "user/\udfffx" }, event(3)]);
    if (one === undefined || two === undefined || three === undefined) throw new Error("events are missing");
    const stored = { ...two, subject: "user/\ufffdx" };
    expect(await verify([one, stored, three])).toMatchObject({ events: 3, brokenAt: undefined });
    expect(await verify([one, { ...stored, subject: "user/\ufffdy" }, three])).toMatchObject({ brokenAt: 2 });
  });

  const verify = async (events: readonly AuditEvent[]) => {
    const half = Math.floor(events.length / 2);
    const first = await verifyNext(emptyChain, events.slice(0, half), sha256);
    return verifyEnd(await verifyNext(first, events.slice(half), sha256), sha256);
  };

  test("what the server recorded is whole", async () => {
    const events = chained([event(1), event(2, { before: null, after: { 'quote"': "ü\u2028" } }), event(3)]);
    expect(await verify(events)).toMatchObject({ events: 3, head: events[2]?.hash, brokenAt: undefined });
    expect(await verify([])).toMatchObject({ events: 0, brokenAt: undefined });
  });

  test("a changed, a removed and an inserted event break it there", async () => {
    const events = chained([event(1), event(2), event(3), event(4)]);
    const [one, two, three, four] = events as [AuditEvent, AuditEvent, AuditEvent, AuditEvent];
    expect(await verify([one, { ...two, subject: "node/9" }, three, four])).toMatchObject({ brokenAt: 2 });
    expect(await verify([one, three, four])).toMatchObject({ brokenAt: 3 });
    expect(await verify([{ ...one, type: "node.created" }, two])).toMatchObject({ brokenAt: 1 });
    expect(await verify([two, three])).toMatchObject({ brokenAt: 2 });
  });

  test("after an archive it begins with the hash that the newest archive before the first event names", async () => {
    const cut = (id: number, last: number, hash: string) =>
      event(id, { type: "events.archived", before: null, after: { archive: { last, last_hash: hash } } });
    const all = [event(1), event(2), event(3)];
    const [, second] = chained(all);
    const whole = chained([...all, cut(4, 2, second?.hash ?? ""), cut(5, 4, "f".repeat(64))]);
    expect(await verify(whole.slice(2))).toMatchObject({ events: 3, brokenAt: undefined });
    expect(await verify(whole.slice(2, 3))).toMatchObject({ brokenAt: 3 });
  });
});
