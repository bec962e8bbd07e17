// Reads the peers of one organization: from the daemon in mode desktop, else from engine and probes by this process,
// which needs root. It must not print.

import { given } from "../../base/given.ts";
import { AppError } from "../../base/errors.ts";
import type { OrganizationSettings } from "../../node/contact/organization-deps.ts";
import type { PeerReport } from "../../node/health/shown-peer.ts";
import type { System } from "../../base/system.ts";
import { askDaemon } from "../ipc/client.ts";
import type { LocalAddress } from "../ipc/transport.ts";

export type OrganizationPeers = {
  peers: readonly PeerReport[];
  /** False: the engine is too old to report its tunnels. */
  reports_tunnels: boolean;
  engine_version?: string;
};

/** How long peers have to answer. */
const probeMs = 1500;

/** Error codes that say that the daemon runs no such organization: then systemd runs it, or nothing. */
const notByDaemon: readonly string[] = ["unknown_team", "daemon_unreachable"];

/**
 * `peer`: only this one, by name or address. Asks the daemon first and reads files only if needed: the command must
 * start fast.
 */
export async function readPeers(
  { slug, peer }: { slug: string; peer?: string },
  { address, settings }: { address: LocalAddress; settings: OrganizationSettings },
  system: System,
): Promise<OrganizationPeers> {
  try {
    const request = { action: "peers", team: slug, ...given({ peer }) };
    const answer = await askDaemon(address, system, request, { patient: false });
    const { peers = [], reports_tunnels = false, engine_version } = answer;
    return { peers, reports_tunnels, ...given({ engine_version }) };
  } catch (error) {
    if (!(error instanceof AppError) || !notByDaemon.includes(error.code)) throw error;
    return readWithoutDaemon(slug, peer, settings, system, error);
  }
}

/** `refusal`: the daemon's, which is thrown if the organization is the daemon's to run. */
async function readWithoutDaemon(
  slug: string,
  peer: string | undefined,
  settings: OrganizationSettings,
  system: System,
  refusal: AppError,
): Promise<OrganizationPeers> {
  const { openOrganization } = await import("../../node/files/organizations.ts");
  const organization = openOrganization(settings.configRoot, slug);
  if (organization.config.mode === "desktop") throw refusal;
  if (!system.isRoot) {
    const { privilegeHint } = await import("../../platform/privilege.ts");
    throw new AppError("os_permission", `Only root can see the peers of ${slug}: it is in server mode`, {
      hint: privilegeHint(process),
    });
  }
  const { readServerPeers } = await import("../../node/contact/server-mode/server-health.ts");
  const observed = await readServerPeers(organization, settings, system, { withinMs: probeMs, peer });
  const { peers, reportsTunnels: reports_tunnels, engineVersion: version } = observed;
  return { peers, reports_tunnels, ...given({ engine_version: version }) };
}
