// Checks the subnets that a node may route. A wrong one would divert traffic of every node of the organization.

import { AppError } from "../../errors.ts";
import { networkContains, networksOverlap, parseAddress, parseNetwork } from "../../ip.ts";
import type { IssuingOrg } from "../certificates/issue.ts";
import type { Reader } from "../store/database.ts";
import { publicUrlOf } from "../store/meta.ts";
import { queryAll } from "../store/table.ts";
import { nodes, type NodeRow } from "../store/tables/nodes.ts";
import { specialNetwork } from "../policy/networks.ts";

const routerPick = nodes.pick("id", "name", "subnets");
const hubPick = nodes.pick("name", "publicIp");

/** Throws validation_failed or conflict with the wrong subnet. `node`: the one that gets them, as it is. */
export async function checkSubnets(
  reader: Pick<Reader, "all" | "get">,
  org: IssuingOrg,
  subnets: readonly string[],
  node?: Pick<NodeRow, "id" | "subnets">,
): Promise<void> {
  const present = node?.subnets ?? [];
  const refuse = (sentence: string) =>
    new AppError("validation_failed", sentence, { errors: { subnets: [sentence] } });
  for (const [at, text] of subnets.entries()) {
    const subnet = parseNetwork(text);
    if (subnet === undefined) throw refuse(`${text} is not a network.`);
    if (subnet.prefix === 0) throw refuse(`${text} would route all traffic of every node.`);
    if (subnets.indexOf(text) !== at) throw refuse(`${text} is listed twice.`);
    if (subnet.family === 6 && (org.network6 === null || org.certificateVersion === 1)) {
      throw refuse(`${text} needs certificates of version 2 and an IPv6 network of the organization.`);
    }
    const special = specialNetwork(subnet);
    // Earlier versions accepted it.
    if (special !== undefined && !present.includes(text))
      throw refuse(`${text} overlaps ${special}, which is never routed through an overlay.`);
    for (const own of [org.network, org.network6 ?? ""].map(parseNetwork)) {
      if (own !== undefined && networksOverlap(own, subnet))
        throw refuse(`${text} overlaps the overlay's own network ${own.text}.`);
    }
  }
  if (subnets.length === 0) return;
  const routed = holderOf(subnets, hostOf((await publicUrlOf(reader)).publicUrl));
  if (routed !== undefined) throw refuse(`${routed} holds the address of this control plane.`);
  const hubs = await queryAll(
    reader,
    hubPick,
    `SELECT ${hubPick.select()} FROM nodes WHERE org_id = $1 AND state <> 'revoked' AND public_ip IS NOT NULL
       AND (is_lighthouse = 1 OR is_relay = 1)`,
    [org.id],
  );
  for (const hub of hubs) refuseRouted(hub, subnets);
  for (const router of await readRouters(reader, org.id)) {
    const twice = router.subnets.find((each) => subnets.includes(parseNetwork(each)?.text ?? each));
    if (twice !== undefined && router.id !== node?.id)
      throw new AppError("conflict", `The node ${router.name} already routes ${twice}.`);
  }
}

const readRouters = (reader: Pick<Reader, "all">, orgId: number) =>
  queryAll(
    reader,
    routerPick,
    `SELECT ${routerPick.select()} FROM nodes WHERE org_id = $1 AND state <> 'revoked' AND subnets <> '[]'`,
    [orgId],
  );

/** Throws conflict for a lighthouse or relay whose public address is in a routed subnet. */
export async function checkHub(
  reader: Pick<Reader, "all">,
  orgId: number,
  hub: Pick<NodeRow, "name" | "publicIp" | "isLighthouse" | "isRelay">,
): Promise<void> {
  if (hub.publicIp === null || (!hub.isLighthouse && !hub.isRelay)) return;
  for (const { subnets } of await readRouters(reader, orgId)) refuseRouted(hub, subnets);
}

/** All nodes would send their packets for the hub into tunnels, and lose it. */
function refuseRouted(
  { name, publicIp }: { name: string; publicIp: string | null },
  subnets: readonly string[],
) {
  const routed = holderOf(subnets, publicIp ?? "");
  if (routed === undefined) return;
  throw new AppError("conflict", `The subnet ${routed} holds ${publicIp}, the public address of ${name}.`, {
    hint: "Route narrower subnets that leave this address out.",
  });
}

/** The subnet that holds the address; undefined also for a name. */
function holderOf(subnets: readonly string[], text: string): string | undefined {
  const address = parseAddress(text);
  if (address === undefined) return undefined;
  return subnets.find((each) => {
    const subnet = parseNetwork(each);
    return subnet !== undefined && networkContains(subnet, address);
  });
}

const hostOf = (url: string): string => new URL(url).hostname.replace(/^\[(.*)\]$/, "$1");

/**
 * Throws validation_failed for a public address within the overlay: engines do not start with a lighthouse that is only
 * reachable through their own tunnels.
 */
export function checkPublicAddress(
  org: Pick<IssuingOrg, "network" | "network6">,
  publicIp: string | null | undefined,
): void {
  const own = overlayOf(org, publicIp ?? "");
  if (own === undefined) return;
  const sentence = `${publicIp} is in the overlay's own network ${own}. Enter the address that other nodes reach without the overlay.`;
  throw new AppError("validation_failed", sentence, { errors: { public_ip: [sentence] } });
}

/** The network of the organization that holds the address. */
export function overlayOf(
  { network, network6 }: Pick<IssuingOrg, "network" | "network6">,
  text: string,
): string | undefined {
  const address = parseAddress(text);
  if (address === undefined) return undefined;
  return [network, network6 ?? ""].find((each) => {
    const own = parseNetwork(each);
    return own !== undefined && networkContains(own, address);
  });
}
