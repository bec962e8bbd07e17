// The real engines that tests run: Debian's own (1.6.1 on bookworm) and the newest that Debian has (sid), fetched
// with apt's own client into .cache/engines/ and unpacked there; nothing of sid is ever installed.

import { existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "bun:test";
import { cannotInstall, debianMirror, enginePrograms, inCi, installMissing, runSync } from "./debian.ts";

export type Engine = { version: string; nebula: string; nebulaCert: string };

const cache = join(import.meta.dir, "../../.cache/engines");
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg";

function engineAt(directory: string): Engine {
  const nebula = join(directory, "nebula");
  const version = /^Version: (\S+)/.exec(runSync([nebula, "-version"]))?.[1];
  if (version === undefined) throw new Error(`${nebula} does not say its version`);
  return { version, nebula, nebulaCert: join(directory, "nebula-cert") };
}

/** Downloads and unpacks the engine of Debian's unstable suite; several test runs may do so at the same time. */
function fetchNewest(target: string): void {
  mkdirSync(cache, { recursive: true });
  const work = mkdtempSync(join(cache, "fetch-"));
  try {
    for (const each of ["state/lists/partial", "cache/archives/partial", "root"])
      mkdirSync(join(work, each), { recursive: true });
    const source = `deb [signed-by=${keyring}] ${debianMirror()} sid main\n`;
    writeFileSync(join(work, "sources.list"), source);
    const options = [
      `Dir::Etc::sourcelist=${work}/sources.list`,
      "Dir::Etc::sourceparts=-",
      `Dir::State=${work}/state`,
      "Dir::State::status=/dev/null",
      `Dir::Cache=${work}/cache`,
      "Acquire::Languages=none",
      "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
      "APT::Sandbox::User=root",
      // A mirror may lag behind; who signed it is still checked.
      "Acquire::Check-Valid-Until=false",
    ].flatMap((option) => ["-o", option]);
    runSync(["apt-get", "-q", ...options, "update"]);
    runSync(["apt-get", "-q", ...options, "download", "nebula"], { cwd: work });
    const archive = readdirSync(work).find((name) => name.endsWith(".deb"));
    if (archive === undefined) throw new Error("apt-get download left no archive");
    runSync(["dpkg", "-x", join(work, archive), join(work, "root")]);
    if (!existsSync(target)) renameSync(join(work, "root"), target);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

function newest(): Engine {
  const target = join(cache, "sid");
  if (!existsSync(join(target, "usr/bin/nebula"))) fetchNewest(target);
  return engineAt(join(target, "usr/bin"));
}

function find(): { engines: Engine[]; missing: string | undefined } {
  const missing = installMissing(enginePrograms);
  if (missing !== undefined) return { engines: [], missing };
  const own = engineAt("/usr/bin");
  try {
    return { engines: [own, newest()], missing: undefined };
  } catch (error) {
    return { engines: [own], missing: cannotInstall() ?? String(error) };
  }
}

/** Ready when the module is loaded. `missing` says in a sentence why an engine could not be had. */
export const { engines, missing } = find();

/** The same tests on each engine. One that cannot be had is said and counts as skipped; in CI it fails. */
export function describeEngines(name: string, tests: (engine: Engine) => void): void {
  for (const engine of engines) describe(`${name}, engine ${engine.version}`, () => tests(engine));
  if (missing === undefined) return;
  const reason = `${name}: no engine: ${missing}`;
  if (inCi) test(reason, () => Promise.reject(new Error(reason)));
  else test.skip(reason, () => {});
}

/** Tests that need root (namespaces, tun devices): skipped with the reason for others; in CI they run and fail. */
export const asRoot = process.getuid?.() === 0 || inCi ? describe : describe.skip;
