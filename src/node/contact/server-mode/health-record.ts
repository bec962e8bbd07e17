// Server mode: check-auth stores the status of an organization for `agent status`, because no daemon knows it.

import { given } from "../../../base/given.ts";
import { formatTime } from "../../../base/quantities.ts";
import { because } from "../../../base/errors.ts";
import type { Log } from "../../../base/log.ts";
import { confirmationIn } from "../../../protocol/confirmation.ts";
import { relayedIn } from "../../../protocol/traffic-reports.ts";
import type { CheckinAnswer } from "../../../protocol/checkin.ts";
import type { System } from "../../../base/system.ts";
import type { VersionOf } from "../../engine/engine-in-use.ts";
import type { Organization } from "../../files/organizations.ts";
import type { Health } from "../../health/verdict.ts";
import {
  readSavedHealth,
  savedHealthDirectory,
  writeSavedHealth,
  type SavedHealth,
} from "../../health/saved-health.ts";
import type { FollowDeps } from "../follow-once.ts";
import type { OrganizationSettings } from "../organization-deps.ts";

/** What a watch of the health (watch-health.ts) gives to check-ins. */
export type Watch = Pick<FollowDeps, "onCheckin" | "paths" | "health">;

/** What is needed to watch an organization. */
export type Watched = {
  settings: OrganizationSettings;
  system: System;
  log: Log;
  versionOf: VersionOf;
};

export type HealthRecord = ReturnType<typeof healthRecord>;

/** The record of one run of check-auth, which goes on from that of the run before. */
export function healthRecord({ slug }: Organization, { settings, system, log }: Watched) {
  const directory = savedHealthDirectory(settings.configRoot, system.platform);
  const former = readSavedHealth(directory, slug, system.now());
  let { last_checkin_at: lastCheckin, relayed, confirm }: Partial<SavedHealth> = former ?? {};
  /** `writtenAt`: when this health was found out. */
  const write = (health: Health | undefined, writtenAt = formatTime(system.now())) =>
    writeSavedHealth(directory, slug, {
      written_at: writtenAt,
      run_at: formatTime(system.now()),
      ...given({ last_checkin_at: lastCheckin, relayed, confirm, health }),
    });
  return {
    directory,
    onCheckin(answer: CheckinAnswer): void {
      lastCheckin = answer.last_checkin_at;
      relayed = relayedIn(answer);
      confirm = confirmationIn(answer);
    },
    write: (health: Health | undefined) => write(health),
    /** For a run that does not probe: the health of the run before, with its time. */
    writeFormer: () => write(former?.health, former?.written_at),
    /** A record that cannot be written must not fail the check. */
    save(writing: () => void): void {
      try {
        writing();
      } catch (error) {
        log.debug("Cannot save the health of an organization", because(slug, error));
      }
    },
  };
}
