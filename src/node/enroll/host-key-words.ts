// The words of this machine's host key for an organization, which a signer compares before the key is certified.

import { join } from "node:path";
import { readText } from "../../base/open-file.ts";
import { fingerprintOfHostKey, publicPemOfHostKey } from "../../pki/keys.ts";
import { sealedKeyWords, wordsOfKey } from "../../protocol/key-words.ts";

/** From the private half: no file that a control plane sent has a part in it. */
export function hostKeyWords(directory: string): { words: string[]; fingerprint: string } {
  const fingerprint = fingerprintOfHostKey(publicPemOfHostKey(readText(join(directory, "host.key"))));
  return { words: wordsOfKey(fingerprint, sealedKeyWords), fingerprint };
}
