// Since when a node does not reach a peer, as its page says it.

import { expect, test } from "bun:test";
import { outageStart } from "../../../src/console/node/why-words.ts";
import { pathCauses } from "../../../src/server/alarms/path-causes.ts";

const since = "2026-01-02T03:04:05Z";
/** The open alarm about the nodes, each with its peers, as the control plane writes it. */
function alarmOf(heads: Record<string, readonly string[]>) {
  const at = Date.parse(since);
  const ids = Object.keys(heads);
  const pairs = Object.entries(heads).map(
    ([aName, peers]) =>
      [
        ids.indexOf(aName),
        peers.map((bName, b) => ({ a: ids.indexOf(aName), aName, b: 100 + b, bName, since: at })),
      ] as const,
  );
  const [cause] = pathCauses(new Map(pairs), { afterMs: 1, now: at + 2 });
  return { kind: "path" as const, title: cause?.title ?? "", text: cause?.text ?? "", since, ended_at: null };
}
const alarm = alarmOf({ web: ["db-1", "db-2"] });

test("an outage began when its open alarm says, at either end of the pair", () => {
  expect(outageStart([alarm], ["web", "db-1"])).toBe(since);
  expect(outageStart([alarm], ["db-2", "web"])).toBe(since);
  const both = alarmOf({ web: ["db-1"], app: ["cache"] });
  expect(outageStart([both], ["web", "db-1"])).toBe(since);
  expect(outageStart([both], ["cache", "app"])).toBe(since);
});

test("an alarm about other peers of the same node does not say when this outage began", () => {
  expect(outageStart([alarm], ["web", "db-3"])).toBeUndefined();
  expect(outageStart([alarm], ["web", "db"])).toBeUndefined();
  expect(outageStart([alarm], ["db-1", "db-2"])).toBeUndefined();
  expect(outageStart([alarm], ["web", "10.77.9.9"])).toBeUndefined();
  const both = alarmOf({ web: ["db-1"], app: ["cache"] });
  expect(outageStart([both], ["web", "cache"])).toBeUndefined();
  expect(outageStart([both], ["web", "app"])).toBeUndefined();
});

test("without one open alarm about the pair, the beginning of an outage is unknown", () => {
  const ends = ["web", "db-1"];
  expect(outageStart([], ends)).toBeUndefined();
  expect(outageStart([{ ...alarm, ended_at: since }], ends)).toBeUndefined();
  expect(outageStart([{ ...alarm, kind: "node" }], ends)).toBeUndefined();
  expect(outageStart([alarm, alarmOf({ "db-1": ["web"] })], ends)).toBeUndefined();
});
