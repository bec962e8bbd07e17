// What the console says needs a person.

import { expect, test } from "bun:test";
import { evenly, isBackupDue, lastDays } from "../../../src/console/words/days.ts";
import {
  attentionPath,
  countNeeds,
  isUrgent,
  needCounts,
  type NeedKind,
} from "../../../src/console/needs/need-kinds.ts";
import { needRows, testsWords } from "../../../src/console/needs/need-rows.ts";
import { relayedWords, tilesOf } from "../../../src/console/needs/tiles.ts";
import { verdictOf } from "../../../src/console/needs/verdict.ts";
import type { Attention } from "../../../src/api/paths/attention.ts";

const now = Date.UTC(2026, 10, 1);
const day = 86_400_000;

const none = { count: 0, first: [] };
const well: Attention = {
  nodes: 9,
  active: 8,
  online: 8,
  lighthouses: 2,
  hubs_away: none,
  not_renewed: none,
  vulnerable_engines: none,
  not_applied: none,
  cloned: none,
  phones_due: none,
  ending_first: [],
  broken_paths: none,
  failing_tests: null,
  first_seal: null,
};
const found = {
  attention: well,
  waiting: [],
  failingTests: null,
  rotation: undefined,
  relays: [],
  webhooks: [],
  lastBackupAt: undefined,
  warnings: [],
};
const totals = {
  nodes: 40,
  online: 20,
  current: 39,
  cut: 0,
  direct: 999,
  relayed: 1,
  broken: 0,
  rtt_ms_median: 9.25,
  rtt_ms_95: 61,
};
const lighthouse = { id: 3, name: "lh-1", is_lighthouse: true, last_checkin_at: null };
const relay = { id: 4, name: "relay-1", is_lighthouse: false, last_checkin_at: null };

test("what needs somebody is one row each, the worst first: none hides the others", () => {
  const broken_paths = {
    count: 30,
    first: [
      { id: 1, name: "node-1", peers: ["peer-1", "peer-2", "10.77.1.4"], peer_count: 4 },
      { id: 2, name: "node-2", peers: ["peer-1"], peer_count: 1 },
    ],
  };
  const attention = {
    ...well,
    hubs_away: { count: 2, first: [lighthouse, relay] },
    broken_paths,
    not_applied: {
      count: 1,
      first: [{ id: 5, name: "node-5", since: new Date(now - 1_200_000).toISOString() }],
    },
    cloned: { count: 1, first: [{ id: 6, name: "node-6" }] },
  };
  const rows = needRows(
    "acme",
    { ...found, attention, lastBackupAt: null, failingTests: { count: 1, all: 5 } },
    now,
    { ...totals, cut: 3 },
  );
  expect(rows.map(({ name, what }) => `${name} ${what}`)).toEqual([
    "node-6 is two machines with the same keys, and tunnels alternate between them",
    "lh-1 lighthouse away: new tunnels need the other one",
    "relay-1 relay away: 3 paths have no other way",
    "node-1 does not reach peer-1, peer-2, 10.77.1.4 and 1 more, though all are online",
    "node-2 does not reach peer-1, though both are online",
    "28 more have the same fault",
    "Access 1 of 5 tests of the policy fails",
    "node-5 checks in, but has not applied the configuration: new rules are not in force on it",
    "Backup The control plane has none yet",
  ]);
  expect(rows[0]?.more).toBe("On the copy alone: agent up --new-keys --node-name NAME, with a new join key");
  expect(new Set(rows.map(({ key }) => key)).size).toBe(rows.length);
  // A relay that cuts no path works for now.
  const named = needRows("acme", { ...found, attention }, now, totals).map(({ name, sign }) => [name, sign]);
  expect(named).toEqual([
    ["node-6", "need"],
    ["lh-1", "need"],
    ["node-1", "need"],
    ["node-2", "need"],
    ["28 more", "need"],
    ["relay-1", "warn"],
    ["node-5", "warn"],
  ]);
});

