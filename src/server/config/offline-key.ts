// The key of an offline CA, on the machine of a signer. It is written encrypted, and the control plane never has it.

import { AppError } from "../../base/errors.ts";
import { encodePem } from "../../pki/bundle.ts";
import { encryptCaKey, isEncryptedCaKey, readCaKey } from "../../pki/ca-key.ts";
import { rawPublicKey } from "../../pki/keys.ts";
import {
  decodeCaBundle,
  fingerprint,
  makeCa,
  type CertificateAuthority,
  type NebulaCertificate,
} from "../../pki/nebula.ts";

/** Signers make another one before it ends: there is no key on a server that could. */
const lifetimeS = 10 * 365 * 86_400;
/** So that nodes whose clocks are behind take the certificate at once. */
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

/** Throws invalid_credentials for a wrong passphrase, and bad_request for files that do not belong together. */
export async function openOfflineCa(
  key: string,
  certificatePem: string,
  passphrase: string,
): Promise<CertificateAuthority> {
  const certificate = readCa(certificatePem);
  if (!isEncryptedCaKey(key))
    throw new AppError("bad_request", "The key of the offline CA is not encrypted", {
      hint: "Keep it encrypted: nebula-cert makes such a key with `ca -encrypt`.",
    });
  const { privateKey } = await readCaKey(key, passphrase);
  if (Buffer.compare(rawPublicKey(privateKey), certificate.publicKey) !== 0)
    throw new AppError("bad_request", "Key and certificate of the offline CA do not belong together");
  return { certificate, privateKey };
}

export const printOfCa = (pem: string): string => fingerprint(readCa(pem));

function readCa(pem: string): NebulaCertificate {
  const [ca, ...others] = decodeCaBundle(pem);
  if (ca !== undefined && others.length === 0) return ca;
  throw new AppError("bad_request", "The file of the CA does not hold the certificate of one CA");
}
