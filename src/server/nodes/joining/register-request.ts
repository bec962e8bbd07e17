// Checks the keys and the engine version of a registration request. Without the database.

import { AppError, invalidField } from "../../../base/errors.ts";
import { formatHostPublicKey, readHostPublicKey } from "../../../pki/keys.ts";
import type { RegisterRequest } from "../../../protocol/registration.ts";
import type { IssuingOrg } from "../../certificates/issue.ts";
import { whyEngineRefused } from "../contact/refused-engine.ts";

type Asked = Pick<RegisterRequest, "host_public_key" | "node_csr">;
export type Keys = { hostPublicKey: string; csrKeySha256: string | null };

/** A private key that reaches the server is compromised: refuse the request. */
export function refusePrivateKeys(request: Partial<RegisterRequest>): void {
  for (const [field, value] of Object.entries(request)) {
    if (typeof value === "string" && /PRIVATE KEY/i.test(value)) {
      const sentence =
        "This is a private key. It must never leave its machine: create a new key pair and send the public key.";
      throw new AppError("validation_failed", "The request holds a private key.", {
        errors: { [field]: [sentence] },
      });
    }
  }
}

/** Throws validation_failed for an engine that nodes of this organization may not have. */
export function refuseEngine({ overlay_version }: RegisterRequest, org: IssuingOrg, caVersion: 1 | 2): void {
  const sentence = whyEngineRefused(overlay_version, org, caVersion);
  if (sentence === undefined) return;
  throw invalidField("overlay_version", sentence);
}

/** Throws validation_failed for a host key, or a certificate request, that cannot be read. */
export async function readKeys(request: Asked): Promise<Keys> {
  const hostPublicKey = readHostKey(request);
  if (request.node_csr === undefined) return { hostPublicKey, csrKeySha256: null };
  const { readCsr } = await import("../../../pki/x509.ts");
  return { hostPublicKey, csrKeySha256: (await readCsr(request.node_csr)).keySha256 };
}

/** In the canonical PEM form that is stored and compared: the sent PEM may break its lines anywhere. */
function readHostKey(request: Asked): string {
  try {
    return formatHostPublicKey(readHostPublicKey(request.host_public_key));
  } catch (error) {
    const sentence = "Expected the PEM of an X25519 public key (NEBULA X25519 PUBLIC KEY).";
    throw new AppError("validation_failed", "The request does not hold what it should.", {
      cause: error,
      errors: { host_public_key: [sentence] },
    });
  }
}
