// Debian trees in directories, made once by mmdebstrap and kept. Tests boot them or chroot into them.

import { existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { cacheDirectory } from "./cache.ts";
import { cannotInstall, debianMirror, debianRelease, installMissing, runSync } from "./debian.ts";

/** The reason why no tree can be made here, or undefined. */
export function cannotMakeTrees(): string | undefined {
  return cannotInstall() ?? installMissing(["/usr/bin/mmdebstrap"]);
}

/**
 * Concurrent test files that need the same tree wait here for the first one. mmdebstrap takes less than half the processor
 * time of debootstrap. The directory is private to root; programs with this root must be able to enter it.
 */
const makeOnce = `
  tree=$1 work=$2
  shift 2
  [ ! -e "$tree" ] || exit 0
  mmdebstrap "$@"
  chmod 755 "$work"
  mv -T "$work" "$tree"`;

/** The read-only tree of that name with these packages, of the same release as this machine unless another is named. */
export function debianTree(name: string, packages: readonly string[], release = debianRelease()): string {
  const list = packages.join(",");
  const tree = join(cacheDirectory, `debian-${release}-${name}-${Bun.hash(list).toString(36)}`);
  if (existsSync(tree)) return tree;
  mkdirSync(cacheDirectory, { recursive: true });
  const work = mkdtempSync(`${tree}.`);
  try {
    const what = [
      "--quiet",
      "--skip=cleanup/reproducible",
      "--variant=minbase",
      "--dpkgopt=force-unsafe-io",
      `--include=${list}`,
      release,
      work,
      debianMirror(),
    ];
    runSync(["flock", `${tree}.lock`, "/bin/sh", "-euc", makeOnce, "sh", tree, work, ...what]);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
  return tree;
}

/** A writable tree: changes stay in memory until disposal. `layers`: directories with additional files. */
export function overlayTree(tree: string, layers: readonly string[] = []): Disposable & { root: string } {
  const directory = mkdtempSync(join(tmpdir(), "tree-"));
  const root = join(directory, "root");
  // In memory: independent of a busy disk, and an overlay over an overlay would not be writable.
  runSync(["mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", directory]);
  for (const each of ["root", "upper", "work"]) mkdirSync(join(directory, each));
  const options = `lowerdir=${[...layers, tree].join(":")},upperdir=${directory}/upper,workdir=${directory}/work`;
  runSync(["mount", "-t", "overlay", "overlay", "-o", options, root]);
  return {
    root,
    [Symbol.dispose]() {
      runSync(["umount", "--lazy", root, directory]);
      rmSync(directory, { recursive: true, force: true });
    },
  };
}
