// The real engines of the tests: Debian's (1.6.1 on bookworm), the newest one in Debian (sid), and releases built from
// source. All but the first are kept for all checkouts; no package of sid is installed.

import { existsSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "bun:test";
import { cacheDirectory } from "./cache.ts";
import { buildEngine, type Release } from "./build-engine.ts";
import { cannotInstall, enginePrograms, inCi, installMissing, runSync } from "./debian.ts";
import { unpackPackage } from "./packages.ts";
import { isDue } from "./last-soak.ts";
import { inFull } from "./soak.ts";
import { olderEngines } from "./test-files.ts";

export type Engine = { version: string; nebula: string; nebulaCert: string };

const cache = join(cacheDirectory, "engines");

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

function released(version: Release): Engine {
  const target = join(cache, version);
  buildEngine(version, target);
  return engineAt(target);
}

const sources = {
  debian: () => engineAt("/usr/bin"),
  sid: newest,
  "1.10": () => released("1.10.3"),
  "1.12": () => released("1.12.0"),
} as const;
export type EngineName = keyof typeof sources;
export const engineNames: readonly EngineName[] = ["debian", "1.10", "sid", "1.12"];

/** The engines of most tests: the oldest, the newest of Debian, the newest. */
const usualNames = ["debian", "sid", "1.12"] as const;
/** Of tests in which each feature of an engine matters: 1.10, which lies between the others, only in long runs. */
export const allEngines: readonly EngineName[] = inFull ? engineNames : usualNames;

/** One engine, for benches. */
export const engineNamed = (name: EngineName): Engine => sources[name]();

type Found = { engines: Engine[]; missing: string | undefined };

/** The engines available here; `missing` is the reason if one is not. */
function find(names: readonly EngineName[]): Found {
  const missing = installMissing(enginePrograms);
  if (missing !== undefined) return { engines: [], missing };
  const found: Found = { engines: [], missing: undefined };
  for (const name of names) {
    try {
      found.engines.push(sources[name]());
    } catch (error) {
      found.missing ??= name === "sid" ? (cannotInstall() ?? String(error)) : String(error);
    }
  }
  return found;
}

const usual = find(usualNames);
const onAllEngines = isDue(olderEngines);

/** Ready when the module is loaded. */
export const { engines, missing } = usual;

/**
 * Runs the same tests on the newest of these engines, and on the older ones where they are due. Without an engine they
 * are skipped with the reason; in CI they fail.
 */
export function describeEngines(
  name: string,
  tests: (engine: Engine) => void,
  which?: readonly EngineName[],
): void {
  const { engines, missing } = which === undefined ? usual : find(which);
  for (const engine of onAllEngines ? engines : engines.slice(-1))
    describe(`${name}, engine ${engine.version}`, () => tests(engine));
  sayMissing(name, missing);
}

/**
 * For what keeps a network safe, and for what we do ourselves where an engine cannot: always on each engine. Of many
 * cases, the older engines take a tenth where they are not due (`inPart`).
 */
export function describeEveryEngine(name: string, tests: (engine: Engine, inPart: boolean) => void): void {
  const { engines, missing } = usual;
  for (const engine of engines) {
    const inPart = !onAllEngines && engine !== engines.at(-1);
    describe(`${name}, engine ${engine.version}`, () => tests(engine, inPart));
  }
  sayMissing(name, missing);
}

/** One set of tests with several engines at once. */
export function describeTogether(
  name: string,
  tests: (engines: readonly Engine[]) => void,
  which: readonly EngineName[],
): void {
  const { engines, missing } = find(which);
  describe(name, () => tests(engines));
  sayMissing(name, missing);
}

function sayMissing(name: string, missing: string | undefined): void {
  if (missing === undefined) return;
  const reason = `${name}: no engine: ${missing}`;
  if (inCi) test(reason, () => Promise.reject(new Error(reason)));
  else test.skip(reason, () => {});
}

/** Tests that need root (namespaces, tun devices): without root they are skipped with the reason, and fail in CI. */
export const asRoot = process.getuid?.() === 0 || inCi ? describe : describe.skip;
