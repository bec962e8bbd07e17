// Limits wrong guesses (a wrong password, a token that was never issued) within a sliding window. Valid credentials do
// not count. Resumed registrations have a throttle of their own.

import { AppError } from "../../errors.ts";
import { parseAddress } from "../../ip.ts";

export type Throttle = {
  /** Throws throttled while the key has no guesses left. */
  check(key: string): void;
  /** Counts one guess. */
  count(key: string): void;
  /** The number of guesses within the window. */
  counted(key: string): number;
};

const maxKeys = 20_000;

/** The key of guesses from an address. An IPv6 /64 counts as one address, because a host can use all of it. */
export function throttleKey(kind: "address" | "token", address: string): string {
  const parsed = address.includes(":") ? parseAddress(address) : undefined;
  return `${kind} ${parsed === undefined ? address : parsed.value >> 64n}`;
}

/** Allows `limit` guesses within `windowMs` for each key. Forgets the oldest keys if there are too many. */
export function makeThrottle(
  now: () => number,
  limit = 10,
  windowMs = 60_000,
  reason = "Too many wrong attempts.",
): Throttle {
  /** By kind, so that a flood of invented tokens does not displace the guesses at accounts. */
  const kinds = new Map<string, Map<string, number[]>>();
  const guessesOfKind = (key: string) => {
    const kind = key.slice(0, Math.max(0, key.indexOf(" ")));
    const known = kinds.get(kind) ?? new Map<string, number[]>();
    kinds.set(kind, known);
    return known;
  };
  const recent = (key: string) => (guessesOfKind(key).get(key) ?? []).filter((at) => at > now() - windowMs);
  return {
    check(key) {
      const [oldest, ...more] = recent(key);
      if (oldest === undefined || more.length + 1 < limit) return;
      const seconds = Math.max(1, Math.ceil((oldest + windowMs - now()) / 1000));
      throw new AppError("throttled", `${reason} Try again in ${seconds} seconds.`, {
        retryAfter: seconds,
      });
    },
    count(key) {
      const times = [...recent(key), now()].slice(-limit);
      const guesses = guessesOfKind(key);
      guesses.delete(key);
      guesses.set(key, times);
      const first = guesses.keys().next();
      if (guesses.size > maxKeys && first.done !== true) guesses.delete(first.value);
    },
    counted: (key) => recent(key).length,
  };
}
