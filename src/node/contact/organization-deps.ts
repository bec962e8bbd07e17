// Connects a command to one organization: to its control plane, and to its engine. systemd runs the engines of server mode,
// the daemon those of desktop mode. An engine that was started by hand is found by its arguments.

import { existsSync } from "node:fs";
import { join } from "node:path";
import { because } from "../../base/errors.ts";
import { textOrEmpty } from "../../base/files.ts";
import type { Log } from "../../base/log.ts";
import type { System } from "../../base/system.ts";
import { connectOrganization } from "./requests/connection.ts";
import type { OverlayControl } from "../engine/control-engine.ts";
import { rememberVersions } from "../engine/engine.ts";
import type { FollowDeps } from "./follow-once.ts";
import type { Organization } from "../files/organizations.ts";
import { rememberSilence } from "../files/config/read-config.ts";
import { engineInUse, unknownInUse, type VersionOf } from "../engine/engine-in-use.ts";
import { findEngineProcess } from "../engine/engine-process.ts";
import { unmanagedEngine } from "../engine/unmanaged-engine.ts";
import { readRestoredNote, readRevokedNote } from "../files/revoked-notes.ts";
import { isStopped } from "../files/stopped-by-user.ts";
import { findEngine, type EngineSettings } from "../engine/find-engine.ts";
import type { ProcessIdentity } from "../../platform/process-identity.ts";
import { examineUnit, isRunByUnits, systemdEngine } from "../engine/systemd-engine.ts";

export type OrganizationSettings = EngineSettings & { configRoot: string };

/** `command`: names this process to others that wait for the lock of the organization. */
export function organizationDeps(
  organization: Organization,
  command: string,
  {
    settings,
    system,
    log,
    versionOf = rememberVersions(system),
  }: { settings: OrganizationSettings; system: System; log: Log; versionOf?: VersionOf },
): FollowDeps {
  return {
    configRoot: settings.configRoot,
    withClient: connectOrganization(organization, system, log),
    control: controlOf(organization, system, log),
    engine: async () => {
      const found = await examineEngine(organization, settings, system);
      const { process, program, installed } = found;
      return found.isKnown ? engineInUse(process, program, versionOf, installed) : unknownInUse(installed);
    },
    command,
    log,
    system,
  };
}

/**
 * What runs an organization outside of the daemon: its process, and the program of its next start. For an engine of
 * systemd the unit decides, for any other one the settings.
 */
export async function examineEngine(
  { slug, config, directory }: Pick<Organization, "slug" | "directory"> & { config: { mode: string } },
  settings: EngineSettings,
  system: System,
): Promise<{
  process: ProcessIdentity | undefined;
  program: string | undefined;
  installed: string | undefined;
  /** False if the service manager did not say what runs. */
  isKnown: boolean;
}> {
  const installed = findEngine(settings, system)?.path;
  if (!isRunByUnits({ directory, mode: config.mode }, system)) {
    const process = findEngineProcess(join(directory, "config.yml"));
    return { process, program: installed, installed, isKnown: true };
  }
  const { process, program = installed, isKnown } = await examineUnit({ slug, directory }, system);
  return { process, program, installed, isKnown };
}

function controlOf({ slug, config, directory }: Organization, system: System, log: Log): OverlayControl {
  if (!isRunByUnits({ directory, mode: config.mode }, system))
    return unmanagedEngine({ slug, directory }, system, log);
  // Whether the log level hides the engine's messages about start and reload. config.yml is read now too: a caller may replace it.
  const logSilence = rememberSilence(() => textOrEmpty(directory, "config.yml"));
  const engine = systemdEngine({ slug, directory }, system, logSilence);
  const wanted = async () => !isStopped(directory) && (await engine.isEnabled());
  return {
    ...engine,
    wanted,
    // systemd leaves a start out while config.yml is missing, and does not make up for it.
    async startLeftOut() {
      // A revoked node stays off, and the check-in starts a restored one, with its new certificate.
      const note = readRevokedNote(directory) ?? readRestoredNote(directory);
      const mayStart = existsSync(join(directory, "config.yml")) && note === undefined;
      if (!mayStart || !(await engine.wasLeftOut()) || !(await wanted())) return false;
      try {
        await engine.start();
        // A condition that an administrator added to the unit may still leave the start out.
        if (!(await engine.isUp())) return false;
        log.warn("The engine was not started while its configuration was gone: started it", { team: slug });
        return true;
      } catch (error) {
        log.error("The engine cannot be started", because(slug, error));
        return false;
      }
    },
  };
}
