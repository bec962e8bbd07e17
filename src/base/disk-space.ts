// How full a disk is, in the words that control plane, node, doctor and console share.

import { statfsSync, type StatsFs } from "node:fs";
import { formatSize } from "./quantities.ts";

/**
 * `filling`: less than a tenth, and less than 2 GB, is free. `full`: less than a twentieth, and less than 16 MB, is free, or no inode:
 * the next write may fail.
 */
export type DiskState = "ok" | "filling" | "full";
type Space = Pick<StatsFs, "bavail" | "blocks" | "bsize" | "ffree" | "files">;
export type DiskSpace = { state: DiskState; freeBytes: number; totalBytes: number; text: string };

const fullBytes = 16_000_000;
const fillingBytes = 2_000_000_000;

/** The gravest state first. */
const states: readonly DiskState[] = ["full", "filling", "ok"];

/** The disk in the worst state among those that hold these paths. */
export function worstDisk(paths: readonly string[], stat?: (path: string) => Space): DiskSpace | undefined {
  const [worst] = paths
    .flatMap((path) => diskSpaceAt(path, stat) ?? [])
    .toSorted((a, b) => states.indexOf(a.state) - states.indexOf(b.state));
  return worst;
}

/** Undefined where the system does not report it. */
export function diskSpaceAt(path: string, stat: (path: string) => Space = statfsSync): DiskSpace | undefined {
  try {
    const { bavail, blocks, bsize, ffree, files } = stat(path);
    const freeBytes = bavail * bsize;
    const totalBytes = blocks * bsize;
    // Some file systems have no limit of inodes, and report none.
    const noInode = files > 0 && ffree === 0;
    let state: DiskState = "ok";
    if (freeBytes < fillingBytes && freeBytes < totalBytes / 10) state = "filling";
    if (noInode || (freeBytes < fullBytes && freeBytes < totalBytes / 20)) state = "full";
    const text = noInode
      ? `no inode is free at ${path}`
      : `${formatSize(freeBytes)} of ${formatSize(totalBytes)} are free at ${path}`;
    return { state, freeBytes, totalBytes, text };
  } catch {
    return undefined;
  }
}
