// Creates the two CAs of an organization and stores them with sealed keys. authorities.ts opens and uses them.

import { X509Certificate } from "node:crypto";
import { sealSecret } from "../../pki/secrets.ts";
import type { ServerOptions } from "../options.ts";
import type { Transaction } from "../store/database.ts";
import { authorities, type AuthorityRow } from "../store/tables/certificates.ts";
import { backdatedMs, caLifetimeS, noNetworks } from "./ca-limits.ts";

const caLifetimeMs = caLifetimeS * 1000;

/** The context that seals a CA's private key: in another row the key does not open. */
export function authorityContext(kind: AuthorityRow["kind"], fingerprintHex: string): string {
  return `ca ${kind} ${fingerprintHex}`;
}

/** A CA that is not stored yet. `sealed`: its private key, sealed. */
export type NewAuthority = Pick<
  AuthorityRow,
  "kind" | "fingerprint" | "certificate" | "notBefore" | "notAfter"
> & { sealed: string };

/**
 * Makes both CAs. The overlay CA has version 1: every engine reads it, and it can sign certificates of both versions. `limit`: the
 * only network that it may certify (ca-limits.ts). Throws clock_doubted.
 */
export async function makeAuthorities(
  { system, secretKey, clock }: Pick<ServerOptions, "system" | "secretKey" | "clock">,
  slug: string,
  now: number,
  limit?: string,
): Promise<NewAuthority[]> {
  clock.requireBelieved();
  // Loaded here: the certificate libraries take longer to load than the rest of the server.
  const { encodePem } = await import("../../pki/bundle.ts");
  const { fingerprint, makeCa } = await import("../../pki/nebula.ts");
  const { makeX509Ca } = await import("../../pki/x509.ts");
  const [notBefore, notAfter] = [now - backdatedMs, now - backdatedMs + caLifetimeMs];
  const seconds = { notBefore: Math.floor(notBefore / 1000), notAfter: Math.floor(notAfter / 1000) };
  const limits = limit === undefined ? {} : { networks: [limit], unsafeNetworks: [...noNetworks] };
  const overlay = makeCa({ version: 1, name: `${slug} overlay CA`, ...seconds, ...limits });
  const x509 = await makeX509Ca({ organization: slug, notBefore, notAfter, serial: system.random(16) });
  const x509Print = new X509Certificate(x509.certificatePem).fingerprint256.replaceAll(":", "").toLowerCase();
  const seal = (kind: NewAuthority["kind"], print: string, pem: string) =>
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
  { sealed: privateKeySealed, ...authority }: NewAuthority,
  createdAt: number,
  state: AuthorityRow["state"] = "active",
): Promise<void> {
  await authorities.insert(tx, { ...authority, orgId, privateKeySealed, state, createdAt });
}
