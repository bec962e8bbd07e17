// The real engines that tests run: Debian's own (1.6.1 on bookworm) and the newest that Debian has (sid), which is
// unpacked in .cache/engines/; nothing of sid is ever installed.

import { existsSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "bun:test";
import { cannotInstall, enginePrograms, inCi, installMissing, runSync } from "./debian.ts";
import { unpackPackage } from "./packages.ts";

export type Engine = { version: string; nebula: string; nebulaCert: string };

const cache = join(import.meta.dir, "../../.cache/engines");

function engineAt(directory: string): Engine {
  const nebula = join(directory, "nebula");
  const version = /^Version: (\S+)/.exec(runSync([nebula, "-version"]))?.[1];
  if (version === undefined) throw new Error(`${nebula} does not say its version`);
  return { version, nebula, nebulaCert: join(directory, "nebula-cert") };
}

function newest(): Engine {
  const target = join(cache, "sid");
  if (!existsSync(join(target, "usr/bin/nebula"))) unpackPackage("nebula", target, { suite: "sid" });
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
