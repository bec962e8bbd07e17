// Checks the subnets that a node may route. A wrong one would divert traffic of every node of the organization.

import { AppError, invalidField } from "../../base/errors.ts";
import {
  networkContains,
  networksOverlap,
  parseAddress,
  parseNetwork,
  specialHost,
  specialNetwork,
  type Network,
} from "../../base/ip.ts";
import type { IssuingOrg } from "../certificates/issue.ts";
import type { Reader } from "../store/database.ts";
import { publicUrlOf } from "../store/meta.ts";
import { queryAll } from "../store/table.ts";
import { nodes, type NodeRow, hubIs } from "../store/tables/nodes.ts";
import { maxSubnets } from "../../protocol/routing/advertised.ts";
import { isHub } from "../../protocol/routing/roles.ts";

const routerPick = nodes.pick("id", "name", "subnets");
const hubPick = nodes.pick("id", "name", "publicIp", "isLighthouse");

type Parsed = { text: string; network: Network };
type HubRow = Pick<NodeRow, "id" | "name" | "publicIp" | "isLighthouse">;
type Hub = HubRow & { address: ReturnType<typeof parseAddress> };
type Router = Pick<NodeRow, "id" | "name"> & { subnets: readonly string[] };

/** What a subnet must not contain: the host of the control plane's URL, and the public addresses of lighthouses and relays. */
export type Obstacles = {
  controlPlane: string;
  hubs: readonly Hub[];
  /** The routers of each subnet, by its canonical text. Given only where each subnet may have one router: in an import. */
  routers?: ReadonlyMap<string, readonly Pick<Router, "id" | "name">[]>;
};

/** Throws validation_failed or conflict with the wrong subnet. `node`: the one that gets them, as it is. */
export async function checkSubnets(
  reader: Reader,
  org: IssuingOrg,
  subnets: readonly string[],
  node?: Router,
): Promise<void> {
  if (subnets.length === 0) return;
  requireRoutable(org, await readObstacles(reader, org.id), subnets, node);
}

export const tooMany = (name: string, what: "groups" | "subnets", count: number, most: number) =>
  new AppError("validation_failed", `The node ${name} would have ${count} ${what}; the maximum is ${most}.`);

type Overlay = Pick<IssuingOrg, "network" | "network6" | "certificateVersion">;

/** As `checkSubnets`, with obstacles that the caller has read, or that there would be after an import. */
export function requireRoutable(
  org: Overlay,
  { controlPlane, hubs, routers }: Obstacles,
  subnets: readonly string[],
  node?: Router,
): void {
  // A node that got more from an earlier version keeps them.
  if (node !== undefined && subnets.length > Math.max(maxSubnets, node.subnets.length))
    throw tooMany(node.name, "subnets", subnets.length, maxSubnets);
  const networks = requireForm(org, subnets, node?.subnets ?? []);
  const holder = holderOf(networks, parseAddress(controlPlane));
  if (holder !== undefined) throw refused(`${holder} holds the address of this control plane.`);
  for (const hub of hubs) refuseRouted(hub, networks);
  for (const { text } of networks) {
    const other = routers?.get(text)?.find(({ id }) => id !== node?.id);
    if (other !== undefined) throw new AppError("conflict", `The node ${other.name} already routes ${text}.`);
  }
}

/** Checks each subnet by itself. `present`: those that the node has already. */
function requireForm(org: Overlay, subnets: readonly string[], present: readonly string[]): Parsed[] {
  return subnets.map((text, at) => {
    const network = parseNetwork(text);
    if (network === undefined) throw refused(`${text} is not a network.`);
    if (network.prefix === 0) throw refused(`${text} would route all traffic of every node.`);
    if (subnets.indexOf(text) !== at) throw refused(`${text} is listed twice.`);
    if (network.family === 6 && (org.network6 === null || org.certificateVersion === 1)) {
      throw refused(`${text} needs certificates of version 2 and an IPv6 network of the organization.`);
    }
    const special = specialNetwork(network);
    // Not one that the node has already: earlier versions accepted such subnets.
    if (special !== undefined && !present.includes(text))
      throw refused(`${text} overlaps ${special}, which is never routed through an overlay.`);
    for (const overlay of [org.network, org.network6 ?? ""].map(parseNetwork)) {
      if (overlay !== undefined && networksOverlap(overlay, network))
        throw refused(`${text} overlaps the overlay's own network ${overlay.text}.`);
    }
    return { text: network.text, network };
  });
}

