// What pages say about nodes that are there, away or revoked.

import { expect, test } from "bun:test";
import { findingWords } from "../../../src/protocol/finding-kinds.ts";
import {
  behindWords,
  configurationOf,
  countWords,
  isImportDue,
  mayRenew,
  noPathsOf,
  stateOf,
} from "../../../src/console/nodes/states.ts";

const online = { state: "active", online: true } as const;
const away = { state: "active", online: false } as const;
const revoked = { state: "revoked", online: false } as const;
const pending = { state: "pending", online: false } as const;
const newest = { applied_config_version: 312, config_version: 312 };

test("where the list has more nodes than other pages count, it says which", () => {
  expect(countWords(300, 300)).toBe("");
  expect(countWords(301, 300)).toBe("300 nodes with an agent, and 1 without (phones, or not registered)");
});

test("only a node that is there has applied the newest configuration now", () => {
  const words = (node: Parameters<typeof configurationOf>[0]) => configurationOf(node).words;
  expect(words({ ...online, ...newest })).toBe("312, applied");
  expect(words({ ...away, ...newest })).toBe("312, applied when it was last here");
  expect(words({ ...revoked, ...newest })).toBe("none: it is revoked");
  expect(words({ ...pending, ...newest })).toBe("none: it is not registered");
  const behind = configurationOf({ ...online, applied_config_version: null, config_version: 2 });
  expect(behind).toEqual({ words: "has applied none; the newest is 2", isBehind: true });
  // The newest version is that of now, not of when the node was last here.
  expect(words({ ...away, applied_config_version: 1, config_version: 313 })).toBe(
    "had applied configuration 1 when it was last here; the newest is 313",
  );
});

test("renewal is offered for no phone, because phones never check in", () => {
  expect(mayRenew({ state: "active", phone: null })).toBe(true);
  expect(mayRenew({ state: "active", phone: { import_by: null } as never })).toBe(false);
  expect(mayRenew({ state: "revoked", phone: null })).toBe(false);
});

test("a node without paths says why", () => {
  expect(noPathsOf(revoked)).toContain("revoked");
  expect(noPathsOf(pending)).toContain("not registered");
  expect(noPathsOf(away)).toContain("away");
  expect(noPathsOf(online)).toContain("reports are switched off");
});

test("a phone is neither online nor away, and says when it has to be imported again", () => {
  const imported = { system: "ios", imported_at: "2026-11-01T00:00:00Z" } as const;
  const now = Date.UTC(2026, 10, 20);
  const phone = (import_by: string | null) => ({ ...imported, import_by });
  expect(
    [null, "2026-11-20T00:00:00Z", "2026-11-20T00:00:01Z"].map((by) => isImportDue(phone(by), now)),
  ).toEqual([true, true, false]);
  expect(isImportDue(null, now) || isImportDue(undefined, now)).toBe(false);
  const due = { ...away, phone: phone(null) };
  expect(stateOf(due)[1]).toBe("phone, import it again");
  expect(stateOf({ ...away, phone: phone("9999-01-01T00:00:00Z") })[1]).toBe("phone");
  expect(stateOf({ ...revoked, phone: phone(null) })[1]).toBe("revoked");
  expect(configurationOf({ ...due, applied_config_version: null, config_version: 2 }).isBehind).toBe(false);
  expect(noPathsOf(due)).toBe("A phone reports none.");
});

test("a node that is behind says whether that is a fault", () => {
  const now = Date.UTC(2026, 10, 20);
  const behind = { applied_config_version: 1, config_version: 310 };
  const late = { ...behind, not_applied_since: "2026-11-19T23:40:00Z" };
  expect(behindWords({ ...away, ...behind }, { isSent: true, now })).toEqual({
    words:
      "It had applied configuration 1 when it was last here; the newest is 310. It takes the newest when it is back.",
    isFault: false,
  });
  const has = "It has applied configuration 1; the newest is 310.";
  const end = "What was changed since is not in force on it.";
  expect(behindWords({ ...online, ...late }, { isSent: true, now })).toEqual({
    words: `${has} It fetched a newer one 20m ago, and has not applied it. ${end}`,
    isFault: true,
  });
  expect(behindWords({ ...online, ...late }, { isSent: false, now })).toEqual({
    words: `${has} It could have fetched a newer one 20m ago, and has not. ${end}`,
    isFault: true,
  });
  // Within the first ten minutes, and from a former server: no word of a fault.
  for (const since of [null, undefined])
    expect(behindWords({ ...online, ...behind, not_applied_since: since }, { isSent: true, now })).toEqual({
      words: `${has} Usually that takes seconds; if it lasts ten minutes, this says so.`,
      isFault: false,
    });
});

test("a node that is online and does not reach a peer says so, before anything else", () => {
  expect(stateOf({ ...online, isLate: true, broken: 1 })).toEqual(["attention", "broken path"]);
  expect(stateOf({ ...online, broken: 0 })[1]).toBe("online");
  expect(stateOf({ ...away, broken: 1 })[1]).toBe("away");
});

test("each kind of what a node found wrong is shown in words while it is online", () => {
  for (const [finding, words] of Object.entries(findingWords)) {
    expect(stateOf({ ...online, finding, broken: 1 })).toEqual(["attention", words]);
    expect(stateOf({ ...away, finding })).toEqual(["away", "away"]);
  }
  expect(stateOf({ ...online, finding: "of a newer node" })).toEqual(["online", "online"]);
  expect(stateOf({ ...online, finding: null })).toEqual(["online", "online"]);
});

test("a node that lacks a configuration for long is not shown as well", () => {
  expect(stateOf({ ...online, isLate: true })).toEqual(["limited", "old configuration"]);
  expect(stateOf({ ...away, isLate: true })).toEqual(["away", "away"]);
  expect(stateOf({ ...revoked, isLate: true })).toEqual(["revoked", "revoked"]);
});
