// A disk whose writes fail with input/output errors: a file system in a sparse file, on a disk in memory that is full. The
// kernel tells of the lost writes as of a broken disk's, and the file system ends its journal.

import { existsSync, mkdirSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { runSync } from "./debian.ts";

export type FailingDisk = Disposable & {
  path: string;
  /** From now on nothing new reaches the disk. Resolves when the file system has met it. */
  fail(): void;
  /** The disk works again: examines it, and mounts it anew in the same place. */
  mend(): void;
};

/** Needs root and loop devices. `directory` must exist and be empty. */
export function failingDisk(directory: string, megabytes = 192): FailingDisk {
  const [memory, path] = [join(directory, "memory"), join(directory, "disk")];
  for (const each of [memory, path]) mkdirSync(each);
  runSync(["mount", "-t", "tmpfs", "-o", `size=${megabytes + 16}m`, "tmpfs", memory]);
  const [image, filling] = [join(memory, "image"), join(memory, "filling")];
  writeFileSync(image, "");
  truncateSync(image, megabytes * 1024 * 1024);
  runSync(["mkfs.ext4", "-q", "-E", "nodiscard,lazy_itable_init=1", image]);
  // A device of its own each time: who still has files of the former mount open keeps that one, which is read-only.
  const mount = () => {
    const device = runSync(["losetup", "--find", "--show", image]).trim();
    runSync(["mount", "-o", "nodiscard", device, path]);
    // It ends with its last use.
    runSync(["losetup", "--detach", device]);
  };
  mount();
  return {
    path,
    fail: () => {
      // What was written before without a sync is there, as after some seconds.
      runSync(["sync", "--file-system", path]);
      Bun.spawnSync(["dd", "if=/dev/zero", `of=${filling}`, "bs=64k"], { stderr: "ignore" });
      // Some blocks of the image are there already: what is written to the others is lost.
      Bun.spawnSync(["dd", "if=/dev/zero", `of=${join(path, "lost")}`, "bs=64k", "count=256", "conv=fsync"], {
        stderr: "ignore",
      });
    },
    mend: () => {
      rmSync(filling, { force: true });
      runSync(["umount", "--lazy", path]);
      // 1: errors were corrected.
      Bun.spawnSync(["e2fsck", "-fy", image], { stdout: "ignore", stderr: "ignore" });
      mount();
      rmSync(join(path, "lost"), { force: true });
    },
    [Symbol.dispose]: () => {
      for (const each of [path, memory]) if (existsSync(each)) runSync(["umount", "--lazy", each]);
    },
  };
}
