// What is remembered of the probes of one overlay address, and what that says about the peer.

/** So many probes follow a miss without a pause; further ones at the usual pace. */
export const burst = 3;
/** A peer that missed this many probes, after it answered, does not answer. */
export const brokenAfter = burst + 1;
/** An answer of this age is one to the latest probe: it is sent every 10 s. */
export const freshMs = 15_000;
export const historyMs = 60_000;

export type ProbeRecord = {
  /** Monotonic ms; undefined: never. */
  answeredAt: number | undefined;
  rttMs: number | undefined;
  /** Misses in a row. */
  missed: number;
  /** Since when it is probed, monotonic ms. */
  since: number;
  /** How many were sent since then. Those that the system refused are missed, and not sent. */
  sent: number;
  /** Index of the tunnel in which it answered last. */
  index: number | undefined;
  /** The results of the last minute. */
  history: { at: number; answered: boolean }[];
};

/** Whether an address that used to answer has stopped. Only an answer ends that, or that the peer is gone: never time. */
export function isBroken({ answeredAt, missed }: ProbeRecord): boolean {
  return answeredAt !== undefined && missed >= brokenAfter;
}

/** Whether the address answers now: each address that is probed is asked every 10 s. */
export function isAnswering({ answeredAt, missed }: ProbeRecord, now: number): boolean {
  return answeredAt !== undefined && now - answeredAt < freshMs && missed < brokenAfter;
}

/**
 * Whether probes since `from` decide the state: an answer, or `burst` misses. With earlier ones, these must be enough for isBroken:
 * with fewer the address still counts as it did before.
 */
export function isSettled(record: ProbeRecord, from: number): boolean {
  if ((record.answeredAt ?? Number.NEGATIVE_INFINITY) >= from) return true;
  const missed = record.history.filter(({ at, answered }) => at >= from && !answered).length;
  return record.missed >= brokenAfter && missed >= burst;
}

/** The part of the last minute's probes without an answer, 0 to 1; undefined without a probe. */
export function lossOf({ history }: ProbeRecord, now: number): number | undefined {
  const recent = history.filter(({ at }) => now - at < historyMs);
  if (recent.length === 0) return undefined;
  return recent.filter(({ answered }) => !answered).length / recent.length;
}
