// Puts a newly installed engine into use: restarts the engines that run another one, and finds those that still do not
// run it. If one does not start, the former engine is restored and all are restarted.

import type { Step } from "../../base/plan/plan.ts";
import { quoteWord } from "../../base/quote.ts";
import { statSync } from "node:fs";
import { join } from "node:path";
import { brand } from "../../brand.ts";
import { AppError, messageOf } from "../../base/errors.ts";
import type { Log } from "../../base/log.ts";
import type { ProcessIdentity } from "../../platform/process-identity.ts";
import { engineUnit } from "../../platform/systemd/systemd.ts";
import { testConfig, type EngineRunner } from "../engine/engine.ts";
import { engineInUse, runsFile, type VersionOf } from "../engine/engine-in-use.ts";

export type Member = {
  slug: string;
  /** Its process, and the program of its next start. */
  examine(): Promise<{ process: ProcessIdentity | undefined; program: string | undefined }>;
  /** Writes what the new engine needs from its start on. Does not reject: the others still wait for their restart. */
  prepare(version: string): Promise<void>;
  /** Resolves when the engine is active. Undefined: neither systemd nor the daemon runs this engine. */
  restart: (() => Promise<void>) | undefined;
  /** The steps of the restart for --dry-run. */
  plan: readonly Step[];
  /** Reports the engine in use, and applies the configuration that the control plane then renders. */
  synchronize(): Promise<void>;
};

/** The engine that an organization runs, or would run at its next start. `current`: the installed engine. */
type MemberEngine = {
  org_slug: string;
  path: string | null;
  version: string | null;
  running: boolean;
  current: boolean;
};

type Engine = { path: string; version: string };

/**
 * After a downgrade the older engine may refuse the present configuration. Before any restart, the node applies one
 * that both versions accept.
 */
export async function adaptConfigurations(
  members: readonly Member[],
  engine: Engine,
  configRoot: string,
  undo: () => Promise<boolean>,
  { log, system }: { log: Log; system: EngineRunner },
): Promise<void> {
  for (const { slug, examine, synchronize } of members) {
    // Its unit starts another engine, now and later.
    if (!isSameFile((await examine()).program, engine.path)) continue;
    const path = join(configRoot, slug, "config.yml");
    const test = () => testConfig(engine.path, path, system);
    try {
      await test();
      continue;
    } catch (error) {
      log.info(`${slug}: ${messageOf(error)}; fetching a configuration for ${engine.version}`);
    }
    try {
      await synchronize();
      await test();
    } catch (error) {
      if ((await examine()).process === undefined) {
        log.warn(
          `${slug}, which does not run, has no configuration for ${engine.version}: ${messageOf(error)}`,
        );
        continue;
      }
      const hint = (await undo())
        ? "The previous engine is restored. Nothing was restarted."
        : "The previous engine cannot be restored. Nothing was restarted.";
      const why = `${slug} has no configuration for ${engine.version}: ${messageOf(error)}`;
      throw new AppError("engine_failed", why, { cause: error, hint });
    }
  }
}

/**
 * Restarts the running engines, one after the other: all if the file was just replaced (`isNew`), else those that do not run
 * it. `undo` puts the former engine back, and returns false if it cannot. `former`: the path of that engine.
 */
export async function switchEngines(
  members: readonly Member[],
  engine: Engine,
  undo: () => Promise<boolean>,
  {
    isNew,
    former,
    versionOf,
    log,
  }: { isNew: boolean; former: string | undefined; versionOf: VersionOf; log: Log },
): Promise<void> {
  const restarted: Member[] = [];
  for (const member of members) {
    const { process, program } = await member.examine();
    const { restart } = member;
    // Skip it: its next start would not run the new engine either, so a restart only interrupts.
    if (process === undefined || restart === undefined || !isSameFile(program, engine.path)) continue;
    if (!isNew && (await runsFile(process, engine.path, versionOf)) === true) continue;
    restarted.push(member);
    try {
      await member.prepare(engine.version);
      await restart();
    } catch (error) {
      // Another failure, such as a lock that is taken, says nothing about the new engine.
      if (!(error instanceof AppError) || error.code !== "engine_failed") {
        log.error(`${member.slug} is not restarted: ${messageOf(error)}`);
        continue;
      }
      const isUndone = await undo();
      const formerVersion = former === undefined ? undefined : await versionOf(former).catch(() => undefined);
      for (const each of isUndone ? restarted : []) {
        // Notes the former engine as the one that ran last: else a start would refuse it for being older than the new one.
        if (formerVersion !== undefined) await each.prepare(formerVersion);
        await each.restart?.().catch((reason: unknown) => log.error(`${each.slug}: ${messageOf(reason)}`));
      }
      const why = `${member.slug} does not run with ${engine.version}: ${messageOf(error)}`;
      const hint = isUndone
        ? "The previous engine is restored and running."
        : `The previous engine cannot be restored. See ${brand.executable} logs ${quoteWord(member.slug)}.`;
      throw new AppError("engine_failed", why, { cause: error, hint });
    }
  }
}

/** The engine that each organization runs now. */
export function examineMembers(
  members: readonly Pick<Member, "slug" | "examine">[],
  engine: Engine,
  versionOf: VersionOf,
): Promise<MemberEngine[]> {
  return Promise.all(
    members.map(async ({ slug, examine }) => {
      const { process, program } = await examine();
      const inUse = await engineInUse(process, program, versionOf);
      const version = process === undefined ? inUse.version : inUse.running;
      const starts = isSameFile(program, engine.path);
      return {
        org_slug: slug,
        path: program ?? null,
        version: version ?? null,
        running: process !== undefined,
        current:
          starts && (process === undefined || (await runsFile(process, engine.path, versionOf)) === true),
      };
    }),
  );
}

/** An organization that does not run the installed engine, and the command that helps. */
export function describeMember(
  { org_slug: slug, path, version, running }: MemberEngine,
  engine: Engine,
): { what: string; next: string } {
  const known = version ?? "an unknown version";
  if (path === null || isSameFile(path, engine.path)) {
    const next = `${brand.executable} restart ${quoteWord(slug)}`;
    const instead =
      known === engine.version
        ? `a former file of ${known}`
        : `${known}, not the installed ${engine.version}`;
    return { what: `${slug} still runs ${instead}`, next };
  }
  const verb = running ? "runs" : "would start";
  return {
    what: `${slug} ${verb} ${path} (${known}), not ${engine.path}, because its unit says so`,
    next: `systemctl cat ${quoteWord(engineUnit(slug))}`,
  };
}

/** Undefined counts as the same: the daemon of an organization decides as this command does. */
function isSameFile(program: string | undefined, path: string): boolean {
  if (program === undefined || program === path) return true;
  const ofProgram = statSync(program, { throwIfNoEntry: false });
  const ofPath = statSync(path, { throwIfNoEntry: false });
  return ofProgram !== undefined && ofProgram.dev === ofPath?.dev && ofProgram.ino === ofPath.ino;
}
