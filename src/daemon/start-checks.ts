// Checks before an engine starts: access is not revoked, the engine's version is allowed, the engine accepts the
// configuration, and no other organization uses the same device, port or network. It must not start anything.

import { join } from "node:path";
import { isOlderThan, parseEngineVersion } from "../engine/features.ts";
import { brand } from "../brand.ts";
import { AppError } from "../base/errors.ts";
import { readSyncState } from "../node/files/generations.ts";
import type { Log } from "../base/log.ts";
import { refuseEngineVersion, rememberVersions, testConfig } from "../node/engine/engine.ts";
import type { Organization } from "../node/files/organizations.ts";
import { refuseForeignFiles } from "../node/files/own-files.ts";
import { readRevokedNote, refuseRevoked } from "../node/files/revoked-notes.ts";
import { refuseOverlapOf } from "../node/files/config/refuse-networks.ts";
import { requireEngine, type EngineSettings } from "../node/engine/find-engine.ts";
import type { System } from "../base/system.ts";
import { refuseCollision, type Claim } from "./collisions.ts";
import { claimOf, runningClaims } from "./running-claims.ts";
import type { Launch } from "./supervisor.ts";

type GateSettings = EngineSettings & { configRoot: string };
export type Gate = ReturnType<typeof makeGate>;

export function makeGate(
  settings: GateSettings,
  system: Pick<System, "run" | "platform" | "env" | "isRoot" | "machineState">,
  log: Pick<Log, "debug">,
) {
  /** Claims of our engines that run or are about to. First come, first served. */
  const claims = new Map<string, Claim>();
  const versionOf = rememberVersions(system);
  /** Test runs in progress, by slug. Each resolves with the engine's path. */
  const testing = new Map<string, Promise<string>>();

  /** The path of the engine that may start. */
  async function requireAllowedEngine({ directory }: Organization): Promise<string> {
    const { path } = requireEngine(settings, system);
    const version = await versionOf(path);
    refuseEngineVersion(version);
    if (path !== settings.overlayBinary)
      refuseOlder(path, version, { directory, missing: settings.overlayBinary });
    return path;
  }

  /** Claims of the engines that systemd runs. */
  const foreignClaims = () =>
    runningClaims(settings.configRoot, log, ({ config }) => config.mode === "server");
  const allClaims = () => [...claims.values(), ...foreignClaims()];

  /** Simultaneous calls share one test run of the engine. */
  function testOnce(organization: Organization): Promise<string> {
    const { slug } = organization;
    const work = testing.get(slug) ?? testStart(organization).finally(() => testing.delete(slug));
    testing.set(slug, work);
    return work;
  }

  async function testStart(organization: Organization): Promise<string> {
    refuseRevoked(organization);
    refuseForeignFiles(organization.directory);
    const binary = await requireAllowedEngine(organization);
    await testConfig(binary, configPathOf(organization), system);
    return binary;
  }

  return {
    isRevoked: ({ directory }: Pick<Organization, "directory">) => readRevokedNote(directory) !== undefined,
    /** Throws the reason why the engine cannot start; changes nothing. */
    async check(organization: Organization, among: "beside others" | "alone"): Promise<void> {
      const claim = claimOf(organization);
      // `switch` stops engines of the daemon, but not those of systemd.
      refuseCollision(claim, among === "alone" ? foreignClaims() : allClaims());
      await refuseOverlapOf(organization, system);
      await testOnce(organization);
    },
    /** Claims and checks. `release` ends the claim, also after a failure: the caller has to call it. */
    async admit(organization: Organization): Promise<Launch> {
      const claim = claimOf(organization);
      refuseCollision(claim, allClaims());
      claims.set(organization.slug, claim);
      const binary = await testOnce(organization);
      const argv = [binary, "-config", configPathOf(organization)];
      // `silent`: the engine's log level hides that it is ready.
      return { argv, silent: claim.silent, device: claim.device };
    },
    /** Claims without a check, for an engine that already runs. */
    claim(organization: Organization): void {
      claims.set(organization.slug, claimOf(organization));
    },
    release(slug: string): void {
      claims.delete(slug);
    },
  };
}

/**
 * Throws if the engine that was found, that of the system's package, is older than the one that ran last and whose file is `missing`.
 * Server mode does the same.
 */
function refuseOlder(
  path: string,
  version: string,
  { directory, missing }: { directory: string; missing: string },
): void {
  const former = readSyncState(directory)?.data_plane?.engine ?? "";
  if (former === "" || !isOlderThan(parseEngineVersion(version), parseEngineVersion(former))) return;
  throw new AppError(
    "engine_missing",
    `The engine ${missing} (${former}) is gone, and that of the system's package, ${path}, is the older ${version}`,
    {
      hint: `Install it again: \`${brand.executable} overlay install\`. To use the older one: \`${brand.executable} overlay install --source package\`.`,
    },
  );
}

function configPathOf({ directory }: Organization): string {
  return join(directory, "config.yml");
}
