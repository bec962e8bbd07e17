// The devices, ports and networks that running engines of this machine use, from their configuration and the process
// table. In mode server each command starts its own engine, so only the process table shows which others run.

import { join } from "node:path";
import { AppError, because } from "../base/errors.ts";
import { readTextIfThere } from "../base/files.ts";
import type { Log } from "../base/log.ts";
import { findEngineProcess } from "../node/engine/engine-process.ts";
import { listOrganizations } from "../node/files/list-organizations.ts";
import { overlayNetworks } from "../node/files/granted/networks.ts";
import { openOrganization, type Organization } from "../node/files/organizations.ts";
import { readClaim, refuseCollision, type Claim } from "./collisions.ts";

type Place = Pick<Organization, "slug" | "directory">;

export function claimOf({ slug, directory }: Place): Claim {
  const path = join(directory, "config.yml");
  const text = readTextIfThere(path);
  if (text === undefined) throw new AppError("bad_configuration", `There is no ${path}`);
  return readClaim(slug, text, overlayNetworks(directory));
}

/**
 * Claims of the engines that run now, of the organizations that `isMeant` selects. An organization that cannot be read claims nothing:
 * its damage must not keep the others from starting.
 */
export function runningClaims(
  configRoot: string,
  log: Pick<Log, "debug">,
  isMeant: (organization: Organization) => boolean = () => true,
): Claim[] {
  return listOrganizations(configRoot).flatMap((slug) => {
    try {
      const organization = openOrganization(configRoot, slug);
      const path = join(organization.directory, "config.yml");
      const runs = isMeant(organization) && findEngineProcess(path) !== undefined;
      return runs ? [claimOf(organization)] : [];
    } catch (error) {
      log.debug("Cannot read the claim of an organization", because(slug, error));
      return [];
    }
  });
}

/** Throws AppError("collision") if an engine that runs now uses what this organization needs. */
export function refuseBesideRunning(organization: Place, configRoot: string, log: Pick<Log, "debug">): void {
  refuseCollision(claimOf(organization), runningClaims(configRoot, log));
}
