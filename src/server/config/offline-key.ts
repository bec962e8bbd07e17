// The key of an offline CA, on the machine of a signer. It is written encrypted, and the control plane never has it.

import { encodePem } from "../../pki/bundle.ts";
import { encryptCaKey } from "../../pki/ca-key.ts";
import { makeCa } from "../../pki/nebula.ts";

/** Signers make another one before it ends: there is no key on a server that could. */
const lifetimeS = 10 * 365 * 86_400;
const backdatedS = 300;

/** Version 1, which every engine reads. Without limits: it signs for routers and exits too. */
export async function makeOfflineCa(
  slug: string,
  passphrase: string,
  nowMs: number,
): Promise<{ key: string; certificate: string }> {
  const notBefore = Math.floor(nowMs / 1000) - backdatedS;
  const name = `${slug} offline CA`;
  const { certificate, privateKey } = makeCa({
    version: 1,
    name,
    notBefore,
    notAfter: notBefore + lifetimeS,
  });
  const key = await encryptCaKey({ curve: "25519", privateKey }, passphrase);
  return { key, certificate: encodePem(certificate) };
}
