// Debian packages of other suites and processors: downloaded with apt and unpacked into a directory. Never installed.

import { existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { cacheDirectory } from "./cache.ts";
import { debianMirror, debianRelease, runSync } from "./debian.ts";

const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg";

/** Unpacks the package in `target`. Concurrent test runs are safe. Default suite: this machine's release. */
export function unpackPackage(
  name: string,
  target: string,
  { suite = debianRelease(), architecture }: { suite?: string; architecture?: string } = {},
): void {
  mkdirSync(dirname(target), { recursive: true });
  const work = mkdtempSync(join(dirname(target), "fetch-"));
  try {
    for (const each of ["state/lists/partial", "cache/archives/partial", "root"])
      mkdirSync(join(work, each), { recursive: true });
    writeFileSync(join(work, "sources.list"), `deb [signed-by=${keyring}] ${debianMirror()} ${suite} main\n`);
    const options = [
      `Dir::Etc::sourcelist=${work}/sources.list`,
      "Dir::Etc::sourceparts=-",
      `Dir::State=${work}/state`,
      "Dir::State::status=/dev/null",
      `Dir::Cache=${work}/cache`,
      "Acquire::Languages=none",
      "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
      "APT::Sandbox::User=root",
      // A mirror may be out of date; its signature is still verified.
      "Acquire::Check-Valid-Until=false",
      ...(architecture === undefined ? [] : [`APT::Architecture=${architecture}`]),
    ].flatMap((option) => ["-o", option]);
    runSync(["apt-get", "-q", ...options, "update"]);
    runSync(["apt-get", "-q", ...options, "download", name], { cwd: work });
    const archive = readdirSync(work).find((file) => file.endsWith(".deb"));
    if (archive === undefined) throw new Error("apt-get download left no archive");
    runSync(["dpkg", "-x", join(work, archive), join(work, "root")]);
    moveUnlessThere(join(work, "root"), target);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

/**
 * Busybox of this package. A machine has one of both at the same path, and which one matters: the static one crashes when
 * it downloads, and the other one needs the libraries of the machine.
 */
export function busybox(name: "busybox" | "busybox-static"): string {
  const target = join(cacheDirectory, name);
  if (!existsSync(target)) unpackPackage(name, target);
  return join(target, "bin/busybox");
}

/** Another test run may have put the same there in the meantime. */
export function moveUnlessThere(from: string, target: string): void {
  try {
    renameSync(from, target);
  } catch (error) {
    if (!existsSync(target)) throw error;
  }
}
