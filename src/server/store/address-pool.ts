// Who holds which overlay address. An address is one row, whose primary key keeps two nodes from sharing it; the next
// free one is found in constant time, from what was given back or from a counter.

import { AppError } from "../../errors.ts";
import { addressOf, hostOf, lastHost, parseAddress, parseNetwork, type Network } from "../../ip.ts";
import { numberOf, type Reader, type Transaction } from "./database.ts";

export type Networks = { id: number; network: string; network6: string | null };
export type NodeAddress = { host: number; ip: string; ip6: string | null };

/**
 * An address for a node: the wanted one, else the lowest that was given back, else the next one never used. The caller
 * takes it with `takeAddress` in the same transaction. Throws address_taken, network_full or validation_failed.
 */
export async function chooseAddress(
  tx: Transaction,
  org: Networks,
  wanted: string | undefined,
  nodeId?: number,
): Promise<NodeAddress> {
  const network = networkOf(org.network);
  // Locks the organization's row: on PostgreSQL two that choose at once wait for each other here.
  const row = await tx.get(
    "UPDATE organizations SET next_host = next_host WHERE id = $1 RETURNING next_host",
    [org.id],
  );
  const host =
    wanted === undefined
      ? await nextFree(tx, org.id, network, numberOf(row ?? {}, "next_host"))
      : await wantedHost(tx, org.id, network, wanted, nodeId);
  return addressesOf(org, host);
}

function addressesOf(org: Networks, host: number): NodeAddress {
  const network6 = org.network6 === null ? undefined : networkOf(org.network6);
  const ip6 = network6 === undefined || host > lastHost(network6) ? null : addressOf(network6, host);
  return { host, ip: addressOf(networkOf(org.network), host), ip6 };
}

/** The IPv6 address of the node that has this IPv4 address; null where the organization has no such network. */
export function secondAddress(org: Networks, ip: string): string | null {
  return addressesOf(org, hostNumber(org, ip)).ip6;
}

/** The place in both networks that an IPv6 address belongs to; undefined where no node is ever given it. */
export function secondHost(org: Networks, ip6: string | null): number | undefined {
  const address = parseAddress(ip6 ?? "");
  return address === undefined || org.network6 === null
    ? undefined
    : hostOf(networkOf(org.network6), address);
}

/** The host number of an address that a node of the organization has. */
export function hostNumber(org: Pick<Networks, "network">, ip: string): number {
  const address = parseAddress(ip);
  const host = address === undefined ? undefined : hostOf(networkOf(org.network), address);
  if (host === undefined) throw new AppError("internal", `${ip} is no address of ${org.network}`);
  return host;
}

function networkOf(text: string): Network {
  const network = parseNetwork(text);
  if (network === undefined) throw new AppError("internal", `The network ${text} cannot be read`);
  return network;
}

async function wantedHost(
  tx: Transaction,
  orgId: number,
  network: Network,
  wanted: string,
  nodeId: number | undefined,
): Promise<number> {
  const address = parseAddress(wanted);
  const wrong = (sentence: string) =>
    new AppError("validation_failed", sentence, { errors: { ip_address: [sentence] } });
  if (address === undefined) throw wrong("Enter an address without prefix, such as 10.77.0.5.");
  const host = hostOf(network, address);
  if (host === undefined)
    throw wrong(`The address must lie in ${network.text}, and be neither its first nor its last.`);
  const holder = await holderOf(tx, orgId, host);
  if (holder !== undefined && holder !== null && holder !== nodeId)
    throw addressTaken(addressOf(network, host));
  return host;
}

/** The node that holds the host, null where it is free again, undefined where it was never used. */
async function holderOf(
  reader: Pick<Reader, "get">,
  orgId: number,
  host: number,
): Promise<number | null | undefined> {
  const row = await reader.get("SELECT node_id FROM addresses WHERE org_id = $1 AND host = $2", [
    orgId,
    host,
  ]);
  if (row === undefined) return undefined;
  return row["node_id"] === null ? null : numberOf(row, "node_id");
}

export function addressTaken(address: string): AppError {
  return new AppError("address_taken", `The address ${address} is taken.`, {
    errors: { ip_address: ["This address is taken."] },
  });
}

async function nextFree(tx: Transaction, orgId: number, network: Network, next: number): Promise<number> {
  const free = await tx.get(
    "SELECT host FROM addresses WHERE org_id = $1 AND node_id IS NULL ORDER BY host LIMIT 1",
    [orgId],
  );
  if (free !== undefined) return numberOf(free, "host");
  let host = next;
  // Passes addresses that somebody has chosen by hand; no address is passed twice.
  while ((await holderOf(tx, orgId, host)) !== undefined) host++;
  if (host > lastHost(network)) {
    throw new AppError("network_full", `The network ${network.text} has no free address.`, {
      hint: "Delete nodes that are gone, or make an organization with a larger network.",
    });
  }
  await tx.run("UPDATE organizations SET next_host = $2 WHERE id = $1", [orgId, host + 1]);
  return host;
}

/** Throws address_taken if another node has it after all. */
export async function takeAddress(
  tx: Transaction,
  orgId: number,
  address: Pick<NodeAddress, "host" | "ip">,
  nodeId: number,
): Promise<void> {
  const taken = await tx.run(
    `INSERT INTO addresses (org_id, host, node_id) VALUES ($1, $2, $3)
     ON CONFLICT (org_id, host) DO UPDATE
       SET node_id = excluded.node_id, held_version = NULL, held_until = NULL, free_at = NULL
     WHERE addresses.node_id IS NULL OR addresses.node_id = excluded.node_id`,
    [orgId, address.host, nodeId],
  );
  if (taken === 0) throw addressTaken(address.ip);
}

/**
 * The node leaves its address: it is held until every active node has confirmed `version`, which blocks the node's
 * certificates (null: not known yet), or until the last of them ends (`until`, ms). See holds.ts.
 */
export async function leaveAddresses(
  tx: Transaction,
  orgId: number,
  nodeId: number,
  hold: { version: number | null; until: number },
): Promise<void> {
  await tx.run(
    `UPDATE addresses SET held_version = $3, held_until = $4
     WHERE org_id = $1 AND node_id = $2 AND held_until IS NULL`,
    [orgId, nodeId, hold.version, hold.until],
  );
}

/** Frees the addresses of a node that never had a certificate. */
export async function freeAddresses(tx: Transaction, orgId: number, nodeId: number): Promise<void> {
  await tx.run(
    `UPDATE addresses SET node_id = NULL, held_version = NULL, held_until = NULL, free_at = NULL
     WHERE org_id = $1 AND node_id = $2`,
    [orgId, nodeId],
  );
}
