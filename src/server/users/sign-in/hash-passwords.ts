// Hashes and checks passwords: argon2id (m=19 MiB, t=2, p=1). One or two run at a time, in turns, so that many sign-ins
// do not starve other requests. Knows no users.

import { makeTurns, type Turn } from "./password-queue.ts";

export type Passwords = {
  hash(password: string, turn?: Turn): Promise<string>;
  /**
   * Without a hash (unknown user) the result is false, after the same time. `before` and `after` run within the turn, so
   * that concurrent guesses are counted one after the other.
   */
  verify(
    password: string,
    hash: string | undefined,
    watch: { turn: Turn; before(): void; after(matches: boolean): void },
  ): Promise<boolean>;
};

/** Cost of argon2id; `memoryCost` in KiB. */
type Cost = { memoryCost: number; timeCost: number };

const realCost: Cost = { memoryCost: 19_456, timeCost: 2 };
/** Leaves one processor to other requests. */
const atOnce = navigator.hardwareConcurrency > 2 ? 2 : 1;
const maxWaiting = 64;
/** The turn of a command on the server's machine, which has a queue of its own. */
const alone: Turn = { user: "", source: "", isKnown: true };

/** `cost`: less in tests that are not about it. */
export function makePasswords(cost: Cost = realCost): Passwords {
  const inTurn = makeTurns(atOnce, maxWaiting);
  let dummy: Promise<string> | undefined;
  const hash = (password: string) => Bun.password.hash(password, { algorithm: "argon2id", ...cost });
  return {
    hash: (password, turn = alone) => inTurn(turn, () => hash(password)),
    async verify(password, known, { turn, before, after }) {
      // Comparing with a hash that nothing matches takes the same time as a real one. Made without a turn: a refusal of
      // a full queue must not be kept as the dummy.
      const against = known ?? (await (dummy ??= hash(crypto.randomUUID())));
      return inTurn(turn, async () => {
        before();
        const matches = (await Bun.password.verify(password, against, "argon2id")) && known !== undefined;
        after(matches);
        return matches;
      });
    },
  };
}
