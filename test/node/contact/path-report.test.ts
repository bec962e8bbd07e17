// What a node reports of its paths: only changes that matter, not often, and again what got no answer.

import { beforeEach, expect, test } from "bun:test";
import * as v from "valibot";
import {
  changesOf,
  makePathReporter,
  reportEveryMs,
  type PathReporter,
  type ReportedPaths,
} from "../../../src/node/contact/path-report.ts";
import type { PeerReport } from "../../../src/node/health/shown-peer.ts";
import {
  maxHealings,
  maxPaths,
  PathsReport,
  type Healing,
  type PathState,
} from "../../../src/protocol/path-report.ts";

const direct: PathState = {
  peer: "10.77.0.2",
  path: "direct",
  remote: "192.0.2.2:4242",
  probe: "answers",
  rtt_ms: 20,
  loss: 0,
};
const relayed: PathState = { peer: "10.77.0.3", path: "relayed", relays: ["lh1"], probe: "not_probed" };
const seen = ({ peer, ...rest }: PathState): PeerReport =>
  ({ name: `node-${peer}`, address: peer, age_s: 60, ...rest }) as PeerReport;

let now: number;
let peers: PeerReport[] | undefined;
let stored: ReportedPaths | undefined;
const make = () =>
  makePathReporter({
    peers: () => peers,
    now: () => now,
    store: { read: () => stored, write: (reported) => void (stored = reported) },
    healings,
  });
let reporter: PathReporter;
let healings: Healing[];

beforeEach(() => {
  [now, peers, stored, healings] = [1_000_000, [seen(direct), seen(relayed)], undefined, []];
  reporter = make();
});

/** Asks first, as a new node does, and reports everything. */
function begin(): void {
  expect(reporter.report()).toEqual({});
  reporter.answered("taken");
  expect(reporter.report()).toEqual({ whole: true, changed: [direct, relayed] });
  reporter.answered("taken");
}
const pass = (ms = reportEveryMs) => (now += ms);

test("a difference has what is new, changed or gone, and nothing that moved a little", () => {
  const change = (more: Partial<PathState>) =>
    changesOf([direct, relayed], [{ ...direct, ...more }, relayed]);
  expect(changesOf([direct, relayed], [relayed, direct])).toBeUndefined();
  for (const little of [{ rtt_ms: 24.9 }, { rtt_ms: 16 }, { loss: 0.1 }])
    expect(change(little)).toBeUndefined();
  for (const much of [
    { rtt_ms: 26 },
    { rtt_ms: 3 },
    { loss: 0.5 },
    { probe: "broken" },
    { remote: "192.0.2.9:4242" },
    { path: "none" },
  ] as const) {
    expect(change(much)).toEqual({ changed: [{ ...direct, ...much }], gone: [] });
  }
  expect(changesOf([direct], [relayed])).toEqual({ changed: [relayed], gone: [direct.peer] });
  expect(changesOf([], [])).toBeUndefined();
});

test("a small drift is reported once it has become large", () => {
  begin();
  for (const rtt_ms of [22, 24]) {
    pass();
    peers = [seen({ ...direct, rtt_ms }), seen(relayed)];
    expect(reporter.report()).toBeUndefined();
  }
  peers = [seen({ ...direct, rtt_ms: 26 }), seen(relayed)];
  expect(reporter.report()).toEqual({ changed: [{ ...direct, rtt_ms: 26 }], gone: [] });
});

test("nothing is reported again before 30 s, whatever changes", () => {
  begin();
  peers = [];
  pass(reportEveryMs - 1);
  expect(reporter.report()).toBeUndefined();
  pass(1);
  expect(reporter.report()).toEqual({ changed: [], gone: [direct.peer, relayed.peer] });
});

test("a report that came too early is sent again as it was: the control plane did not store it", () => {
  begin();
  peers = [seen(direct)];
  for (const how of ["later", "taken"]) {
    pass();
    expect(reporter.report()).toEqual({ changed: [], gone: [relayed.peer] });
    reporter.answered(how);
  }
  pass();
  expect(reporter.report()).toBeUndefined();
});

