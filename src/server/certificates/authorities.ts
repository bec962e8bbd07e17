// The CAs of an organization, opened for signing. Opened keys stay in memory (they never change); nothing outside of
// issue.ts signs with them.

import type { KeyObject } from "node:crypto";
import { readCaKey } from "../../pki/ca-key.ts";
import { decodeCaBundle, type NebulaCertificate } from "../../pki/nebula.ts";
import { openSecret, type SecretKeys } from "../../pki/secrets.ts";
import type { Issuer as X509Issuer } from "../../pki/x509.ts";
import { AppError } from "../../errors.ts";
import { authorityContext } from "./make-authorities.ts";
import type { ServerOptions } from "../options.ts";
import { numberOf, textOf, type Reader, type Row } from "../store/database.ts";

export type OverlayAuthority = { id: number; certificate: NebulaCertificate; privateKey: KeyObject };
export type X509Authority = { id: number; issuer: X509Issuer };

export type Authorities = {
  overlay(reader: Pick<Reader, "get">, orgId: number): Promise<OverlayAuthority>;
  x509(reader: Pick<Reader, "get">, orgId: number): Promise<X509Authority>;
};

/** How many organizations' keys are kept open at once. */
const maxOpen = 1000;

export function openAuthorities({ secretKey }: Pick<ServerOptions, "secretKey">): Authorities {
  const overlays = new Map<number, OverlayAuthority>();
  const x509s = new Map<number, X509Authority>();
  const keep = <T>(cache: Map<number, T>, id: number, opened: T): T => {
    if (cache.size >= maxOpen) cache.clear();
    cache.set(id, opened);
    return opened;
  };
  return {
    async overlay(reader, orgId) {
      const id = numberOf(await activeAuthority(reader, orgId, "overlay", "id"), "id");
      const known = overlays.get(id);
      if (known !== undefined) return known;
      const row = await activeAuthority(reader, orgId, "overlay", columns);
      const [certificate] = decodeCaBundle(textOf(row, "certificate"));
      if (certificate === undefined) throw new AppError("internal", "An overlay CA cannot be read");
      const { privateKey } = await readCaKey(openKey(row, secretKey));
      return keep(overlays, id, { id, certificate, privateKey });
    },
    async x509(reader, orgId) {
      const id = numberOf(await activeAuthority(reader, orgId, "x509", "id"), "id");
      const known = x509s.get(id);
      if (known !== undefined) return known;
      const row = await activeAuthority(reader, orgId, "x509", columns);
      const { openIssuer } = await import("../../pki/x509.ts");
      const pems = { certificatePem: textOf(row, "certificate"), privateKeyPem: openKey(row, secretKey) };
      return keep(x509s, id, { id, issuer: await openIssuer(pems) });
    },
  };
}

/** The private key of the CA that signs now, as PEM: for its export, and for nothing else. */
export async function readAuthorityKey(
  reader: Pick<Reader, "get">,
  orgId: number,
  kind: "overlay" | "x509",
  secretKey: ServerOptions["secretKey"],
): Promise<string> {
  return openKey(await activeAuthority(reader, orgId, kind, columns), secretKey);
}

const columns = "id, kind, fingerprint, certificate, private_key_sealed";

async function activeAuthority(
  reader: Pick<Reader, "get">,
  orgId: number,
  kind: "overlay" | "x509",
  what: string,
): Promise<Row> {
  const row = await reader.get(
    `SELECT ${what} FROM authorities WHERE org_id = $1 AND kind = $2 AND state = 'active'`,
    [orgId, kind],
  );
  if (row === undefined) throw new AppError("internal", "The organization has no active CA");
  return row;
}

function openKey(row: Row, secretKey: SecretKeys): string {
  const kind = textOf(row, "kind") === "x509" ? "x509" : "overlay";
  return openSecret(
    secretKey,
    textOf(row, "private_key_sealed"),
    authorityContext(kind, textOf(row, "fingerprint")),
  );
}
