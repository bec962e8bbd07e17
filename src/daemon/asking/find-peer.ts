// Finds the organization that knows a node, by name or overlay address, and probes that node.

import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import { textOrEmpty } from "../../base/files.ts";
import { isWithin, parseAddress, parseNetworks } from "../../base/ip.ts";
import { unsafeRoutes } from "../../node/files/config/read-config.ts";
import { quoteWord } from "../../base/quote.ts";
import type { OrganizationSettings } from "../../node/contact/organization-deps.ts";
import { chooseSlugs } from "./choose-slugs.ts";
import type { PeerReport } from "../../node/health/shown-peer.ts";
import type { System } from "../../base/system.ts";
import type { LocalAddress } from "../ipc/transport.ts";
import { readPeers } from "./read-peers.ts";
import { readStatus } from "./status-report.ts";

type FoundPeer = { slug: string; peer: PeerReport; reportsTunnels: boolean };

type Deps = { address: LocalAddress; settings: OrganizationSettings & { stateDb: string } };

/** Throws not_found, with the organizations that were not asked because they do not run. `only`: this organization alone. */
export async function findPeer(
  node: string,
  only: string | undefined,
  deps: Deps,
  system: System,
): Promise<FoundPeer> {
  const failures: unknown[] = [];
  for (const slug of chooseSlugs(deps.settings.configRoot, only)) {
    try {
      const { peers, reports_tunnels: reportsTunnels } = await readPeers({ slug, peer: node }, deps, system);
      const [peer] = peers;
      if (peer !== undefined) return { slug, peer, reportsTunnels };
    } catch (error) {
      // Continue: another organization may know the node.
      failures.push(error);
    }
  }
  if (failures.length > 0) throw failures[0];
  refuseHost(node, only, deps);
  throw new AppError("not_found", `No organization of this machine has a node "${node}" that it knows`, {
    hint:
      (await describeIdle(only, deps, system)) ??
      `Names that this node may see are those of \`${brand.executable} peers\`; an overlay address works without a name.`,
  });
}

/** Throws if the address is of a host behind a router: it is no node, and only the router can be probed. */
function refuseHost(node: string, only: string | undefined, { settings: { configRoot } }: Deps): void {
  const address = parseAddress(node);
  if (address === undefined) return;
  for (const slug of chooseSlugs(configRoot, only)) {
    const route = unsafeRoutes(textOrEmpty(configRoot, slug, "config.yml")).find(({ network }) =>
      isWithin(node, parseNetworks([network])),
    );
    const [router] = route?.routers ?? [];
    if (route === undefined || router === undefined) continue;
    throw new AppError(
      "not_found",
      `${node} is no node, but a host in ${route.network}, a network of ${slug} behind the router ${router}`,
      {
        hint: `Probe the router: \`${brand.executable} ping ${quoteWord(router)}\`.`,
      },
    );
  }
}

/** Which organizations do not run: without its engine, an organization knows no peer. Undefined if all run. */
async function describeIdle(
  only: string | undefined,
  { address, settings: { configRoot, stateDb } }: Deps,
  system: System,
): Promise<string | undefined> {
  const question = { slug: only };
  // A team is an organization, in the protocol of the daemon.
  const { teams } = await readStatus({ address, configRoot, stateDb }, question, system);
  const idle = teams.filter(({ state }) => state !== "running");
  if (idle.length === 0) return undefined;
  const lines = idle.map(({ team, state }) =>
    state === "stopped"
      ? `${team} is stopped, so it was not asked. Start it: \`${brand.executable} start ${quoteWord(team)}\`.`
      : `${team} was not asked, its state is ${state}: \`${brand.executable} status ${quoteWord(team)}\`.`,
  );
  return lines.join(" ");
}
