// Reads what the seal of an organization makes this node enforce. Light: without a seal no signature is verified, and the code
// for that is not loaded.

import type { ConfigFiles } from "../../../protocol/download.ts";
import { sealFilesIn } from "./seal-files.ts";
import type { EnforcedState } from "./sealed-node.ts";

/** Undefined: nothing is enforced. Throws bad_configuration if a seal that was enforced cannot be read. */
export async function sealInForce(directory: string, slug: string): Promise<EnforcedState | undefined> {
  if (sealFilesIn(directory).length === 0) return undefined;
  const { enforcedSeal } = await import("../held-seal.ts");
  return enforcedSeal(directory, slug);
}

/** These files as the seal lets this node have them. `present`: those in force. Throws untrusted_answer where it permits none. */
export async function underSeal(
  seal: EnforcedState | undefined,
  sent: ConfigFiles,
  present?: () => ConfigFiles | undefined,
): Promise<ConfigFiles> {
  if (seal === undefined) return sent;
  const { sealedFiles } = await import("./sealed-files.ts");
  return sealedFiles(seal, sent, present?.());
}
