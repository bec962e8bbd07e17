// The networks from which users signed in: they are still admitted while the user's password is guessed from others.

import type { Reader, Transaction } from "../database.ts";
import { integer, table, text } from "../table.ts";

export const knownNetworks = table(
  "known_networks",
  {
    userId: integer("REFERENCES users (id)"),
    /** An IPv4 address, or an IPv6 /64. */
    network: text(),
    /** The last sign-in from there. */
    seenAt: integer(),
  },
  {
    constraints: ["PRIMARY KEY (user_id, network)"],
    indexes: ["CREATE INDEX known_networks_seen ON known_networks (seen_at)"],
  },
);

/** A network or device without a sign-in for this long is no longer known. */
export const knownForMs = 90 * 86_400_000;
const maxOfUser = 32;

export async function isKnownNetwork(
  reader: Pick<Reader, "get">,
  { userId, network, now }: { userId: number; network: string; now: number },
): Promise<boolean> {
  const known = await knownNetworks.find(reader, { userId, network });
  return known !== undefined && known.seenAt > now - knownForMs;
}

/** Remembers a sign-in. Forgets old networks of all users, and all but the newest of this one. */
export async function rememberNetwork(
  tx: Transaction,
  { userId, network, now }: { userId: number; network: string; now: number },
): Promise<void> {
  // Empty: the client disconnected before its address was read.
  if (network === "") return;
  const newest = "ON CONFLICT (user_id, network) DO UPDATE SET seen_at = excluded.seen_at";
  await knownNetworks.upsert(tx, { userId, network, seenAt: now }, newest);
  await tx.run("DELETE FROM known_networks WHERE seen_at < $1", [now - knownForMs]);
  // After a wall clock that was set back: no network is known for longer, or kept before newer ones.
  await tx.run("UPDATE known_networks SET seen_at = $2 WHERE user_id = $1 AND seen_at > $2", [userId, now]);
  await tx.run(
    `DELETE FROM known_networks WHERE user_id = $1 AND network NOT IN (
       SELECT network FROM known_networks WHERE user_id = $1 ORDER BY seen_at DESC, network LIMIT ${maxOfUser})`,
    [userId],
  );
}
