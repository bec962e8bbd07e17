import { expect, test } from "bun:test";
import { outcomeText } from "../../src/cli/install/overlay-install.ts";
import { renderChecks } from "../../src/node/doctor/check.ts";

test.each([
  [{ from: "1.11.1", to: "1.12.0", changed: true }, "/e is now 1.12.0 (was 1.11.1)"],
  [{ from: null, to: "1.12.0", changed: true }, "/e is now 1.12.0"],
  [{ from: "1.6.1", to: "1.6.1", changed: true }, "/e was replaced; its version is still 1.6.1"],
  [
    { from: "1.6.1", to: "1.6.1", changed: true, isFirst: true, link: "/usr/bin/nebula" },
    "/e was made, a link to /usr/bin/nebula; the version in use is still 1.6.1",
  ],
  [
    { from: null, to: "1.6.1", changed: true, isFirst: true, link: "/usr/bin/nebula" },
    "/e is now 1.6.1, a link to /usr/bin/nebula",
  ],
  [{ from: "1.12.0", to: "1.12.0", changed: false }, "/e is already 1.12.0"],
])("an engine that was installed: %j", (outcome, text) => {
  expect(outcomeText({ path: "/e", ...outcome })).toBe(text);
});

test("one warning of doctor is not several", () => {
  const warning = { id: "engine", verdict: "warn", evidence: "old", remedy: "update" } as const;
  expect(renderChecks([warning])).toEndWith("\n0 failed, 1 warning, 0 ok or skipped\n");
  expect(renderChecks([warning, warning])).toEndWith("\n0 failed, 2 warnings, 0 ok or skipped\n");
});
