// Taking back what exits and routers changed: what another part takes back at the same moment is no failure.

import { expect, test } from "bun:test";
import { realSystem } from "../../../src/base/system.ts";
import { applyPossible } from "../../../src/node/edge/undo-edge.ts";
import type { Change } from "../../../src/platform/machine-changes.ts";

const failing: Change = { change: "run", argv: ["/bin/sh", "-c", "echo it is gone >&2; exit 2"] };
const working: Change = { change: "run", argv: ["/bin/sh", "-c", "exit 0"] };

test("what failed is listed once more, and is told only if it fails again", async () => {
  const lists = [[failing, working], [working]];
  expect(await applyPossible(async () => lists.shift() ?? [], realSystem())).toEqual([]);
  expect(lists).toEqual([]);
  const left = await applyPossible(async () => [failing, working], realSystem());
  expect(left).toEqual([{ path: failing.argv.join(" "), reason: expect.stringContaining("it is gone") }]);
});
