import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import {
  advisoriesFor,
  can,
  engineClass,
  isOlderThan,
  isRefusedEngine,
  parseEngineVersion,
  takesReload,
} from "../../src/engine/features.ts";
import { ConfigOverrides } from "../../src/engine/allowed-settings.ts";
import { sourceFiles, sourceRoot, withoutComments } from "../support/imports.ts";

test("a feature begins with its first version", () => {
  expect(["1.9.5", "1.9.6", "v1.9.6", "1.10", "2.0.0"].map((each) => can(each, "inactive_tunnels"))).toEqual([
    false,
    true,
    true,
    true,
    true,
  ]);
  expect(can([1, 10, 0], "certificate_v2")).toBe(true);
  expect(can([1, 9, 9], "certificate_v2")).toBe(false);
});

test("an engine without a known version counts as the oldest", () => {
  for (const unknown of [undefined, null, "", "nebula", "1"]) {
    expect(parseEngineVersion(unknown)).toEqual([1, 6, 1]);
    expect(can(unknown, "static_map")).toBe(false);
  }
});

test("engines of the same class have the same features", () => {
  expect(engineClass("1.10.0")).toBe(engineClass("1.10.3"));
  expect(engineClass(null)).toBe(engineClass("1.6.1"));
  const classes = ["1.6.1", "1.7.0", "1.9.6", "1.10.0", "1.11.0"].map(engineClass);
  expect(new Set(classes).size).toBe(5);
});

test("advisories name the version that fixes them, and one of them refuses the engine", () => {
  const ids = (version: string) => advisoriesFor(version).map(({ id }) => id);
  expect(ids("1.6.1")).toEqual([]);
  expect(ids("1.9.3")).toEqual(["CVE-2026-25793"]);
  expect(ids("1.9.6")).toEqual(["CVE-2025-62820", "CVE-2026-25793"]);
  expect(ids("1.10.3")).toEqual([]);
  expect(advisoriesFor("1.9.7")).toEqual([{ id: "CVE-2026-25793", severity: "medium", fixed_in: "1.10.3" }]);
  const refused = ["1.9.3", "1.9.4", "1.9.6", "1.9.7"].map((each) =>
    isRefusedEngine(parseEngineVersion(each)),
  );
  expect(refused).toEqual([false, true, true, false]);
  expect(isOlderThan([1, 6, 0], [1, 6, 1])).toBe(true);
  expect(isOlderThan([1, 6, 1], [1, 6, 1])).toBe(false);
});

test("no other source file compares engine versions", () => {
  const versions = /semver|atLeast\(|reloadsFrom/;
  const found = sourceFiles().filter((file) =>
    versions.test(withoutComments(readFileSync(join(sourceRoot, file), "utf8"))),
  );
  expect(found).toEqual([]);
});

test("each section that an administrator may set is applied by a reload or a restart, as its engine can", () => {
  const sections = Object.keys(ConfigOverrides.entries);
  const needStart = (engine: string) => sections.filter((each) => !takesReload(each, engine));
  const never = ["listen", "tun", "handshakes", "timers", "routines"];
  const late = ["relay", "stats", "preferred_ranges"];
  expect(needStart("1.6.1").sort()).toEqual([...never, ...late].sort());
  expect(needStart("1.12.0").sort()).toEqual(never.sort());
  // A new section must be looked up in the engine's code, and added here.
  expect(sections.filter((each) => takesReload(each, "1.6.1")).sort()).toEqual(
    ["firewall", "lighthouse", "logging", "punchy", "static_map", "tunnels"].sort(),
  );
});

test("the longest path decides whether a reload applies a setting", () => {
  const on = (engine: string | undefined, paths: string[]) => paths.map((path) => takesReload(path, engine));
  const paths = ["tun.unsafe_routes", "tun.dev", "relay.relays", "relay.use_relays", "lighthouse.serve_dns"];
  expect(on("1.6.1", paths)).toEqual([false, false, true, false, false]);
  expect(on(undefined, paths)).toEqual([false, false, true, false, false]);
  expect(on("1.9.0", paths)).toEqual([true, false, true, false, false]);
  expect(["1.7.2", "1.8.0"].map((engine) => takesReload("lighthouse.interval", engine))).toEqual([
    false,
    true,
  ]);
  expect(on("1.11.0", paths)).toEqual([true, false, true, true, true]);
  expect(
    on("1.12.0", ["stats.listen", "stats.message_metrics", "listen.read_buffer", "listen.port"]),
  ).toEqual([true, false, true, false]);
});
