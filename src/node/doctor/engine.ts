// Examines the engine of one organization: which one runs, which one its next start would run, and how it exchanges packets
// with the kernel.

import { existsSync } from "node:fs";
import { brand } from "../../brand.ts";
import { quoteWord } from "../../base/quote.ts";
import type { System } from "../../base/system.ts";
import { isOlderThan, parseEngineVersion } from "../../engine/features.ts";
import { ageOf } from "../../platform/process-identity.ts";
import { examineEngine, type OrganizationSettings } from "../contact/organization-deps.ts";
import { rememberVersions } from "../engine/engine.ts";
import { runningVersion, type VersionOf } from "../engine/engine-in-use.ts";
import { findEngine, type EngineFile } from "../engine/find-engine.ts";
import { shownDataPlane } from "../files/config/data-plane-in-force.ts";
import { readSyncState } from "../files/generations.ts";
import type { Organization } from "../files/organizations.ts";
import { describeMember, examineMembers } from "../update/overlay-switch.ts";
import { fail, ok, skipped, warn, type Finding } from "./check.ts";

const run = brand.executable;

type EngineDeps = { settings: OrganizationSettings; system: System };

/** Whether the organization runs the installed engine: after an update it runs the former one until it is restarted. */
export async function examineEngineInUse(
  organization: Organization,
  { settings, system }: EngineDeps,
): Promise<Finding> {
  const versionOf = rememberVersions(system);
  const found = findEngine(settings, system);
  const deleted = await deletedEngine(organization, found, { settings, system }, versionOf);
  if (deleted !== undefined) return deleted;
  if (found === undefined) return skipped("no engine is installed");
  const engine = { path: found.path, version: await versionOf(found.path) };
  const examine = () => examineEngine(organization, settings, system);
  const member = { slug: organization.slug, examine };
  const [state] = await examineMembers([member], engine, versionOf);
  if (state === undefined || state.current)
    return ok(
      `${state?.running === true ? "it runs" : "its next start runs"} ${engine.path} ${engine.version}`,
    );
  const { what, next } = describeMember(state, engine);
  // A warning only: without a running engine, the version changes at the next start.
  return state.running ? fail(what, next) : warn(what, next);
}

/** Finds a running engine whose file was deleted, if its next start would run an older one, or none. */
async function deletedEngine(
  organization: Organization,
  found: EngineFile | undefined,
  { settings, system }: EngineDeps,
  versionOf: VersionOf,
): Promise<Finding | undefined> {
  const { process } = await examineEngine(organization, settings, system);
  if (process === undefined || existsSync(settings.overlayBinary)) return undefined;
  // Undefined: the file is gone, so the version is read from the program in memory.
  const running = await runningVersion(process, undefined, versionOf);
  const evidence = `it runs ${running ?? "an engine"}, and its file ${settings.overlayBinary} is gone`;
  const cure = `${run} overlay install`;
  if (found === undefined) return fail(`${evidence}: its next start would fail`, cure);
  const next = await versionOf(found.path);
  return running !== undefined && isOlderThan(parseEngineVersion(next), parseEngineVersion(running))
    ? fail(`${evidence}: its next start would run ${found.path} ${next}, which is older`, cure)
    : undefined;
}

/** How the engine exchanges packets with the kernel: most of its throughput. */
export async function examineOffloads(
  organization: Organization,
  { settings, system }: EngineDeps,
): Promise<Finding> {
  const dataPlane = readSyncState(organization.directory)?.data_plane;
  if (dataPlane === undefined) return skipped("not decided yet: the next check-in decides");
  const { process } = await examineEngine(organization, settings, system);
  const startedAt = process === undefined ? undefined : system.now() - ageOf(process);
  const { why, reason = "" } = shownDataPlane(dataPlane, startedAt).data_plane ?? {};
  switch (why) {
    case undefined:
      return ok("kernel and engine exchange large packets");
    case "engine":
      return warn(reason, `${run} overlay update`);
    case "restart":
      return warn(reason, `${run} restart ${quoteWord(organization.slug)}`);
    case "limit":
    case "refused":
    case "segments":
      return warn(reason, "Ask the administrator of this machine's host");
    case "traffic":
      return warn(reason, "Update the kernel or the engine: both are then tried again");
    // Meant so, or nothing can be done about it.
    case "platform":
    case "kernel":
    case "organization":
    case "root":
      return ok(reason);
  }
}
