// What a team's engine must pass before it starts: not revoked, an engine that may run, a configuration that the
// engine accepts, and nothing of the machine that another team has. Starts nothing itself.

import { join } from "node:path";
import { AppError, messageOf } from "../errors.ts";
import { readTextIfThere } from "../files.ts";
import type { Log } from "../log.ts";
import { refuseEngineVersion, rememberVersions, testConfig } from "../node/engine/engine.ts";
import { findEngine } from "../node/engine/found-engine.ts";
import { overlayNetworks } from "../node/files/networks.ts";
import { listOrganizations } from "../node/files/list-organizations.ts";
import { openOrganization, type Organization } from "../node/files/organizations.ts";
import { readRevokedNote } from "../node/files/revoked-notes.ts";
import { requireEngine, type EngineSettings } from "../node/engine/overlay.ts";
import type { System } from "../system.ts";
import { readClaim, refuseCollision, type Claim } from "./collisions.ts";
import type { Launch } from "./supervisor.ts";

export type GateSettings = EngineSettings & { configRoot: string };

export function makeGate(
  settings: GateSettings,
  system: Pick<System, "run" | "platform" | "env">,
  log: Pick<Log, "debug">,
) {
  /** What our teams that run, or are about to, have taken. First come, first served. */
  const claims = new Map<string, Claim>();
  const versionOf = rememberVersions(system);
  const testing = new Map<string, Promise<string>>();

  async function engine(): Promise<string> {
    const { path } = requireEngine(settings, system);
    refuseEngineVersion(await versionOf(path));
    return path;
  }

  /** What engines have taken that systemd runs beside us. */
  function foreignClaims(): Claim[] {
    return listOrganizations(settings.configRoot).flatMap((slug) => {
      try {
        const organization = openOrganization(settings.configRoot, slug);
        const runs =
          organization.config.mode === "server" && findEngine(configPathOf(organization)) !== undefined;
        return runs ? [claimOf(organization)] : [];
      } catch (error) {
        log.debug("What a team has taken cannot be read", { team: slug, reason: messageOf(error) });
        return [];
      }
    });
  }

  const allClaims = () => [...claims.values(), ...foreignClaims()];

  function claimOf(organization: Organization): Claim {
    const path = configPathOf(organization);
    const text = readTextIfThere(path);
    if (text === undefined) throw new AppError("bad_configuration", `There is no ${path}`);
    return readClaim(organization.slug, text, overlayNetworks(organization.directory));
  }

  /** However many ask at once, the engine is run for it once. */
  function accepted(organization: Organization): Promise<string> {
    const { slug } = organization;
    const work = testing.get(slug) ?? accept(organization).finally(() => testing.delete(slug));
    testing.set(slug, work);
    return work;
  }

  async function accept(organization: Organization): Promise<string> {
    const note = readRevokedNote(organization.directory);
    if (note !== undefined)
      throw new AppError("access_revoked", `The access of ${organization.slug} was revoked: ${note.reason}`);
    const binary = await engine();
    await testConfig(binary, configPathOf(organization), system);
    return binary;
  }

  return {
    isRevoked: ({ directory }: Organization) => readRevokedNote(directory) !== undefined,
    /** Throws what would keep the team from starting; changes nothing. */
    async check(organization: Organization, among: "beside others" | "alone"): Promise<void> {
      const claim = claimOf(organization);
      // Who is to run alone stops ours, not those that systemd runs.
      refuseCollision(claim, among === "alone" ? foreignClaims() : allClaims());
      await accepted(organization);
    },
    /** Takes the team's place; `leave` gives it back. */
    async enter(organization: Organization): Promise<Launch> {
      const claim = claimOf(organization);
      refuseCollision(claim, allClaims());
      claims.set(organization.slug, claim);
      const binary = await accepted(organization);
      return { argv: [binary, "-config", configPathOf(organization)], silent: claim.silent };
    },
    /** An engine that runs already has its place, whatever anybody says. */
    occupy(organization: Organization): void {
      claims.set(organization.slug, claimOf(organization));
    },
    leave(team: string): void {
      claims.delete(team);
    },
  };
}

function configPathOf({ directory }: Organization): string {
  return join(directory, "config.yml");
}
