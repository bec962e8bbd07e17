// The health of an organization that no daemon runs, as a command finds it out: its engine belongs to systemd, or was started
// by hand. Needs root, for the engine's socket.

import { worstDisk } from "../../../base/disk-space.ts";
import type { System } from "../../../base/system.ts";
import { openEchoSocket } from "../../../platform/network/echo-socket.ts";
import { ageOf, isAlive, type ProcessIdentity } from "../../../platform/process-identity.ts";
import { controlSocket } from "../../../platform/systemd/control-socket.ts";
import { engineUnit, journalCommand } from "../../../platform/systemd/systemd.ts";
import { runningVersion, type VersionOf } from "../../engine/engine-in-use.ts";
import { rememberVersions } from "../../engine/engine.ts";
import { localApi } from "../../engine/local-api.ts";
import { isRunByUnits } from "../../engine/systemd-engine.ts";
import type { Organization } from "../../files/organizations.ts";
import { tunnelsOrRestart, type HangWatch, type Hanging } from "../../health/hanging-engine.ts";
import { knownHealing, type Healer } from "../../health/healer.ts";
import { OrganizationHealth, type HealthDeps } from "../../health/organization-health.ts";
import type { KeptPeers } from "../../health/paths/kept-peers.ts";
import type { OffloadTrial } from "../../health/paths/offload-trial.ts";
import { savedHealthDirectory } from "../../health/saved-health.ts";
import { exchangeProbes, restoreProbes } from "../../health/saved-probes.ts";
import { unreachedNetworks } from "../../routing/router-file.ts";
import { readHealing } from "../../health/saved-healing.ts";
import type { PeersSeen } from "../../health/shown-peer.ts";
import { examineEngine, type OrganizationSettings } from "../organization-deps.ts";

/** Lines of the engine's log that are searched for what explains its state. */
const logLines = 500;

/**
 * The parts that change the engine: they close dead tunnels, turn offloads off, give the engine addresses of peers (`kept`), and
 * restart an engine that hangs.
 */
type HealingParts = {
  healer: Healer;
  offloads: OffloadTrial;
  kept: KeptPeers;
  hang: HangWatch;
  restart: Hanging["restart"];
};

type HealthInput = { settings: OrganizationSettings; system: System; versionOf?: VersionOf };

/** Continues with the state of the last run of check-auth. Without `healing` it only looks. */
export function makeServerHealth(
  organization: Organization,
  { settings, system, versionOf = rememberVersions(system) }: HealthInput,
  healing?: HealingParts,
): OrganizationHealth {
  const { slug, directory, config } = organization;
  const api = localApi(controlSocket(directory), system);
  const saved = savedHealthDirectory(settings.configRoot, system.platform);
  let lastProcess: ProcessIdentity | undefined;
  const health: OrganizationHealth = new OrganizationHealth(organization, {
    // Without healing of its own, it reads what the healing of check-auth knows: else `status --check` would call an organization
    // running that `status` calls degraded.
    ...(healing === undefined
      ? savedHealing(saved, slug, system)
      : { healer: healing.healer, offloads: healing.offloads, kept: healing.kept }),
    system,
    monotonic: system.monotonic,
    open: openEchoSocket,
    async engine() {
      const found = await examineEngine(organization, settings, system);
      // If systemd does not answer, the engine that it named before is taken for the running one, as long as it lives.
      const assumed = lastProcess !== undefined && isAlive(lastProcess) ? lastProcess : undefined;
      const process = found.process ?? (found.isKnown ? undefined : assumed);
      const { program } = found;
      lastProcess = process;
      if (process === undefined) return undefined;
      const version = await runningVersion(process, program, versionOf);
      return { pid: process.pid, version, ageMs: ageOf(process) };
    },
    tunnels() {
      if (healing === undefined) return api.hostmap();
      return tunnelsOrRestart(healing.hang, {
        api,
        process: async () => (await examineEngine(organization, settings, system)).process,
        answeredAt: () => health.prober.lastAnswer,
        monotonic: system.monotonic,
        restart: healing.restart,
      });
    },
    disk: () => worstDisk([directory]),
    unreached: () => unreachedNetworks(directory),
    async recentLog() {
      if (!isRunByUnits({ directory, mode: config.mode }, system)) return [];
      const argv = journalCommand(engineUnit(slug), `--lines=${logLines}`);
      return (await system.run(argv)).stdout.split("\n");
    },
  });
  restoreProbes(saved, slug, health, system);
  return health;
}

/** Reads the peers once, for a command. check-auth then goes on probing the peer that the user asked for. */
export async function readServerPeers(
  organization: Organization,
  settings: OrganizationSettings,
  system: System,
  { withinMs, peer }: { withinMs: number; peer: string | undefined },
): Promise<PeersSeen> {
  const health = makeServerHealth(organization, { settings, system });
  const peers = await withHealth(health, () => health.readPeers(withinMs, peer));
  try {
    const saved = savedHealthDirectory(settings.configRoot, system.platform);
    exchangeProbes(saved, organization.slug, health, system);
  } catch {
    // A full /run must not fail the command. check-auth then does not probe the peer.
  }
  return peers;
}

/** The state that check-auth's healer has stored. */
function savedHealing(saved: string, slug: string, system: System): Pick<HealthDeps, "known"> {
  const healing = readHealing(saved, slug, system);
  return healing === undefined ? {} : { known: knownHealing(healing.state) };
}

/** Runs the watch for the time of `work`. */
export async function withHealth<T>(health: OrganizationHealth, work: () => Promise<T>): Promise<T> {
  const ended = new AbortController();
  const running = health.run(ended.signal);
  try {
    return await work();
  } finally {
    ended.abort(new Error("Done"));
    await running;
  }
}