test("each kind of need is counted, and has rows", () => {
  expect([countNeeds(found), needRows("acme", found, now)]).toEqual([0, []]);
  const at = new Date(now).toISOString();
  const one = { id: 1, name: "web-1" };
  const request = {
    id: 3,
    name: "ci-71",
    groups: ["ci", "eu"],
    key_sha256: "0123456789abcdef0123",
    seen_from: "192.0.2.4",
    created_at: at,
  } as unknown as (typeof found)["waiting"][number];
  const listed = <T>(first: T) => ({ attention: { ...well, ...first } });
  const alone: Record<NeedKind, object> = {
    warnings: { warnings: [{ code: "clock", text: "The clock is wrong.", hint: "Set it." }] },
    cloned: listed({ cloned: { count: 1, first: [one] } }),
    hubs_away: listed({ hubs_away: { count: 1, first: [relay] } }),
    broken_paths: listed({ broken_paths: { count: 1, first: [{ ...one, peers: ["db-1"], peer_count: 1 }] } }),
    not_applied: listed({ not_applied: { count: 1, first: [{ ...one, since: at }] } }),
    not_renewed: listed({ not_renewed: { count: 1, first: [{ ...one, not_after: at }] } }),
    tests: { failingTests: { count: 3, all: 5 } },
    waiting: { waiting: [request] },
    seal: listed({ first_seal: { hash: "5f0c9a2b7d31e486".repeat(4), made_at: at } }),
    engines: listed({
      vulnerable_engines: {
        count: 1,
        first: [{ ...one, overlay_version: "1.9.6", advisory: "CVE-2026-25793", fixed_in: "1.10.3" }],
      },
    }),
    relays: {
      relays: [
        {
          node: 4,
          node_name: "relay-1",
          month: "2026-11",
          bytes: 2e9,
          limit_bytes: 1e9,
          paused: true,
          reported_at: at,
        },
      ],
    },
    webhooks: { webhooks: [{ id: 7, url: "https://hooks.example.org/" }] },
    rotation: {
      rotation: {
        phase: "trust",
        paused: true,
        rolling_back: false,
        waiting_for: [],
        next_step_at: null,
        auto: true,
      },
    },
    backup: { lastBackupAt: null },
  };
  expect(Object.keys(alone).toSorted()).toEqual(Object.keys(needCounts(found)).toSorted());
  for (const [kind, more] of Object.entries(alone)) {
    const known = { ...found, ...more };
    expect([kind, countNeeds(known), needRows("acme", known, now).length]).toEqual([kind, 1, 1]);
  }
  const [row] = needRows("acme", { ...found, ...alone.waiting }, now);
  expect([row?.what, row?.act]).toEqual(["asks to join ci, eu, key 0123456789abcdef", { request }]);
  const hubs = { ...found, ...alone.hubs_away };
  expect(needRows("acme", hubs, now).map(({ what }) => what)).toEqual(["relay away"]);
  expect(needRows("acme", hubs, now, totals).map(({ what }) => what)).toEqual(["relay away, no path is cut"]);
  // The navigation counts it in red only if it cuts a path, or while that is unknown.
  expect([undefined, 1, 0].map((cut) => isUrgent(hubs, cut))).toEqual([true, true, false]);
  const bothHubs = listed({ hubs_away: { count: 2, first: [relay, lighthouse] } });
  expect(isUrgent({ ...found, ...bothHubs }, 0)).toBe(true);
  // The lighthouse may be one that the answer only counts.
  const someHubs = listed({ hubs_away: { count: 2, first: [relay] } });
  expect(isUrgent({ ...found, ...someHubs }, 0)).toBe(true);
  // A node with two needs is one that needs somebody, and has a row for each.
  const { broken_paths } = (alone.broken_paths as { attention: Attention }).attention;
  const both = { ...found, ...listed({ broken_paths, cloned: { count: 1, first: [one] } }) };
  expect([countNeeds(both), needRows("acme", both, now).length]).toEqual([1, 2]);
});

test("the node that all relayed paths end at is named, and both ends of the only one", () => {
  const path = (node_name: string, peer_name: string) => ({
    node: 1,
    node_name,
    group: null,
    peer: 2,
    peer_name,
    peer_group: null,
    kind: "relayed" as const,
    rtt_ms: 4,
  });
  const [first, second] = [path("laptop-9", "web-1"), path("app-3", "laptop-9")];
  expect(relayedWords(0, [])).toBe("0 paths relayed");
  expect(relayedWords(1, [first])).toBe("laptop-9 to web-1 relayed");
  expect(relayedWords(2, [first, second])).toBe("2 paths relayed at laptop-9");
  expect(relayedWords(2, [first, path("app-3", "db-1")])).toBe("2 paths relayed");
  // Not all are known.
  expect(relayedWords(21, [first, second])).toBe("21 paths relayed");
});

test("one lighthouse for many nodes is an advice, with its line", () => {
  const [row, ...more] = needRows(
    "acme",
    { ...found, attention: { ...well, active: 12, lighthouses: 1 } },
    now,
  );
  expect([row?.name, row?.act, more]).toEqual([
    "One lighthouse",
    { words: "Command for its key", copy: "agent admin token create acme --lighthouse" },
    [],
  ]);
});

