// Decides after how many packets a relayed tunnel tries the direct path. By default an engine tries it every 1000 packets, so a
// quiet tunnel stays relayed. While all relayed tunnels are quiet, it tries after two packets. Pure. Times are monotonic ms.

export type Promotion = {
  /** How many packets a relayed tunnel sends until it tries the direct path; undefined: the engine's default. */
  tryPromote: number | undefined;
  /** When tryPromote changed. */
  promoteAt: number;
  /** How many packets the relayed tunnels had sent at a time, by overlay address of the peer. */
  relayed: { at: number; counters: Readonly<Record<string, number>> };
};

export const initialPromotion: Promotion = {
  tryPromote: undefined,
  promoteAt: Number.NEGATIVE_INFINITY,
  relayed: { at: 0, counters: {} },
};

/** Packets a second on all relayed tunnels, above which the engine's default promotes soon enough. */
const busyRate = 20;
const quietPromote = 2;
/** The shortest time in which packets are counted. */
const countMs = 1000;
/** Each change reloads the engine. So this time passes before one to the engine's default, and before one to quietPromote. */
const defaultAfterMs = 60_000;
const quietAfterMs = 15_000;

/** `counters`: how many packets each tunnel that should leave its relay has sent, by overlay address of the peer. */
export function decidePromotion(
  before: Promotion,
  counters: Readonly<Record<string, number>>,
  now: number,
): Promotion {
  const { relayed, tryPromote, promoteAt } = before;
  const addresses = Object.keys(counters);
  const sent = addresses.map((address) => sentSince(relayed.counters[address], counters[address]));
  const seconds = Math.max(1, (now - relayed.at) / 1000);
  const isBusy = sent.reduce((sum, each) => sum + each, 0) / seconds > busyRate;
  const isCounted = now - relayed.at >= countMs;
  const unchanged = isCounted ? { ...before, relayed: { at: now, counters } } : before;
  const wanted = addresses.length > 0 && !isBusy ? quietPromote : undefined;
  if (wanted === tryPromote) return unchanged;
  // Wait, unless tunnels became busy: with quietPromote these would send a test with every other packet.
  const afterMs = wanted === undefined ? defaultAfterMs : quietAfterMs;
  if (!isBusy && now - promoteAt < afterMs) return unchanged;
  return { ...unchanged, tryPromote: wanted, promoteAt: now };
}

/** A tunnel that was not counted before has sent nothing. The counter of a new tunnel begins anew. */
function sentSince(former: number | undefined, counter = 0): number {
  return former === undefined ? 0 : Math.max(0, counter - former);
}
