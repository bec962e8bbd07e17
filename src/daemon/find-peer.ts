// Finds the organization that knows a node, by name or overlay address, and probes that node.

import { brand } from "../brand.ts";
import { AppError } from "../errors.ts";
import type { OrganizationSettings } from "../node/contact/organization-edge.ts";
import { chooseOrganizations, type Organization } from "../node/files/organizations.ts";
import type { PeerReport } from "../node/health/peer-report.ts";
import type { System } from "../system.ts";
import type { LocalAddress } from "./ipc/transport.ts";
import { readPeers } from "./read-peers.ts";

export type FoundPeer = { organization: Organization; peer: PeerReport; reportsTunnels: boolean };

/** Throws not_found. `slug`: only this organization. */
export async function findPeer(
  node: string,
  slug: string | undefined,
  edge: { address: LocalAddress; settings: OrganizationSettings },
  system: System,
): Promise<FoundPeer> {
  const failures: unknown[] = [];
  for (const organization of chooseOrganizations(edge.settings.configRoot, slug, () => undefined)) {
    try {
      const { peers, reports_tunnels: reportsTunnels } = await readPeers(organization, node, edge, system);
      const [peer] = peers;
      if (peer !== undefined) return { organization, peer, reportsTunnels };
    } catch (error) {
      // Another organization may know it.
      failures.push(error);
    }
  }
  if (failures.length > 0) throw failures[0];
  throw new AppError("not_found", `No organization of this machine has a node "${node}" that it knows`, {
    hint: `Names that this node may see are those of \`${brand.executable} peers\`; an overlay address works without a name.`,
  });
}
