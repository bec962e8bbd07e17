// Finds the organization that knows a node, by name or overlay address, and probes that node.

import { brand } from "../brand.ts";
import { AppError } from "../errors.ts";
import type { OrganizationSettings } from "../node/contact/organization-edge.ts";
import { chooseSlugs } from "./choose-slugs.ts";
import type { PeerReport } from "../node/health/peer-report.ts";
import type { System } from "../system.ts";
import type { LocalAddress } from "./ipc/transport.ts";
import { readPeers } from "./read-peers.ts";

export type FoundPeer = { slug: string; peer: PeerReport; reportsTunnels: boolean };

/** Throws not_found. `only`: this organization alone. */
export async function findPeer(
  node: string,
  only: string | undefined,
  edge: { address: LocalAddress; settings: OrganizationSettings },
  system: System,
): Promise<FoundPeer> {
  const failures: unknown[] = [];
  for (const slug of chooseSlugs(edge.settings.configRoot, only)) {
    try {
      const { peers, reports_tunnels: reportsTunnels } = await readPeers(slug, node, edge, system);
      const [peer] = peers;
      if (peer !== undefined) return { slug, peer, reportsTunnels };
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
