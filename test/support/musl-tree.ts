// A tree as a bare Alpine has it: busybox, musl as the C library, and the C++ library that our executable for musl needs. Debian
// has the first two as packages; the third is linked anew from its static one.

import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { cacheDirectory } from "./cache.ts";
import { runSync } from "./debian.ts";
import { busybox, moveUnlessThere } from "./packages.ts";

const loader = "/lib/ld-musl-x86_64.so.1";
/** What the tree needs from Debian. */
export const muslPrograms = [loader, "/usr/bin/g++"];

/** What Debian's C++ library takes from glibc, and musl lacks. Destructors of threads do not run. */
const lacking = `#include <stddef.h>
#include <sys/syscall.h>
long syscall(long, ...);
size_t strftime_l(char *, size_t, const char *, const void *, void *);
char __libc_single_threaded = 0;
void *__dso_handle = 0;
int _dl_find_object(void *address, void *result) { return -1; }
unsigned arc4random(void) { unsigned v; syscall(SYS_getrandom, &v, sizeof v, 0); return v; }
size_t __strftime_l(char *s, size_t n, const char *f, const void *t, void *l) { return strftime_l(s, n, f, t, l); }
int __cxa_thread_atexit_impl(void (*f)(void *), void *o, void *d) { return 0; }
`;

/** The read-only tree, made once. Needs `muslPrograms`. */
export function muslTree(): string {
  const tree = join(cacheDirectory, `musl-${Bun.hash(lacking).toString(36)}`);
  if (existsSync(tree)) return tree;
  mkdirSync(cacheDirectory, { recursive: true });
  const work = mkdtempSync(`${tree}.`);
  try {
    runSync(["chmod", "755", work]);
    for (const each of [
      "bin",
      "dev",
      "etc",
      "lib",
      "proc",
      "root",
      "sys",
      "tmp",
      "usr/bin",
      "usr/lib",
      "usr/local/bin",
    ])
      mkdirSync(join(work, each), { recursive: true });
    // Not the static one, which crashes when it downloads: it runs with the libraries of this machine.
    copyWithLibraries(busybox("busybox"), work, "bin/busybox");
    copyFileSync(realpathSync(loader), join(work, loader));
    symlinkSync("ld-musl-x86_64.so.1", join(work, "lib/libc.musl-x86_64.so.1"));
    symlinkSync(`../..${loader}`, join(work, "usr/bin/ldd"));
    linkCxxLibrary(join(work, "usr/lib/libstdc++.so.6"));
    runSync(["chroot", work, "/bin/busybox", "--install", "-s", "/bin"]);
    moveUnlessThere(work, tree);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
  return tree;
}

/** At the same places as on this machine, where musl does not look. */
function copyWithLibraries(program: string, tree: string, target: string): void {
  copyFileSync(program, join(tree, target));
  for (const [path] of runSync(["ldd", program]).matchAll(/\/\S+(?= \()/g)) {
    mkdirSync(join(tree, dirname(path)), { recursive: true });
    copyFileSync(realpathSync(path), join(tree, path));
  }
}

function linkCxxLibrary(target: string): void {
  const source = `${target}.c`;
  writeFileSync(source, lacking);
  const library = (name: string) => runSync(["g++", `-print-file-name=${name}`]).trim();
  const whole = [source, library("libstdc++.a"), library("libgcc_eh.a")];
  const named = ["-shared", "-nostdlib", "-fPIC", "-w", "-o", target, "-Wl,-soname,libstdc++.so.6"];
  runSync(["gcc", ...named, "-Wl,--whole-archive", ...whole, "-Wl,--no-whole-archive", library("libgcc.a")]);
  rmSync(source);
}
