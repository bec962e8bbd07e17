// Reads what the seal of an organization makes this node enforce. Without a seal, the code that verifies signatures is not
// loaded.

import type { ConfigFiles } from "../../../protocol/download.ts";
import { sealFilesIn } from "./seal-files.ts";
import type { EnforcedState } from "./sealed-node.ts";

/** Undefined: nothing is enforced. Throws bad_configuration if a seal that was enforced cannot be read. */
export async function sealInForce(directory: string, slug: string): Promise<EnforcedState | undefined> {
  if (sealFilesIn(directory).length === 0) return undefined;
  const { enforcedSeal } = await import("../held-seal.ts");
  return enforcedSeal(directory, slug);
}

/**
 * The sent files as the seal permits them: one in force takes the place of a refused one. Throws untrusted_answer if the seal
 * permits neither.
 */
export async function underSeal(
  seal: EnforcedState | undefined,
  sent: ConfigFiles,
  inForce?: () => ConfigFiles | undefined,
): Promise<ConfigFiles> {
  if (seal === undefined) return sent;
  const { sealedFiles } = await import("./sealed-files.ts");
  return sealedFiles(seal, sent, inForce?.());
}
