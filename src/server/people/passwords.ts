// Hashes and checks passwords: argon2id (m=19 MiB, t=2, p=1). One or two run at a time, with a bounded queue, so that
// many sign-ins do not starve other requests. Knows no users.

import { AppError } from "../../errors.ts";

export type Passwords = {
  hash(password: string): Promise<string>;
  /**
   * Without a hash (unknown user) the result is false, after the same time. `before` and `after` run within the turn, so
   * that concurrent guesses are counted one after the other.
   */
  verify(
    password: string,
    hash: string | undefined,
    watch: { before(): void; after(matches: boolean): void },
  ): Promise<boolean>;
};

const parameters = { algorithm: "argon2id", memoryCost: 19_456, timeCost: 2 } as const;
/** Leaves one processor to other requests. */
const atOnce = navigator.hardwareConcurrency > 2 ? 2 : 1;
const maxWaiting = 64;

export function makePasswords(): Passwords {
  const inTurn = makeTurns();
  let dummy: Promise<string> | undefined;
  const hash = (password: string) => inTurn(() => Bun.password.hash(password, parameters));
  return {
    hash,
    async verify(password, known, watch) {
      // Comparing with a hash that nothing matches takes the same time as a real one.
      const against = known ?? (await (dummy ??= hash(crypto.randomUUID())));
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
        throw new AppError(
          "throttled",
          "Too many users are signing in at the moment. Try again in 2 seconds.",
          { retryAfter: 2 },
        );
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
