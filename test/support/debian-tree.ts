// Debian trees in a directory, made by debootstrap once and kept under .cache/: what tests boot, or change their root to.

import { existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { cannotInstall, debianMirror, debianRelease, installMissing, runSync } from "./debian.ts";

const cache = join(import.meta.dir, "../../.cache");

/** A sentence that says why none can be made here, or undefined. */
export function cannotMakeTrees(): string | undefined {
  return cannotInstall() ?? installMissing(["/usr/sbin/debootstrap"]);
}

/**
 * Test files that run side by side and need the same tree wait here for the first of them. The tree is made for root
 * alone; programs that have it as their root must be able to enter it.
 */
const makeOnce = `
  tree=$1 work=$2
  shift 2
  [ ! -e "$tree" ] || exit 0
  debootstrap "$@"
  chmod 755 "$work"
  mv -T "$work" "$tree"`;

/** The tree of that name with these packages, to be read only. It is the same release as this machine's. */
export function debianTree(name: string, packages: readonly string[]): string {
  const list = packages.join(",");
  const tree = join(cache, `debian-${debianRelease()}-${name}-${Bun.hash(list).toString(36)}`);
  if (existsSync(tree)) return tree;
  mkdirSync(cache, { recursive: true });
  const work = mkdtempSync(`${tree}.`);
  try {
    const what = ["--variant=minbase", `--include=${list}`, debianRelease(), work, debianMirror()];
    runSync(["flock", `${tree}.lock`, "/bin/sh", "-euc", makeOnce, "sh", tree, work, ...what]);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
  return tree;
}

/** A tree that may be written to: changes are kept in memory, until it is disposed of. `layers`: directories whose files it has too. */
export function overlayTree(tree: string, layers: readonly string[] = []): Disposable & { root: string } {
  const directory = mkdtempSync(join(tmpdir(), "tree-"));
  const root = join(directory, "root");
  // In memory: no disk that others keep busy, and an overlay over an overlay could not be written to.
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
