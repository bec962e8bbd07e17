// What pages say about machines that are there, away or revoked.

import { expect, test } from "bun:test";
import { configurationOf, noPathsOf, onlineOf } from "../../src/console/nodes.ts";

const online = { state: "active", online: true } as const;
const away = { state: "active", online: false } as const;
const revoked = { state: "revoked", online: false } as const;
const pending = { state: "pending", online: false } as const;
const newest = { applied_config_version: 312, config_version: 312 };

test("only a machine that is there has applied the newest configuration now", () => {
  const words = (node: Parameters<typeof configurationOf>[0]) => configurationOf(node).words;
  expect(words({ ...online, ...newest })).toBe("312, applied");
  expect(words({ ...away, ...newest })).toBe("312, applied when it was last here");
  expect(words({ ...revoked, ...newest })).toBe("none: it is revoked");
  expect(words({ ...pending, ...newest })).toBe("none: it is not registered");
  const behind = configurationOf({ ...online, applied_config_version: null, config_version: 2 });
  expect(behind).toEqual({ words: "has applied none of 2", isBehind: true });
});

test("a machine without paths says why", () => {
  expect(noPathsOf(revoked)).toContain("revoked");
  expect(noPathsOf(pending)).toContain("not registered");
  expect(noPathsOf(away)).toContain("away");
  expect(noPathsOf(online)).toContain("reports are switched off");
});

test("less than half of the machines online needs attention", () => {
  expect(onlineOf([pending, revoked])).toEqual({ words: "No machine is registered.", isBad: false });
  expect(onlineOf([away, away, revoked])).toEqual({ words: "None of 2 machines is online.", isBad: true });
  expect(onlineOf([online, away, away])).toEqual({ words: "Only 1 of 3 machines is online.", isBad: true });
  expect(onlineOf([online, away])).toEqual({ words: "1 of 2 machines is online.", isBad: false });
});
