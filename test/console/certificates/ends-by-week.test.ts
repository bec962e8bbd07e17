// The histogram of the certificates that end.

import { expect, test } from "bun:test";
import { endsByWeek, renewalShare, weeks } from "../../../src/console/certificates/ends-by-week.ts";

test("certificates are counted by the week in which they end, and those that ended apart", () => {
  const day = 86_400_000;
  const { counts, ended } = endsByWeek([-day, 1, 6.9 * day, 7 * day, 89 * day, 400 * day], 0);
  expect(counts).toHaveLength(weeks);
  expect([counts[0], counts[1], counts.at(-1), ended]).toEqual([2, 1, 2, 1]);
  // Thirty of ninety days.
  expect(renewalShare * weeks * 7).toBe(30);
});
