// Who holds which overlay address. The primary key of `addresses` is what keeps two nodes from sharing one; the next
// free one is found in constant time, from what was given back or from a counter.

import { AppError } from "../../errors.ts";
import {
  addressOf,
  hostOf,
  lastHost,
  parseAddress,
  parseNetwork,
  formatAddress,
  type Network,
} from "../addresses.ts";
import { numberOf, textOf, type Transaction } from "./database.ts";

/** An address for a new node of the organization: the wanted one, else the next free one. The caller takes it with `holdAddress`. */
export async function chooseAddress(
  tx: Transaction,
  org: { id: number; network: string },
  wanted: string | undefined,
): Promise<string> {
  const network = parseNetwork(org.network);
  if (network === undefined)
    throw new AppError("internal", `The organization's network ${org.network} cannot be read`);
  return wanted === undefined ? nextFree(tx, org.id, network) : checkWanted(tx, org.id, network, wanted);
}

async function checkWanted(
  tx: Transaction,
  orgId: number,
  network: Network,
  wanted: string,
): Promise<string> {
  const address = parseAddress(wanted);
  const wrong = (sentence: string) =>
    new AppError("validation_failed", sentence, { errors: { ip_address: [sentence] } });
  if (address === undefined) throw wrong("Enter an address without prefix, such as 10.77.0.5.");
  if (hostOf(network, address) === undefined)
    throw wrong(`The address must lie in ${network.text}, and be neither its first nor its last.`);
  const text = formatAddress(address);
  const holder = await tx.get("SELECT node_id FROM addresses WHERE org_id = $1 AND address = $2", [
    orgId,
    text,
  ]);
  if (holder !== undefined) throw addressTaken(text);
  await tx.run("DELETE FROM free_addresses WHERE org_id = $1 AND address = $2", [orgId, text]);
  return text;
}

export function addressTaken(address: string): AppError {
  return new AppError("address_taken", `The address ${address} is taken.`, {
    errors: { ip_address: ["This address is taken."] },
  });
}

async function nextFree(tx: Transaction, orgId: number, network: Network): Promise<string> {
  const returned = await tx.get(
    `DELETE FROM free_addresses WHERE id =
       (SELECT id FROM free_addresses WHERE org_id = $1 AND family = $2 ORDER BY id LIMIT 1) RETURNING address`,
    [orgId, network.family],
  );
  if (returned !== undefined) return textOf(returned, "address");
  const column = network.family === 4 ? "next_host" : "next_host6";
  // Each round passes an address that somebody has chosen by hand; no address is passed twice.
  for (;;) {
    const row = await tx.get(
      `UPDATE organizations SET ${column} = CAST(CAST(${column} AS BIGINT) + 1 AS TEXT) WHERE id = $1 RETURNING CAST(${column} AS BIGINT) - 1 AS host`,
      [orgId],
    );
    const host = numberOf(row ?? {}, "host");
    if (host > lastHost(network)) {
      throw new AppError("network_full", `The network ${network.text} has no free address.`, {
        hint: "Delete nodes that are gone, or make an organization with a larger network.",
      });
    }
    const address = addressOf(network, host);
    const taken = await tx.get("SELECT node_id FROM addresses WHERE org_id = $1 AND address = $2", [
      orgId,
      address,
    ]);
    if (taken === undefined) return address;
  }
}

export async function holdAddress(
  tx: Transaction,
  orgId: number,
  address: string,
  nodeId: number,
): Promise<void> {
  await tx.run("INSERT INTO addresses (org_id, address, node_id) VALUES ($1, $2, $3)", [
    orgId,
    address,
    nodeId,
  ]);
}

/** Gives back all addresses of a node: they may be handed out again. */
export async function releaseAddresses(tx: Transaction, orgId: number, nodeId: number): Promise<void> {
  const rows = await tx.all("SELECT address FROM addresses WHERE org_id = $1 AND node_id = $2", [
    orgId,
    nodeId,
  ]);
  for (const row of rows) {
    const address = textOf(row, "address");
    await tx.run("DELETE FROM addresses WHERE org_id = $1 AND address = $2", [orgId, address]);
    await tx.run(
      "INSERT INTO free_addresses (org_id, family, address) VALUES ($1, $2, $3) ON CONFLICT (org_id, address) DO NOTHING",
      [orgId, address.includes(":") ? 6 : 4, address],
    );
  }
}
