// Machines that wait for a user: sign-ins of the command line, and machines that join by a browser. Their requests
// need no credentials, so their number is bounded, and the networks of the requests share the room.

import { AppError } from "../../../base/errors.ts";
import { parseAddress } from "../../../base/ip.ts";
import type { Transaction } from "../../store/database.ts";
import { computed, integer, queryAll, text } from "../../store/table.ts";

/** Maximum waiting requests in all. */
const maxWaiting = 1000;
/** Maximum from one site. One attacker has a whole IPv6 /48. */
const maxOfSite = 50;
const waitingPick = computed({ id: integer(), address: text() });
/** By table, the requests that wait, oldest first. */
const waitingIn = {
  device_requests: "SELECT id, address FROM device_requests ORDER BY id",
  // Confirmed requests do not count: a user vouches for them.
  enrollments: "SELECT id, address FROM enrollments WHERE org_id IS NULL ORDER BY id",
};

/**
 * Makes room for a request of this address. In a full room, the newest request of the network with the most is
 * removed. Throws throttled if that is the network of this address, or if its site has its maximum.
 */
export async function makeRoom(
  tx: Transaction,
  table: keyof typeof waitingIn,
  address: string,
): Promise<void> {
  const waiting = await queryAll(tx, waitingPick, waitingIn[table]);
  const ownSite = siteOf(address);
  const ofSite = waiting.filter((request) => siteOf(request.address) === ownSite);
  if (ofSite.length >= maxOfSite) throw tooMany();
  if (waiting.length < maxWaiting) return;
  const newcomer = { id: 0, address };
  // The newcomer comes first, so that of networks with the same number, its own gives way.
  const network = mostCrowded([newcomer, ...waiting], (request) => wideOf(request.address));
  const site = mostCrowded(network, (request) => siteOf(request.address));
  const newest = site.at(-1);
  if (newest === undefined || site.includes(newcomer)) throw tooMany();
  await tx.run(`DELETE FROM ${table} WHERE id = $1`, [newest.id]);
}

/** The largest group of the list, in its order; of several, the one of the first item. */
function mostCrowded<T>(list: readonly T[], keyOf: (item: T) => string): readonly T[] {
  const groups = [...Map.groupBy(list, keyOf).values()];
  return groups.reduce((largest, group) => (group.length > largest.length ? group : largest), []);
}

/** One IPv4 address, or an IPv6 /48: what a provider gives to one customer at most. */
const siteOf = (address: string) => within(address, 32, 48);
/** An IPv4 /16 or an IPv6 /32: a caller can rent many addresses in one of them. */
const wideOf = (address: string) => within(address, 16, 32);

/** The network of an address as a key, not as text: all that wait are compared at each request. */
function within(address: string, bits4: number, bits6: number): string {
  const parsed = parseAddress(address);
  if (parsed === undefined) return address;
  const { family, value } = parsed;
  return `${family}/${value >> BigInt(family === 4 ? 32 - bits4 : 128 - bits6)}`;
}

function tooMany(): AppError {
  const message = "Too many requests wait at the moment. Try again in a minute.";
  return new AppError("throttled", message, { retryAfter: 60 });
}
