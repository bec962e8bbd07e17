// Hashes and checks passwords: argon2id (m=19 MiB, t=2, p=1), one or two at a time and a bounded queue, so that a storm
// of sign-ins starves nobody else. Knows no accounts.

import { AppError } from "../../errors.ts";

export type Passwords = {
  hash(password: string): Promise<string>;
  /**
   * False also without a hash (no such account), in the same time. `before` and `after` run within its turn, so that
   * guesses that waited together are counted one after the other.
   */
  verify(
    password: string,
    hash: string | undefined,
    watch: { before(): void; after(matches: boolean): void },
  ): Promise<boolean>;
};

const parameters = { algorithm: "argon2id", memoryCost: 19_456, timeCost: 2 } as const;
/** One processor stays free for everybody else. */
const atOnce = navigator.hardwareConcurrency > 2 ? 2 : 1;
const maxWaiting = 64;

export function makePasswords(): Passwords {
  const inTurn = makeTurns();
  let nobody: Promise<string> | undefined;
  const hash = (password: string) => inTurn(() => Bun.password.hash(password, parameters));
  return {
    hash,
    async verify(password, known, watch) {
      // A hash that nothing matches costs what a real one costs.
      const against = known ?? (await (nobody ??= hash(crypto.randomUUID())));
      return inTurn(async () => {
        watch.before();
        const matches = (await Bun.password.verify(password, against, "argon2id")) && known !== undefined;
        watch.after(matches);
        return matches;
      });
    },
  };
}

function makeTurns(): <T>(work: () => Promise<T>) => Promise<T> {
  const waiting: (() => void)[] = [];
  let running = 0;
  return async (work) => {
    if (running >= atOnce) {
      if (waiting.length >= maxWaiting) {
        throw new AppError("throttled", "Too many people sign in at this moment.", { retryAfter: 2 });
      }
      await new Promise<void>((resolve) => waiting.push(resolve));
    } else running++;
    try {
      return await work();
    } finally {
      const next = waiting.shift();
      if (next === undefined) running--;
      else next();
    }
  };
}
