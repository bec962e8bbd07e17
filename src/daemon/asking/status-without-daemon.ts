// The status of an organization that no daemon runs: in mode server from systemd; in mode desktop from the process table,
// because its engine can outlive the daemon.

import { given } from "../../base/given.ts";
import { join } from "node:path";
import { messageWithHint } from "../../base/errors.ts";
import { shownDataPlane } from "../../node/files/config/data-plane-in-force.ts";
import { readSyncState } from "../../node/files/generations.ts";
import { openOrganization } from "../../node/files/organizations.ts";
import { countTunnels, metricsUrl } from "../../node/engine/count-tunnels.ts";
import { certificateWarning, readOrganizationFacts } from "../../node/files/organization-facts.ts";
import { readSavedHealth, savedHealthDirectory, type SavedHealth } from "../../node/health/saved-health.ts";
import { mappingShown } from "../../node/files/mapping-state.ts";
import { tcpShown } from "../../node/files/tcp-state.ts";
import type { System } from "../../base/system.ts";
import { clean } from "../../base/log.ts";
import type { OrganizationState } from "../ipc/messages.ts";
import { observeEngine, observeProcess, type Observed, type Places } from "./observe-engine.ts";

/** `checkedAt`: when check-auth last ran, ms since 1970; undefined: not since the boot. */
type FoundStatus = { status: OrganizationState; isDamaged: boolean; checkedAt: number | undefined };

/** An organization with damaged files gets a status too, so that it does not hide the others. */
export async function readStatusWithoutDaemon(
  { configRoot, stateDb }: Places,
  slug: string,
  system: Pick<System, "run" | "platform" | "now" | "fetch">,
): Promise<FoundStatus> {
  const saved = readSavedHealth(savedHealthDirectory(configRoot, system.platform), slug, system.now());
  const checkedAt = saved === undefined ? undefined : Date.parse(saved.run_at ?? saved.written_at);
  try {
    const status = await readStatus({ configRoot, stateDb }, slug, saved, system);
    return { status, isDamaged: false, checkedAt };
  } catch (error) {
    const { readRemains } = await import("../../node/files/damaged-organization.ts");
    const { mode = "server", name = "", directory } = readRemains(configRoot, slug);
    const observed = observeProcess(join(directory, "config.yml"));
    const facts = { team: slug, mode, name, ip_address: "", certificate_not_after: "" };
    return { status: { ...facts, ...observed, message: messageWithHint(error) }, isDamaged: true, checkedAt };
  }
}

async function readStatus(
  { configRoot, stateDb }: Places,
  slug: string,
  saved: SavedHealth | undefined,
  system: Pick<System, "run" | "platform" | "now" | "fetch">,
): Promise<OrganizationState> {
  const organization = openOrganization(configRoot, slug);
  const { directory, config } = organization;
  const { mode } = config;
  const sync = readSyncState(directory);
  const end = sync?.certificate_not_after ?? (await readEnd(directory));
  const { revoked, dataPlane, ...facts } = readOrganizationFacts(organization, sync, end);
  const observed = await observeEngine(organization, { configRoot, stateDb }, system);
  const status: OrganizationState = {
    team: slug,
    mode,
    ...facts,
    ...observed,
    ...shownDataPlane(dataPlane, startOf(observed, system.now())),
    // Server mode needs no daemon.
    ...(mode === "desktop" && facts.flows?.state === "reported"
      ? { flows: { state: "failed" as const, reason: "the daemon does not run this organization" } }
      : {}),
    ...(mode === "server" ? savedHealth(saved, observed, system) : {}),
    ...(observed.state === "running" ? await readOfRunning(directory, system) : {}),
  };
  if (revoked !== undefined) {
    // An engine that still runs is shown as running: the order is being carried out.
    const state = status.pid === undefined ? "revoked" : status.state;
    return { ...status, state, message: clean(`Access was revoked: ${revoked}`) };
  }
  const message = certificateWarning(facts, system.now());
  return message === undefined ? status : { ...status, message };
}

/** What is true only while the engine runs. */
async function readOfRunning(
  directory: string,
  system: Pick<System, "fetch">,
): Promise<Pick<OrganizationState, "peers" | "tcp" | "port_mapping">> {
  const url = metricsUrl(directory);
  const peers = url === undefined ? undefined : await countTunnels(url, system);
  return given({ peers, tcp: tcpShown(directory), port_mapping: mappingShown(directory) });
}

const startOf = ({ uptime_s: uptimeS }: Observed, now: number) =>
  uptimeS === undefined ? undefined : now - uptimeS * 1000;

/** The health that check-auth has stored. That of a former engine says nothing about this one. */
function savedHealth(
  saved: SavedHealth | undefined,
  { state, uptime_s = 0 }: Observed,
  system: Pick<System, "now">,
): Pick<OrganizationState, "health" | "last_checkin_at" | "relayed" | "confirm"> {
  const now = system.now();
  const { health, last_checkin_at, relayed, confirm } = saved ?? {};
  // `uptime_s` is in whole seconds, so the engine may be up to a second older.
  const isOfThisEngine = health !== undefined && now - Date.parse(health.checked_at) < (uptime_s + 1) * 1000;
  return {
    ...given({ last_checkin_at, relayed, confirm }),
    ...(state === "running" && isOfThisEngine ? { health } : {}),
  };
}

async function readEnd(directory: string): Promise<string> {
  const { certificateEnd } = await import("../../node/files/certificate-end.ts");
  return certificateEnd(directory);
}
