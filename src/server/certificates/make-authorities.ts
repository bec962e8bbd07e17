// Makes the two CAs of an organization and stores them with sealed keys. Opening and using them is authorities.ts.

import { X509Certificate } from "node:crypto";
import { sealSecret } from "../../pki/secrets.ts";
import type { ServerOptions } from "../options.ts";
import type { Transaction } from "../store/database.ts";

const caLifetimeMs = 2 * 365 * 86_400_000;
const backdatedMs = 5 * 60_000;

/** What a CA's private key is sealed for: moved to another row it does not open. */
export function authorityContext(kind: "overlay" | "x509", fingerprintHex: string): string {
  return `ca ${kind} ${fingerprintHex}`;
}

export type Authority = {
  kind: "overlay" | "x509";
  fingerprint: string;
  certificate: string;
  sealed: string;
  notBefore: number;
  notAfter: number;
};

/** Both CAs. The overlay's is of version 1, which signs certificates of both versions and every engine reads. */
export async function makeAuthorities(
  { system, secretKey }: Pick<ServerOptions, "system" | "secretKey">,
  slug: string,
  now: number,
): Promise<Authority[]> {
  // Loaded here: the libraries of certificates cost more than the rest of the server's start.
  const { encodePem, fingerprint, makeCa } = await import("../../pki/nebula.ts");
  const { makeX509Ca } = await import("../../pki/x509.ts");
  const [notBefore, notAfter] = [now - backdatedMs, now - backdatedMs + caLifetimeMs];
  const seconds = { notBefore: Math.floor(notBefore / 1000), notAfter: Math.floor(notAfter / 1000) };
  const overlay = makeCa({ version: 1, name: `${slug} overlay CA`, ...seconds });
  const x509 = await makeX509Ca({ organization: slug, notBefore, notAfter, serial: system.random(16) });
  const x509Print = new X509Certificate(x509.certificatePem).fingerprint256.replaceAll(":", "").toLowerCase();
  const seal = (kind: Authority["kind"], print: string, pem: string) =>
    sealSecret(secretKey, pem, authorityContext(kind, print));
  const overlayPrint = fingerprint(overlay.certificate);
  return [
    {
      kind: "overlay",
      fingerprint: overlayPrint,
      certificate: encodePem(overlay.certificate),
      sealed: seal("overlay", overlayPrint, overlay.privateKeyPem),
      notBefore,
      notAfter,
    },
    {
      kind: "x509",
      fingerprint: x509Print,
      certificate: x509.certificatePem,
      sealed: seal("x509", x509Print, x509.privateKeyPem),
      notBefore,
      notAfter,
    },
  ];
}

export async function insertAuthority(
  tx: Transaction,
  orgId: number,
  authority: Authority,
  now: number,
  state: "active" | "next" | "former" = "active",
): Promise<void> {
  await tx.run(
    `INSERT INTO authorities
       (org_id, kind, fingerprint, certificate, private_key_sealed, state, not_before, not_after, created_at)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
    [
      orgId,
      authority.kind,
      authority.fingerprint,
      authority.certificate,
      authority.sealed,
      state,
      authority.notBefore,
      authority.notAfter,
      now,
    ],
  );
}
