// Reads the peers of one organization: from the daemon in mode desktop, else by a look of this process, which needs root.
// It must not print.

import { AppError } from "../errors.ts";
import type { OrganizationSettings } from "../node/contact/organization-edge.ts";
import type { Organization } from "../node/files/organizations.ts";
import type { PeerReport } from "../node/health/peer-report.ts";
import { privilegeHint } from "../platform/privilege.ts";
import type { System } from "../system.ts";
import { askDaemon } from "./ipc/client.ts";
import type { LocalAddress } from "./ipc/transport.ts";

export type OrganizationPeers = {
  peers: readonly PeerReport[];
  /** False: the engine is too old to report its tunnels. */
  reports_tunnels: boolean;
  engine_version?: string;
};

const probeMs = 1500;

/** `peer`: this one alone, by name or address. */
export async function readPeers(
  organization: Organization,
  peer: string | undefined,
  { address, settings }: { address: LocalAddress; settings: OrganizationSettings },
  system: System,
): Promise<OrganizationPeers> {
  const { slug, config } = organization;
  if (config.mode === "desktop") {
    const request = { action: "peers", team: slug, ...(peer === undefined ? {} : { peer }) };
    const answer = await askDaemon(address, system, request, { patient: false });
    const { peers = [], reports_tunnels = false, engine_version } = answer;
    return { peers, reports_tunnels, ...(engine_version === undefined ? {} : { engine_version }) };
  }
  if (!system.isRoot) {
    throw new AppError("os_permission", `Only root can see the peers of ${slug}: it is in server mode`, {
      hint: privilegeHint(process),
    });
  }
  const { makeServerHealth, withHealth } = await import("../node/contact/server-health.ts");
  const health = makeServerHealth(organization, settings, system);
  const seen = await withHealth(health, () => health.lookAtPeers(probeMs, peer));
  const { peers, reportsTunnels: reports_tunnels, engineVersion: version } = seen;
  return { peers, reports_tunnels, ...(version === undefined ? {} : { engine_version: version }) };
}
