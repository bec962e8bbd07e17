// How long this server knows the versions of an organization.

import { expect, test } from "bun:test";
import { appliedMs, makeVersionAges } from "../../../../src/server/nodes/contact/version-ages.ts";

test("a version is long known after ten minutes, also if the clock was set back meanwhile", () => {
  const clock = { wall: 1_800_000_000_000, passed: 0 };
  const ages = makeVersionAges({ now: () => clock.wall, monotonic: () => clock.passed });
  const versions = { configVersion: 7, namesVersion: 3, lastVersion: 7 };
  ages.note(1, versions);
  clock.wall -= 86_400_000;
  clock.passed += appliedMs - 1;
  expect(ages.longKnown(1)).toBeUndefined();
  clock.passed += 1;
  expect(ages.longKnown(1)).toMatchObject(versions);
});
