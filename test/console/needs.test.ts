// What the console says needs a person.

import { expect, test } from "bun:test";
import { isBackupDue, lastDays } from "../../src/console/days.ts";
import { withGaps } from "../../src/console/ui/gaps.ts";
import { degraded, historyWords, onlineOf, testsWords } from "../../src/console/needs.ts";

const now = Date.UTC(2026, 10, 1);
const day = 86_400_000;

test("hubs that are away, machines that do not reach peers, and those that take no configuration: none hides the others", () => {
  const hubs_away = {
    count: 2,
    first: [
      { id: 3, name: "node-3", is_lighthouse: true },
      { id: 4, name: "node-4", is_lighthouse: false },
    ],
  };
  const peers = ["peer-1", "peer-2", "10.77.1.4"];
  const unreached = [
    { id: 1, name: "node-1", peers, peer_count: 4 },
    { id: 2, name: "node-2", peers: ["peer-1"], peer_count: 1 },
  ];
  const not_applied = {
    count: 1,
    first: [{ id: 5, name: "node-5", since: new Date(now - 1_200_000).toISOString() }],
  };
  const cloned = { count: 1, first: [{ id: 6, name: "node-6" }] };
  const found = degraded(
    { hubs_away, broken_paths: { count: 30, first: unreached }, not_applied, cloned },
    now,
  );
  expect(found.map(({ show, count }) => [show, count])).toEqual([
    ["cloned", 1],
    ["hubs", 2],
    ["broken", 30],
    ["late", 1],
  ]);
  expect(found.map(({ needs }) => needs)).toEqual([
    [
      {
        id: 6,
        name: "node-6",
        more: "is two machines with the same keys, and tunnels alternate between them. On the copy alone: agent up --new-keys --node-name NAME, with a new join key",
      },
    ],
    [
      { id: 3, name: "node-3", more: "is away: machines find each other by this lighthouse" },
      { id: 4, name: "node-4", more: "is away: it relays for others" },
    ],
    [
      { id: 1, name: "node-1", more: "does not reach peer-1, peer-2, 10.77.1.4 and 1 more" },
      { id: 2, name: "node-2", more: "does not reach peer-1" },
    ],
    [
      {
        id: 5,
        name: "node-5",
        more: "checks in, but has not applied the configuration of 20m ago: rules that were saved since are not in force on it",
      },
    ],
  ]);
});

test("less than half of the machines online needs attention", () => {
  expect(onlineOf({ active: 0, online: 0 })).toEqual({ words: "No machine is registered.", isBad: false });
  expect(onlineOf({ active: 2, online: 0 })).toEqual({
    words: "None of 2 machines is online.",
    isBad: true,
  });
  expect(onlineOf({ active: 3, online: 1 })).toEqual({
    words: "Only 1 of 3 machines is online.",
    isBad: true,
  });
  expect(onlineOf({ active: 2, online: 1 })).toEqual({
    words: "1 of 2 machines is online.",
    isBad: false,
  });
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

test("a plot ends now, or with a count of a control plane whose clock is ahead", () => {
  const seconds = now / 1000;
  expect(lastDays(1, now)).toEqual([seconds - 86_400, seconds]);
  expect(lastDays(7, now, seconds + 60)).toEqual([seconds + 60 - 7 * 86_400, seconds + 60]);
});

test("a time without counts is a gap of the plot", () => {
  expect(
    withGaps(
      [
        [0, 300, 1800],
        [1, 2, 3],
        [9, 9, 9],
      ],
      300,
    ),
  ).toEqual([
    [0, 300, 600, 1800],
    [1, 2, null, 3],
    [9, 9, null, 9],
  ]);
});

test("the words of the plot are single counts with their times", () => {
  const count = (online: number, minutes: number) => ({
    online,
    at: new Date(now + minutes * 60_000).toISOString(),
  });
  const paths = { direct: null, relayed: null, broken: null, rtt_ms_median: null, rtt_ms_95: null };
  const last = { ...count(7, 15), active: 9, current: null, ...paths };
  const time = (at: number) => `at ${(at - now) / 60_000}`;
  expect(historyWords({ least: count(2, 5), most: count(9, 10), last }, time)).toBe(
    "Online (green) of all machines (grey): 2 at the fewest (at 5), 9 at the most (at 10), 7 at the last count (at 15)",
  );
  expect(historyWords({ least: null, most: null, last: null }, time)).toStartWith("Nothing was counted");
});
