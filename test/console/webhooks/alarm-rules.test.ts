// The rules of alarms as the page Alarms shows and changes them.

import { expect, test } from "bun:test";
import type { Alarm } from "../../../src/api/webhooks/alarms.ts";
import {
  meaningOf,
  rulesOf,
  valueWords,
  withValue,
  worstFirst,
} from "../../../src/console/webhooks/alarm-rules.ts";

const shown = (own: readonly string[], away: number | null = null) =>
  new Map(rulesOf(own, away).map((rule) => [rule.name, `${valueWords(rule)}, usually ${rule.usual}`]));

test("without changes, every rule has its usual value", () => {
  const rules = shown([]);
  expect(rules.get("lighthouse")).toBe("3 minutes, usually 3");
  expect(rules.get("desktop")).toBe("off, usually off");
  expect(rules.get("policy")).toBe("on, usually on");
  expect(rules.get("ca")).toBe("60 days, usually 60");
});

test("the minutes of the setting about nodes that are away are the usual ones of nodes alone", () => {
  const rules = shown(["node=40"], 30);
  expect(rules.get("node")).toBe("40 minutes, usually 30");
  expect(rules.get("desktop")).toBe("30 minutes, usually 30");
  expect(rules.get("relay")).toBe("3 minutes, usually 3");
});

test("rules of groups come after the others", () => {
  const rules = rulesOf(["node:laptops=60", "backup=off"], null);
  expect(rules.at(-1)).toMatchObject({ words: "A node of laptops has been away for this time", value: "60" });
  expect(rules.find(({ name }) => name === "backup")?.value).toBe("off");
  expect(rules.map(({ place }) => place)).toEqual(rules.map((_, at) => at));
});

test("a change replaces the rule of this name alone, and the empty text takes it back", () => {
  const own = ["node=30", "node:laptops=60"];
  expect(withValue(own, ["node"], "45")).toEqual(["node:laptops=60", "node=45"]);
  expect(withValue(own, ["node"], "")).toEqual(["node:laptops=60"]);
  expect(withValue(own, ["node:web", "node:db"], "off")).toEqual([...own, "node:web=off", "node:db=off"]);
});

test("open alarms about what does not work now come first, as on Overview", () => {
  const alarm = (kind: Alarm["kind"], ended_at: string | null = null) => ({ kind, ended_at });
  const alarms = [
    alarm("backup"),
    alarm("path"),
    alarm("certificate"),
    alarm("relay"),
    alarm("router", "2026-11-01T00:00:00Z"),
  ];
  const kindsWith = (cut: number | undefined) => worstFirst(alarms, cut).map(({ kind }) => kind);
  expect(kindsWith(3)).toEqual(["path", "relay", "backup", "certificate", "router"]);
  // A relay that cuts no path works for now.
  expect(kindsWith(0)).toEqual(["path", "backup", "certificate", "relay", "router"]);
});

test("lines of an alarm's text stay apart, and its time stands in a column of its own", () => {
  const meaning = (text: string) => meaningOf({ text });
  expect(
    meaning("Since 2026-11-29T14:05:00Z. All are online. Reported by a, b.\na and b do not reach c"),
  ).toBe("All are online. Reported by a, b. · a and b do not reach c");
  expect(meaning("Since 2026-11-29T14:05:00Z.\nNot reached by c.\nSilent since then, too: d.")).toBe(
    "Not reached by c. · Silent since then, too: d.",
  );
  expect(meaning("Last one: 2026-11-20T14:05:00Z. Make one.")).toBe(
    "Last one: 2026-11-20T14:05:00Z. Make one.",
  );
});
