// Chooses the seal by which a new node begins to trust: the one in the join key, of --seal, or one that the user compares.

import { AppError } from "../../base/errors.ts";
import type { Registration } from "../../node/enroll/registration-checks.ts";
import type { Context } from "../command.ts";
import { valueFlag } from "../values.ts";

export const sealFlag = {
  seal: valueFlag(
    "HASH",
    "The hash of a seal of the organization, from a signer: refuse all that does not follow it",
  ),
};

/**
 * The seal to begin with: of --seal or of the join key (`seal`), else one that the user compares. `isKeyed`: the machine joins by
 * a token that an administrator handed over, which counts as enough if it has no hash, as older ones.
 */
export function sealPin(
  { values, system, output }: Context,
  { seal, isKeyed }: { seal?: string | undefined; isKeyed: boolean },
): Pick<Registration, "seal" | "confirmSeal"> {
  const given = values.text("seal")?.toLowerCase();
  if (given !== undefined && !/^[0-9a-f]{64}$/.test(given))
    throw new AppError("usage", "--seal must be the 64 hexadecimal digits of a seal's hash");
  if (given !== undefined && seal !== undefined && given !== seal)
    throw new AppError("usage", "--seal is another seal than that of the join key", {
      hint: "Ask a signer which one is theirs.",
    });
  const pin = given ?? seal;
  if (pin !== undefined) return { seal: pin };
  if (isKeyed) return {};
  return { confirmSeal: (hash) => confirmSeal(hash, { system, output }) };
}

/** The control plane that sends a seal may be the thief's: its hash counts only if the user has it from somebody else. */
async function confirmSeal(
  hash: string,
  { system, output }: Pick<Context, "system" | "output">,
): Promise<void> {
  if (!system.stdinIsTerminal)
    throw new AppError("usage", "The organization is sealed: give the hash of its seal with --seal HASH", {
      hint: "Ask a signer for it, and repeat the command: it goes on with the same keys.",
    });
  const { ask } = await import("../ask.ts");
  output.say(
    "The organization is sealed. Ask a signer for the hash of the newest seal: `seal sign` printed it.",
  );
  const [typed = ""] = await ask([{ text: "Its first 16 digits or more: ", isSecret: false }], system);
  const digits = typed.trim().toLowerCase();
  if (/^[0-9a-f]{16,64}$/.test(digits) && hash.startsWith(digits)) return;
  throw new AppError("untrusted_answer", "The control plane sent another seal: the registration is refused", {
    hint: "If the digits are right, another seal may have been published since, or the control plane is not yours. Ask the signer.",
  });
}
