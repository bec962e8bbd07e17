// What a team's engine must pass before it starts: not revoked, an engine that may run, a configuration that the
// engine accepts, and nothing of the machine that another team has. Starts nothing itself.

import { statSync } from "node:fs";
import { join } from "node:path";
import { AppError } from "../errors.ts";
import { readTextIfThere } from "../files.ts";
import { engineVersion, refuseEngineVersion, testConfig } from "../node/engine.ts";
import { readRevokedNote, type Organization } from "../node/organizations.ts";
import { requireEngine, type EngineSettings } from "../node/overlay.ts";
import type { System } from "../system.ts";
import { readClaim, refuseCollision, type Claim } from "./collisions.ts";
import type { Launch } from "./supervisor.ts";

export function makeGate(settings: EngineSettings, system: Pick<System, "run" | "platform" | "env">) {
  /** What the teams that run, or are about to, have taken. First come, first served. */
  const claims = new Map<string, Claim>();
  let checked: { file: string; version: string } | undefined;

  async function engine(): Promise<string> {
    const { path } = requireEngine(settings, system);
    const { mtimeMs, ino } = statSync(path);
    const file = `${path} ${ino} ${mtimeMs}`;
    if (checked?.file !== file) checked = { file, version: await engineVersion(path, system) };
    refuseEngineVersion(checked.version);
    return path;
  }

  function claimOf({ slug, directory, config }: Organization): Claim {
    const text = readTextIfThere(join(directory, "config.yml"));
    if (text === undefined) throw new AppError("bad_configuration", `There is no ${directory}/config.yml`);
    return readClaim(slug, text, [config.network]);
  }

  async function accepted(organization: Organization): Promise<string> {
    const note = readRevokedNote(organization.directory);
    if (note !== undefined)
      throw new AppError("access_revoked", `The access of ${organization.slug} was revoked: ${note.reason}`);
    const binary = await engine();
    await testConfig(binary, join(organization.directory, "config.yml"), system);
    return binary;
  }

  return {
    isRevoked: ({ directory }: Organization) => readRevokedNote(directory) !== undefined,
    /** Throws what would keep the team from starting; changes nothing. */
    async check(organization: Organization, among: "beside others" | "alone"): Promise<void> {
      const claim = claimOf(organization);
      if (among === "beside others") refuseCollision(claim, [...claims.values()]);
      await accepted(organization);
    },
    /** Takes the team's place; `leave` gives it back. */
    async enter(organization: Organization): Promise<Launch> {
      const claim = claimOf(organization);
      refuseCollision(claim, [...claims.values()]);
      claims.set(organization.slug, claim);
      const binary = await accepted(organization);
      const configPath = join(organization.directory, "config.yml");
      return { argv: [binary, "-config", configPath], silent: claim.silent };
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
