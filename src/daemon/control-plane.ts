// The daemon's connection to control planes: one long poll for each organization. Changes are applied by the transaction
// of sync-config; the engine is reached through its supervisor.

import { given } from "../base/given.ts";
import { brand } from "../brand.ts";
import type { LeftOut } from "../engine/left-out.ts";
import type { Log } from "../base/log.ts";
import { connectOrganization } from "../node/contact/requests/connection.ts";
import type { OverlayControl } from "../node/engine/control-engine.ts";
import { rememberVersions } from "../node/engine/engine.ts";
import { engineInUse } from "../node/engine/engine-in-use.ts";
import { makePathReporter } from "../node/contact/path-report.ts";
import { relayedIn, type RelayedAnswer } from "../protocol/traffic-reports.ts";
import type { PeerReport } from "../node/health/shown-peer.ts";
import { followOnce, type FollowDeps } from "../node/contact/follow-once.ts";
import { followOrganization } from "../node/contact/follow.ts";
import { hasChosenSettings, makeLocalSync } from "../node/contact/local-sync.ts";
import { readSyncState, versionInForce } from "../node/files/generations.ts";
import { openOrganization, type Organization } from "../node/files/organizations.ts";
import { findEngine } from "../node/engine/find-engine.ts";
import {
  makeStartDrill,
  makeStartUpdate,
  type UpdateSettings,
} from "../node/contact/requests/update-orders.ts";
import { type Confirmation, confirmationIn } from "../protocol/confirmation.ts";
import type { Healing } from "../protocol/path-report.ts";
import type { System } from "../base/system.ts";
import { within } from "../base/within.ts";

/** How the connection to a control plane talks with the organization's engine. */
export type ControlPlaneNews = {
  // What the connection tells.
  /** The control plane's time of the last check-in, RFC 3339. */
  checkedIn(at: string): void;
  /** The bytes that the control plane counts for this relay; undefined for other nodes. */
  relayed(counted: RelayedAnswer | undefined): void;
  /** The deadline for the user's confirmation of the node; undefined if there is none. */
  confirmation(asked: Confirmation | undefined): void;
  /** Keys of the configuration that apply only after a restart of the engine. */
  restartPending(keys: string[]): void;
  /** The connection begins a pause, which `endPause` ends before its time. Undefined: the pause has ended. */
  paused(endPause: (() => void) | undefined): void;

  // What the connection asks, for reports.
  /** How this node reaches its peers; undefined while that is not known. */
  peers(): readonly PeerReport[] | undefined;
  /** The findings for the control plane, and its answers for a lighthouse. */
  health: NonNullable<FollowDeps["health"]>;
  /** Healings to report to the control plane: always the same array, from which the reporter removes those that arrived. */
  unsentHealings(): Healing[];
};

export type SyncOutcome = {
  /** Whether this node has access. `resumed`: again, since this check-in. */
  access: "ok" | "revoked" | "resumed";
  /** What was done with its engine: a revocation stops it, a restore starts it. */
  action: "none" | "stopped" | "started";
  /** What became of the configuration. `returned`: it failed here, for this `reason`, and the former one is in force. */
  result: "changed" | "same" | "returned";
  reason?: string;
  configVersion: number;
  leftOut?: readonly LeftOut[];
  restored?: readonly string[];
};

export type ControlPlane = {
  /** Stays checked in and applies changes until the signal aborts. */
  follow(
    organization: Organization,
    control: OverlayControl,
    news: ControlPlaneNews,
    signal: AbortSignal,
  ): Promise<void>;
  /** Checks in once without a long poll and applies changes. Throws the reason for a failure. */
  sync(organization: Organization, control: OverlayControl, news: ControlPlaneNews): Promise<SyncOutcome>;
  /**
   * Reports that an ephemeral node leaves; does nothing for another node. Takes a few seconds at most, and never
   * throws.
   */
  leave(organization: Organization): Promise<void>;
};

/** A container is killed 10 s after SIGTERM, and the engines need a part of that. */
const farewellMs = 3000;

export function connectControlPlane(settings: UpdateSettings, system: System, log: Log): ControlPlane {
  const versionOf = rememberVersions(system);
  const depsFor = (
    organization: Organization,
    control: OverlayControl,
    news: ControlPlaneNews,
  ): FollowDeps => ({
    configRoot: settings.configRoot,
    withClient: connectOrganization(organization, system, log),
    control,
    engine: async () => ({
      ...(await engineInUse(await control.process(), findEngine(settings, system)?.path, versionOf)),
      // True also between the end of an engine and its next start.
      isRunning: await control.running(),
    }),
    command: `${brand.executable} daemon`,
    log,
    system,
    onCheckin(answer) {
      news.checkedIn(answer.last_checkin_at);
      news.relayed(relayedIn(answer));
      news.confirmation(confirmationIn(answer));
    },
    startUpdate: makeStartUpdate(settings, system),
    startDrill: makeStartDrill(settings, system),
    onSync: (sync) => news.restartPending(sync.restartPending),
  });
  return {
    follow(organization, control, news, signal) {
      const deps = depsFor(organization, control, news);
      const paths = makePathReporter({ peers: news.peers, now: system.now, healings: news.unsentHealings() });
      return followOrganization(
        organization,
        { ...deps, paths, health: news.health },
        { signal, onPause: news.paused },
      );
    },
    leave: (organization) => leaveIfEphemeral(organization, system, log),
    async sync(organization, control, news) {
      // `isAsked`: a user waits for it, so what the engine refused a short time ago is tried again.
      const deps = { ...depsFor(organization, control, news), isAsked: true };
      // Settings that a rollout chose, or took back, apply before the check-in: those in force may be why the control plane
      // cannot be reached.
      const state = readSyncState(organization.directory);
      if (state !== undefined && !hasChosenSettings(organization, state))
        await makeLocalSync(organization, deps)();
      const turn = await followOnce(organization, deps, { waitS: 0 });
      const { result: access, action } = turn;
      if (access === "revoked")
        return { access, action, result: "same", configVersion: versionInForce(organization) };
      // Without a change on the server, a change of overrides.yml must be applied too.
      const sync = turn.sync ?? (await syncFiles(organization, deps));
      news.restartPending(sync.restartPending);
      const { result, configVersion, reason, leftOut, restored } = sync;
      return { access, action, result, configVersion, leftOut, ...given({ reason, restored }) };
    },
  };
}

async function leaveIfEphemeral(
  { slug, directory, config }: Organization,
  system: System,
  log: Log,
): Promise<void> {
  if (config.ephemeral !== true) return;
  const { sayFarewell } = await import("../node/enroll/unregister.ts");
  const farewell = sayFarewell({ slug, directory }, system, log);
  const reason = await within(system, farewellMs, farewell, "the control plane did not answer in time");
  if (reason === undefined) return;
  log.warn("The control plane could not be told that this ephemeral node ends; it notices the silence", {
    team: slug,
    reason,
  });
}

/** Applies the configuration that the control plane has now, and what root changed beside it. */
async function syncFiles(organization: Organization, deps: FollowDeps) {
  const { syncOrganization } = await import("../node/contact/sync.ts");
  const { control, command, log, system, isAsked = false } = deps;
  const current = openOrganization(deps.configRoot, organization.slug);
  const engine = await deps.engine();
  return deps.withClient((client) =>
    syncOrganization(current, { client, control, engine, command, log, system, isAsked }),
  );
}