test.each([["this process"], ["the next one"]])(
  "after a report without an answer %p reports everything, also what is again as before: it may be stored",
  (which) => {
    begin();
    peers = [seen(direct)];
    pass();
    expect(reporter.report()).toEqual({ changed: [], gone: [relayed.peer] });
    peers = [seen(direct), seen(relayed)];
    if (which === "the next one") reporter = make();
    for (const how of [undefined, "later", "taken"]) {
      pass();
      expect(reporter.report()).toEqual({ whole: true, changed: [direct, relayed] });
      if (how !== undefined) reporter.answered(how);
    }
    pass();
    expect(reporter.report()).toBeUndefined();
    reporter = make();
    expect(reporter.report()).toBeUndefined();
  },
);

test.each([["unwanted"], [undefined], ["a word of a newer server"]])(
  "after the answer %p it asks again in ten minutes, and then reports everything",
  (how) => {
    begin();
    peers = [seen(direct)];
    pass();
    reporter.report();
    reporter.answered(how);
    pass(599_999);
    expect(reporter.report()).toBeUndefined();
    pass(1);
    expect(reporter.report()).toEqual({});
    reporter.answered("taken");
    expect(reporter.report()).toEqual({ whole: true, changed: [direct] });
  },
);

test("everything is reported each hour, also if nothing changed", () => {
  begin();
  pass(3_599_999);
  expect(reporter.report()).toBeUndefined();
  pass(1);
  expect(reporter.report()).toMatchObject({ whole: true });
});

test("the next process goes on from what was reported, and reports nothing while it knows no peers", () => {
  begin();
  reporter = make();
  pass();
  expect(reporter.report()).toBeUndefined();
  peers = undefined;
  expect(reporter.report()).toBeUndefined();
  peers = [seen(direct)];
  expect(reporter.report()).toEqual({ changed: [], gone: [relayed.peer] });
});

test("a clock that is set back does not end the reports", () => {
  begin();
  peers = [];
  now -= 86_400_000;
  expect(reporter.report()).toMatchObject({ whole: true, changed: [] });
});

test("of more than 200 peers, broken ones come first, then those that answer, then the youngest", () => {
  const many = Array.from({ length: 300 }, (_, at) => ({
    ...seen({ ...relayed, peer: `10.77.1.${at % 250}${at < 250 ? "" : "0"}`.replace(/(\d{4,})$/, "9") }),
    age_s: 1000 - at,
  }));
  const broken = seen({ ...direct, peer: "10.77.9.1", probe: "broken" });
  peers = [...many, seen(direct), broken];
  reporter.report();
  reporter.answered("taken");
  const report = v.parse(PathsReport, reporter.report());
  expect(report.changed).toHaveLength(maxPaths);
  expect(report.changed.slice(0, 2).map(({ peer }) => peer)).toEqual(["10.77.9.1", direct.peer]);
});

test("a peer that the control plane would refuse is left out", () => {
  peers = [
    seen(direct),
    seen({ ...direct, peer: "lighthouse" }),
    seen({ ...relayed, relays: ["x".repeat(65)] }),
  ];
  reporter.report();
  reporter.answered("taken");
  expect(reporter.report()).toEqual({ whole: true, changed: [direct] });
});

test("healings are reported without a change of paths, and again until they arrived", () => {
  begin();
  const healing = { peer: "10.77.0.2", result: "healed", silent_s: 14, witness: "10.77.0.1" };
  for (let at = 0; at < maxHealings + 1; at++) healings.push({ ...healing, silent_s: at });
  pass();
  const first = reporter.report();
  expect(first?.healings).toHaveLength(maxHealings);
  expect(v.is(PathsReport, first)).toBe(true);
  reporter.answered("later");
  pass();
  expect(reporter.report()?.healings).toHaveLength(maxHealings);
  reporter.answered("taken");
  expect(healings).toEqual([{ ...healing, silent_s: maxHealings }]);
  pass();
  expect(reporter.report()).toEqual({ healings: [{ ...healing, silent_s: maxHealings }] });
  reporter.answered("taken");
  pass();
  expect(reporter.report()).toBeUndefined();
});