const refused = (sentence: string) => invalidField("subnets", sentence);

export async function readObstacles(reader: Reader, orgId: number): Promise<Obstacles> {
  const hubs = await queryAll(
    reader,
    hubPick,
    `SELECT ${hubPick.select()} FROM nodes WHERE org_id = $1 AND state <> 'revoked' AND public_ip IS NOT NULL
       AND (${hubIs()}) ORDER BY id`,
    [orgId],
  );
  return { controlPlane: hostOf((await publicUrlOf(reader)).publicUrl), hubs: hubs.map(hubOf) };
}

/** A lighthouse or relay with what is compared with subnets. */
export function hubOf({ id, name, publicIp, isLighthouse }: HubRow): Hub {
  return { id, name, publicIp, isLighthouse, address: parseAddress(publicIp ?? "") };
}

/** The nodes that route each network, by the network's canonical text. */
export function routersByNetwork(list: readonly Router[]): Map<string, Pick<Router, "id" | "name">[]> {
  const routers = new Map<string, Pick<Router, "id" | "name">[]>();
  for (const { id, name, subnets } of list) {
    for (const subnet of subnets) {
      const text = parseNetwork(subnet)?.text ?? subnet;
      routers.getOrInsertComputed(text, () => []).push({ id, name });
    }
  }
  return routers;
}

const readRouters = (reader: Reader, orgId: number) =>
  queryAll(
    reader,
    routerPick,
    `SELECT ${routerPick.select()} FROM nodes WHERE org_id = $1 AND state <> 'revoked' AND subnets <> '[]'`,
    [orgId],
  );

/** Throws conflict for a lighthouse or relay whose public address is in a routed subnet. */
export async function checkHub(
  reader: Reader,
  orgId: number,
  hub: HubRow & Pick<NodeRow, "isRelay">,
): Promise<void> {
  if (hub.publicIp === null || !isHub(hub)) return;
  refuseRouted(hubOf(hub), parsedNetworks(routersByNetwork(await readRouters(reader, orgId)).keys()));
}

export function parsedNetworks(texts: Iterable<string>): Parsed[] {
  return [...texts].flatMap((text) => {
    const network = parseNetwork(text);
    return network === undefined ? [] : [{ text, network }];
  });
}

/** All nodes would send their packets for the hub into tunnels, and lose it. */
export function refuseRouted({ name, publicIp, address }: Hub, networks: readonly Parsed[]): void {
  const routed = holderOf(networks, address);
  if (routed === undefined) return;
  throw new AppError("conflict", `The subnet ${routed} holds ${publicIp}, the public address of ${name}.`, {
    hint: "Route narrower subnets that leave this address out.",
  });
}

/** The subnet that holds the address; undefined also for a name. */
function holderOf(networks: readonly Parsed[], address: Hub["address"]): string | undefined {
  if (address === undefined) return undefined;
  return networks.find(({ network }) => networkContains(network, address))?.text;
}

const hostOf = (url: string): string => new URL(url).hostname.replace(/^\[(.*)\]$/, "$1");

type Networks = Pick<IssuingOrg, "network" | "network6">;

/** Throws validation_failed for a public address at which other nodes cannot find a node. */
export function checkPublicAddress(org: Networks, publicIp: string | null | undefined): void {
  const why = unreachable(org, publicIp ?? "");
  if (why === undefined) return;
  const sentence = `${publicIp} ${why}. Enter the address that other nodes reach without the overlay.`;
  throw invalidField("public_ip", sentence);
}

/**
 * Why other nodes cannot find a node at this address. Engines do not start with a lighthouse that is only reachable through
 * their own tunnels, and would send packets to programs of their own machine. Undefined for the name of any other machine.
 */
export function unreachable({ network, network6 }: Networks, text: string): string | undefined {
  const special = specialHost(text);
  if (special !== undefined) return "leads each machine to itself, to its own link or nowhere";
  const address = parseAddress(text);
  const own = [network, network6 ?? ""].find(
    (overlay) => holderOf(parsedNetworks([overlay]), address) !== undefined,
  );
  return own === undefined ? undefined : `is in the overlay's own network ${own}`;
}
