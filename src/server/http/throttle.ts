// Counts guesses (a wrong password, a token that was never issued) within a sliding minute: valid credentials are never
// counted as guesses. Resumed registrations have a throttle of their own.

import { AppError } from "../../errors.ts";

import { parseAddress } from "../../ip.ts";

export type Throttle = {
  /** Throws throttled while the key has used up its guesses. */
  check(key: string): void;
  /** Counts one guess. */
  count(key: string): void;
  /** How many guesses of the key are within the window. */
  counted(key: string): number;
};

const maxKeys = 20_000;

/** The key of whoever guesses from an address: with IPv6 everybody has a whole /64 of them. */
export function guesser(kind: "address" | "token", address: string): string {
  const parsed = address.includes(":") ? parseAddress(address) : undefined;
  return `${kind} ${parsed === undefined ? address : parsed.value >> 64n}`;
}

/** `limit` guesses within `windowMs` for each key. Forgets the oldest keys under a flood of new ones. */
export function makeThrottle(
  now: () => number,
  limit = 10,
  windowMs = 60_000,
  what = "Too many wrong attempts.",
): Throttle {
  /** By kind: a flood of made-up tokens must not make it forget the guesses at an account. */
  const kinds = new Map<string, Map<string, number[]>>();
  const guessesLike = (key: string) => {
    const kind = key.slice(0, Math.max(0, key.indexOf(" ")));
    const known = kinds.get(kind) ?? new Map<string, number[]>();
    kinds.set(kind, known);
    return known;
  };
  const recent = (key: string) => (guessesLike(key).get(key) ?? []).filter((at) => at > now() - windowMs);
  return {
    check(key) {
      const [oldest, ...more] = recent(key);
      if (oldest === undefined || more.length + 1 < limit) return;
      const seconds = Math.max(1, Math.ceil((oldest + windowMs - now()) / 1000));
      throw new AppError("throttled", `${what} Try again in ${seconds} seconds.`, {
        retryAfter: seconds,
      });
    },
    count(key) {
      const times = [...recent(key), now()].slice(-limit);
      const guesses = guessesLike(key);
      guesses.delete(key);
      guesses.set(key, times);
      const first = guesses.keys().next();
      if (guesses.size > maxKeys && first.done !== true) guesses.delete(first.value);
    },
    counted: (key) => recent(key).length,
  };
}
