// The passphrase of a CA key: from its flag, a file, standard input or the terminal.

import { AppError } from "../../base/errors.ts";
import type { Context } from "../command.ts";
import { valueFlag } from "../values.ts";

export const passphraseFlag = valueFlag("P", "Passphrase of the CA keys (default: ask on the terminal)", {
  secret: true,
});

/** Longer than a password: no server limits the guesses against a file. */
export const leastPassphrase = 12;

/** On a terminal, a new one is typed twice. */
export async function readPassphrase(
  { values, system }: Context,
  { isNew }: { isNew: boolean },
): Promise<string> {
  const given = await values.secret("passphrase");
  if (given !== undefined) return given;
  if (!system.stdinIsTerminal) {
    throw new AppError(
      "usage",
      "Give the passphrase of the CA key with --passphrase-file (- is standard input)",
    );
  }
  const { askSecret } = await import("../ask.ts");
  return askSecret({ text: "Passphrase of the CA key: ", isNew }, system);
}

/** Throws usage if the passphrase is too short. */
export function requireLong(passphrase: string): void {
  if (passphrase.length >= leastPassphrase) return;
  throw new AppError("usage", `The passphrase has fewer than ${leastPassphrase} characters`, {
    hint: "Choose a longer one: an attacker with the file can try passphrases without limit.",
  });
}
