// Assigns overlay addresses. An address is one row: its primary key prevents two nodes from sharing it. The next free
// address is found in constant time, among the freed addresses or by a counter.

import { AppError, invalidField } from "../../base/errors.ts";
import {
  addressInOther,
  addressOf,
  hostOf,
  lastHost,
  parseAddress,
  parseNetwork,
  type Network,
} from "../../base/ip.ts";
import { requireLockOf, type Reader, type Transaction } from "../store/database.ts";
import { queryNumber, queryOne } from "../store/table.ts";
import { addresses } from "../store/tables/nodes.ts";
import { organizations, type OrganizationRow } from "../store/tables/organizations.ts";

export type Networks = Pick<OrganizationRow, "id" | "network" | "network6">;
export type NodeAddress = { host: number; ip: string; ip6: string | null };

/**
 * Chooses an address for a node: the requested one; without a request the lowest freed one, or the next one that was never used.
 * The caller takes it with `takeAddress` in the same transaction. Throws address_taken, network_full or
 * validation_failed.
 */
export async function chooseAddress(
  tx: Transaction,
  org: Networks,
  requested: string | undefined,
  nodeId?: number,
): Promise<NodeAddress> {
  requireLockOf(tx, org.id);
  const network = networkOf(org.network);
  const next = await queryNumber(tx, "SELECT next_host AS n FROM organizations WHERE id = $1", [org.id]);
  const host =
    requested === undefined
      ? await nextFree(tx, org.id, network, next)
      : await requestedHost(tx, org.id, network, requested, nodeId);
  return addressesOf(org, host);
}

function addressesOf(org: Networks, host: number): NodeAddress {
  const network6 = org.network6 === null ? undefined : networkOf(org.network6);
  const ip6 = network6 === undefined ? null : (addressInOther(network6, host) ?? null);
  return { host, ip: addressOf(networkOf(org.network), host), ip6 };
}

/** The IPv6 address that belongs to this IPv4 address; null if the organization has no IPv6 network. */
export function address6Of(org: Networks, ip: string): string | null {
  return addressesOf(org, hostNumber(org, ip)).ip6;
}

/** The host number of an IPv6 address; undefined if the address is never assigned. */
export function hostOf6(org: Networks, ip6: string | null): number | undefined {
  const address = parseAddress(ip6 ?? "");
  return address === undefined || org.network6 === null
    ? undefined
    : hostOf(networkOf(org.network6), address);
}

/** The host number of a node's IPv4 address. */
export function hostNumber(org: Pick<Networks, "network">, ip: string): number {
  const address = parseAddress(ip);
  const host = address === undefined ? undefined : hostOf(networkOf(org.network), address);
  if (host === undefined) throw new AppError("internal", `${ip} is not an address of ${org.network}`);
  return host;
}

function networkOf(text: string): Network {
  const network = parseNetwork(text);
  if (network === undefined) throw new AppError("internal", `The network ${text} cannot be read`);
  return network;
}

async function requestedHost(
  tx: Transaction,
  orgId: number,
  network: Network,
  requested: string,
  nodeId: number | undefined,
): Promise<number> {
  const address = parseAddress(requested);
  const wrong = (sentence: string) => invalidField("ip_address", sentence);
  if (address === undefined) throw wrong("Enter an address without a prefix length, such as 10.77.0.5.");
  const host = hostOf(network, address);
  if (host === undefined) throw wrong(`Enter an address in ${network.text}, except its first and its last.`);
  const holder = await holderOf(tx, orgId, host);
  if (typeof holder === "number" && holder !== nodeId) throw addressTaken(addressOf(network, host));
  return host;
}

/** The node that has the host, or for which it is still held; `free`: it was used before, and no node has it. */
async function holderOf(reader: Reader, orgId: number, host: number): Promise<number | "free" | "unused"> {
  const row = await addresses.find(reader, { orgId, host });
  return row === undefined ? "unused" : (row.nodeId ?? "free");
}

export function addressTaken(address: string): AppError {
  return new AppError("address_taken", `The address ${address} is taken.`, {
    errors: { ip_address: ["This address is taken."] },
  });
}

const hostPick = addresses.pick("host");

async function nextFree(tx: Transaction, orgId: number, network: Network, next: number): Promise<number> {
  const lowest = "SELECT host FROM addresses WHERE org_id = $1 AND node_id IS NULL ORDER BY host LIMIT 1";
  const free = await queryOne(tx, hostPick, lowest, [orgId]);
  if (free !== undefined) return free.host;
  let host = next;
  // Skips addresses that were chosen by hand. The counter never returns to a skipped address.
  while ((await holderOf(tx, orgId, host)) !== "unused") host++;
  if (host > lastHost(network)) {
    throw new AppError("network_full", `The network ${network.text} has no free address.`, {
      hint: "Delete nodes that are no longer used, or create an organization with a larger network.",
    });
  }
  await organizations.update(tx, { id: orgId }, { nextHost: host + 1 });
  return host;
}

/** The columns of a hold without one: as fields, and the same in SQL. */
const noHold = { heldVersion: null, heldUntil: null, freeAt: null, recheckVersion: null, isQuiet: false };
export const noHoldSql =
  "held_version = NULL, held_until = NULL, free_at = NULL, recheck_version = NULL, is_quiet = 0";

/** Throws address_taken if another node took it in the meantime. `atMs` stands in the SQL: an upsert takes no parameters. */
export async function takeAddress(
  tx: Transaction,
  orgId: number,
  address: Pick<NodeAddress, "host" | "ip">,
  nodeId: number,
  atMs: number,
): Promise<void> {
  const taken = await addresses.upsert(
    tx,
    { orgId, host: address.host, nodeId },
    `ON CONFLICT (org_id, host) DO UPDATE
       SET taken_at = CASE WHEN addresses.node_id = excluded.node_id THEN addresses.taken_at ELSE ${Math.floor(atMs)} END,
         node_id = excluded.node_id, ${noHoldSql}
     WHERE addresses.node_id IS NULL OR addresses.node_id = excluded.node_id`,
  );
  if (taken === 0) throw addressTaken(address.ip);
}

/**
 * The node gives up its addresses. They are held until every active node has confirmed `version`, which blocks the
 * node's certificates (null: not known yet), or until the last of these expires (`until`, ms). Addresses
 * that are held already keep their hold. `isQuiet`: the node was ephemeral. See holds.ts.
 */
export async function leaveAddresses(
  tx: Transaction,
  orgId: number,
  nodeId: number,
  hold: { version: number | null; until: number; isQuiet?: boolean },
): Promise<void> {
  const held = { heldVersion: hold.version, heldUntil: hold.until, isQuiet: hold.isQuiet ?? false };
  await addresses.update(tx, { orgId, nodeId, heldUntil: null }, held);
}

/** Frees the addresses of a node that never had a certificate. */
export async function freeAddresses(tx: Transaction, orgId: number, nodeId: number): Promise<void> {
  await addresses.update(tx, { orgId, nodeId }, { nodeId: null, ...noHold });
}
