// The remedy of the doctor for what only a new registration brings back.

import { brand } from "../../brand.ts";
import { quoteWord } from "../../base/quote.ts";
import { controlPlaneOf, type KnownControlPlane } from "../files/granted/control-planes.ts";
import type { Organization } from "../files/organizations.ts";

const run = brand.executable;

/** Registers the same node again, with new keys. An administrator first revokes those that it has. */
export function howToRegisterAgain({ slug, directory, config }: Organization): string {
  const { apiBase = "URL", caFingerprint } = knownControlPlane(directory);
  const pin = caFingerprint === undefined ? "" : ` --ca-fingerprint ${caFingerprint}`;
  const plain = apiBase.startsWith("http:") ? " --allow-plain-http" : "";
  const node = `${quoteWord(slug)} ${quoteWord(config.name)}`;
  const where = `--api-base ${quoteWord(apiBase)}${pin}${plain} --org-slug ${quoteWord(slug)}`;
  return `${run} register --force ${where} --registration-token-file FILE, with a token that an administrator makes: ${run} admin node revoke ${node} && ${run} admin token create ${quoteWord(slug)} --node ${quoteWord(config.name)}`;
}

/** Empty if its files cannot be read: another check reports that. */
function knownControlPlane(directory: string): Partial<KnownControlPlane> {
  try {
    return controlPlaneOf(directory) ?? {};
  } catch {
    return {};
  }
}
