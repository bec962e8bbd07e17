// The words of this machine's host key for an organization, which a signer compares before the key is certified.

import { join } from "node:path";
import { readText } from "../../base/open-file.ts";
import { fingerprintOfHostKey, publicPemOfHostKey } from "../../pki/keys.ts";
import { sealedKeyWords, wordsOfKey } from "../../protocol/key-words.ts";

/** Derived from the private key, so that no file from a control plane can change the words. */
export function hostKeyWords(directory: string): { words: string[]; fingerprint: string } {
  const fingerprint = fingerprintOfHostKey(publicPemOfHostKey(readText(join(directory, "host.key"))));
  return { words: wordsOfKey(fingerprint, sealedKeyWords), fingerprint };
}
