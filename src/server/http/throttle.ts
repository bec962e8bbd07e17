// Limits attempts within sliding windows. `limits` has all kinds. Of passwords, tokens, codes and answers of providers only
// wrong ones count; of the other kinds, valid requests count too. Counts are in memory and end with the process. Replicas
// share them (store/shared-throttle.ts).

import { AppError } from "../../base/errors.ts";
import { networkOf } from "../../base/ip.ts";

/** At most so many attempts (`times`) in a sliding window. */
type Limit = { times: number; withinMs: number };
/** `windows`: the shortest first; each limits by itself. `reason`: a sentence for the refused caller. */
type Rules = { windows: readonly [Limit, ...Limit[]]; reason: string };

const minute = 60_000;
const hour = 60 * minute;
const wrong = "Too many wrong attempts.";
const wrongForUser =
  "Too many wrong passwords were tried for this user. At the moment only devices and networks that the user signed in from before are admitted.";

/** The limits of the control plane. The bound on guesses in docs/security.md follows from these numbers. */
export const limits = {
  /** Wrong passwords from one network, for all users together. */
  network: { windows: [{ times: 10, withinMs: minute }], reason: wrong },
  /** Wrong passwords of one user from one network or device. */
  place: {
    windows: [
      { times: 10, withinMs: minute },
      { times: 100, withinMs: hour },
    ],
    reason: wrong,
  },
  /** Wrong passwords of one user from everywhere. */
  user: {
    windows: [{ times: 100, withinMs: hour }],
    reason: wrongForUser,
  },
  /** The same for an e-mail address without a user, so that the answers do not differ. */
  stranger: {
    windows: [{ times: 100, withinMs: hour }],
    reason: wrongForUser,
  },
  /** Tokens from one network that were never issued. */
  token: { windows: [{ times: 10, withinMs: minute }], reason: wrong },
  /** Requests for a new password from one network. */
  resetsFrom: { windows: [{ times: 10, withinMs: hour }], reason: "Too many requests for a new password." },
  /** Requests for a new password of one user. */
  resets: { windows: [{ times: 3, withinMs: hour }], reason: "Too many requests for a new password." },
  /**
   * Invitations and alarms of one organization by e-mail. Its administrators choose the receivers; the SMTP server is the
   * operator's.
   */
  mails: { windows: [{ times: 200, withinMs: hour }], reason: "This organization sent too many e-mails." },
  /** Answers of providers of identities, from one network, that did not verify. */
  answers: { windows: [{ times: 30, withinMs: minute }], reason: "Too many sign-ins that failed." },
  /** Different requests for approval by one machine: each is an event. */
  asking: {
    windows: [{ times: 10, withinMs: hour }],
    reason: "This machine asked for approval of too many different registrations.",
  },
  /** Sign-ins of the command line that begin, from one network. */
  devices: { windows: [{ times: 20, withinMs: minute }], reason: "Too many sign-ins begin." },
  /** Machines that begin to wait for a user, from one network. */
  enrollments: { windows: [{ times: 20, withinMs: minute }], reason: "Too many machines ask to join." },
  /** Phones for which one user asks approval. Site files that are made are counted beside the data (nodes/phones.ts). */
  phones: { windows: [{ times: 10, withinMs: hour }], reason: "You made too many site files." },
  /** Codes and words of machines that one user types wrong. */
  codes: {
    windows: [
      { times: 5, withinMs: 10 * minute },
      { times: 20, withinMs: hour },
    ],
    reason: "Too many wrong codes.",
  },
  /** Resumed registrations of one node. */
  resume: {
    windows: [{ times: 10, withinMs: hour }],
    reason: "This node resumed its registration too often.",
  },
} as const satisfies Record<string, Rules>;

export type Throttle<Kind extends string = keyof typeof limits> = {
  /** Throws throttled while one more attempt would exceed a limit. */
  check(kind: Kind, key: string): void;
  /** Counts one attempt. */
  count(kind: Kind, key: string): void;
  /** The number of attempts within the shortest window. */
  counted(kind: Kind, key: string): number;
};

export function throttled(reason: string, waitMs: number): AppError {
  const seconds = Math.max(1, Math.ceil(waitMs / 1000));
  return new AppError("throttled", `${reason} Try again in ${seconds} seconds.`, { retryAfter: seconds });
}

/** Of each kind. */
const maxKeys = 20_000;

/**
 * Forgets the oldest keys of a kind if there are too many: a flood of one kind does not displace the others. `now`: a
 * monotonic clock, so that a wall clock that is set neither extends nor ends a limit.
 */
export function makeThrottle<Kind extends string>(
  now: () => number,
  rules: Readonly<Record<Kind, Rules>>,
): Throttle<Kind> {
  /** By kind, then by key, oldest key first: the times of the attempts. */
  const kinds = new Map<Kind, Map<string, number[]>>();
  const attemptsOf = (kind: Kind) => kinds.getOrInsertComputed(kind, () => new Map());
  const within = (kind: Kind, key: string, { withinMs }: Limit) =>
    (attemptsOf(kind).get(key) ?? []).filter((at) => at > now() - withinMs);
  return {
    check(kind, key) {
      // Of each limit that is reached: when the oldest attempt that fills it leaves the window.
      const freeAt = rules[kind].windows.flatMap((limit) => {
        const oldest = within(kind, key, limit).at(-limit.times);
        return oldest === undefined ? [] : [oldest + limit.withinMs];
      });
      if (freeAt.length === 0) return;
      throw throttled(rules[kind].reason, Math.max(...freeAt) - now());
    },
    count(kind, key) {
      const most = Math.max(...rules[kind].windows.map(({ times }) => times));
      const attempts = attemptsOf(kind);
      const newest = [...(attempts.get(key) ?? []), now()].slice(-most);
      attempts.delete(key);
      attempts.set(key, newest);
      const oldest = attempts.keys().next();
      if (attempts.size > maxKeys && oldest.done !== true) attempts.delete(oldest.value);
    },
    counted: (kind, key) => within(kind, key, rules[kind].windows[0]).length,
  };
}

/**
 * Counts a token that was never issued. Throws throttled if its network sent too many. Valid tokens are never refused
 * for that: they are too long to be guessed, and a neighbour's guesses must not stop them.
 */
export function countTokenGuess(throttle: Pick<Throttle, "check" | "count">, address: string): void {
  const network = networkOf(address);
  throttle.check("token", network);
  throttle.count("token", network);
}
