import { expect, test } from "bun:test";
import { diskSpaceAt, worstDisk } from "../../src/base/disk-space.ts";

const MB = 1_000_000;

test.each([
  [100_000, 50_000, 1000, "ok"],
  // A tenth of a large disk is much.
  [1_000_000, 3000, 1000, "ok"],
  [100_000, 1999, 1000, "filling"],
  // Small disks: a tenth.
  [1000, 150, 1000, "ok"],
  [1000, 99, 1000, "filling"],
  [1000, 15, 1000, "full"],
  [1000, 500, 0, "full"],
  // A disk smaller than what is little on others, such as a partition for a configuration.
  [8, 7, 1000, "ok"],
  [100, 9, 1000, "filling"],
  [100, 4, 1000, "full"],
] as const)("a disk of %i MB with %i MB and %i inodes free is %s", (total, free, inodes, state) => {
  const stat = () => ({ bsize: MB, blocks: total, bavail: free, files: 1000, ffree: inodes });
  expect(diskSpaceAt("/", stat)?.state).toBe(state);
});

test("of several places, the disk in the worst state counts", () => {
  const free: Record<string, number> = { "/a": 500, "/b": 15, "/c": 99 };
  const stat = (path: string) => ({ bsize: MB, blocks: 1000, bavail: free[path] ?? 0, files: 9, ffree: 9 });
  expect(worstDisk(["/a", "/b", "/c"], stat)?.text).toContain("/b");
  expect(worstDisk(["/a", "/c"], stat)?.state).toBe("filling");
  expect(worstDisk([], stat)).toBeUndefined();
});

test("a place that is not there has no state", () => {
  expect(diskSpaceAt("/nonexistent/place")).toBeUndefined();
});
