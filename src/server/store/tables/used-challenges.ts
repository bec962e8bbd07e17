// Challenges and codes that count once. They are not stored when they are made, only when they are used.

import { hashToken } from "../../../pki/opaque.ts";
import type { Transaction } from "../database.ts";
import { integer, table, text } from "../table.ts";

/** Until they expire they must not count again. */
export const usedChallenges = table("used_challenges", {
  challengeHash: text("PRIMARY KEY"),
  expiresAt: integer(),
});

/** Whether this is the first use. `expiresAt`: ms; from then on the challenge must be refused without a look here. */
export async function useOnce(tx: Transaction, challenge: string, expiresAt: number): Promise<boolean> {
  const row = { challengeHash: hashToken(challenge), expiresAt };
  return (await usedChallenges.upsert(tx, row, "ON CONFLICT DO NOTHING")) > 0;
}