test("the verdict is one sentence, and a lighthouse that is away says what that means", () => {
  expect(verdictOf({ ...well, active: 0 }, totals, 0).words).toBe("No node is registered");
  expect(verdictOf({ ...well, online: 0 }, totals, 0)).toEqual({
    sign: "need",
    words: "None of 8 nodes is online",
  });
  expect(verdictOf(well, totals, 0)).toEqual({ sign: "on", words: "All is well" });
  expect(verdictOf(well, totals, 2)).toEqual({ sign: "on", words: "The network is well" });
  expect(verdictOf({ ...well, online: 3 }, totals, 0).words).toBe("Only 3 of 8 nodes are online");
  const hubs_away = { count: 1, first: [relay] };
  expect(verdictOf({ ...well, hubs_away }, { broken: 2, cut: 1 }, 3).words).toBe(
    "2 paths are broken, relay relay-1 is away",
  );
  // Amber, as its row: the network works with the former configuration.
  const not_applied = { count: 1, first: [] };
  expect(verdictOf({ ...well, not_applied }, totals, 1)).toEqual({
    sign: "warn",
    words: "1 node without the newest configuration",
  });
  expect(verdictOf({ ...well, not_applied }, { broken: 1, cut: 0 }, 2).sign).toBe("need");
  expect(verdictOf({ ...well, hubs_away }, totals, 1)).toEqual({
    sign: "warn",
    words: "Relay relay-1 is away",
  });
  const dark = { ...well, hubs_away: { count: 2, first: [relay, lighthouse] } };
  expect(verdictOf(dark, totals, 2)).toEqual({
    sign: "need",
    words: "Lighthouse lh-1 is away, relay relay-1 is away",
    alarm: {
      id: 3,
      name: "lh-1",
      facts:
        "Tunnels that are up stay up. New tunnels are found by the other lighthouse alone. No node has lost a peer.",
    },
  });
  expect(verdictOf({ ...dark, lighthouses: 1 }, totals, 2).alarm?.facts).toContain(
    "Nodes that have not talked before do not find each other until it is back.",
  );
});

test("tests of the policy that fail are counted", () => {
  expect(testsWords({ count: 2, all: 5 })).toBe("2 of 5 tests of the policy fail");
  expect(testsWords({ count: 1, all: 5 })).toBe("1 of 5 tests of the policy fails");
  expect(testsWords({ count: 1, all: 1 })).toBe("The test of the policy fails");
});

test("a backup is due when there is none, or the last one is two days old", () => {
  expect(isBackupDue(null, now)).toBe(true);
  expect(isBackupDue(new Date(now - 3 * day).toISOString(), now)).toBe(true);
  expect(isBackupDue(new Date(now - day).toISOString(), now)).toBe(false);
});

test("a line ends now, or with a count of a control plane whose clock is ahead", () => {
  const seconds = now / 1000;
  expect(lastDays(1, now)).toEqual([seconds - 86_400, seconds]);
  expect(lastDays(7, now, seconds + 60)).toEqual([seconds + 60 - 7 * 86_400, seconds + 60]);
});

test("a time without counts is a gap of the line, and so is the time since the last one", () => {
  const [first, second, late] = [0, 290, 1505].map((at) => ({ at: new Date(at * 1000).toISOString() }));
  expect(
    evenly(
      [first, second, late].filter((each) => each !== undefined),
      300,
      [0, 2100],
    ),
  ).toEqual([first, second, undefined, undefined, undefined, late, undefined, undefined]);
  // What came before the time that is shown is no part of it.
  expect(evenly([{ at: new Date(0).toISOString() }], 300, [1000, 1300])).toEqual([undefined, undefined]);
});

test("tiles have numbers without lines where nothing was counted, and no number where nothing is known", () => {
  const bare = tilesOf(well, undefined, undefined, "24 h");
  expect(bare.online).toEqual({ value: "8", of: "of 8", facts: "", bad: "", line: [] });
  expect([bare.paths, bare.trips, bare.current]).toEqual([undefined, undefined, undefined]);
});

test("tiles say when fewer are online than an hour ago, and are whole only where nothing is missing", () => {
  const paths = { direct: 90, relayed: 10, broken: 0, rtt_ms_median: 9.25, rtt_ms_95: 61 };
  const point = (minutes: number, online: number) => ({
    at: new Date(now - minutes * 60_000).toISOString(),
    online,
    active: 40,
    current: 39,
    ...paths,
  });
  const last = point(0, 20);
  const history = {
    every_s: 300,
    points: [point(90, 38), point(65, 37), last],
    least: { at: last.at, online: 20 },
    most: { at: last.at, online: 38 },
    last,
  };
  const shown = tilesOf({ active: 40, online: 20 }, history, { totals, relayed: [] }, "24 h");
  expect(shown.online).toEqual({
    value: "20",
    of: "of 40",
    facts: "",
    bad: "17 fewer than an hour ago",
    line: [38, 37, 20],
  });
  expect(shown.paths).toMatchObject({
    value: "99.9",
    facts: "1 path relayed, none broken",
    line: [90, 90, 90],
  });
  expect(shown.trips).toMatchObject({ value: "9.3", facts: "95 of 100 within 61 ms" });
  expect(shown.current).toEqual({
    value: "39",
    of: "of 40",
    facts: "1 not yet; online ones within 1 min",
    share: 0.975,
  });
});

test("without an organization, such as in the palette, nothing is asked about nodes", () => {
  expect(attentionPath("")).toBe("");
  expect(attentionPath("acme")).toBe("/api/org/acme/nodes/attention/");
});
