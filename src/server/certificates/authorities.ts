// Opens the CAs of an organization for signing. Opened keys stay in memory, because they never change. Only issue.ts signs
// with them.

import type { KeyObject } from "node:crypto";
import { brand } from "../../brand.ts";
import { formatTime } from "../../base/quantities.ts";
import { readCaKey } from "../../pki/ca-key.ts";
import { decodeCaBundle, type NebulaCertificate } from "../../pki/nebula.ts";
import { openSecret } from "../../pki/secrets.ts";
import type { Issuer as X509Issuer } from "../../pki/x509.ts";
import { AppError } from "../../base/errors.ts";
import { authorityContext } from "./make-authorities.ts";
import type { ServerOptions } from "../options.ts";
import type { Reader } from "../store/database.ts";
import { queryOne } from "../store/table.ts";
import { authorities, type AuthorityRow } from "../store/tables/certificates.ts";

export type OverlayAuthority = { id: number; certificate: NebulaCertificate; privateKey: KeyObject };
export type X509Authority = { id: number; issuer: X509Issuer };

export type Authorities = {
  overlay(reader: Reader, orgId: number): Promise<OverlayAuthority>;
  x509(reader: Reader, orgId: number): Promise<X509Authority>;
};

type Kind = AuthorityRow["kind"];

/** Number of organizations whose keys stay open. */
const maxOpen = 1000;

/**
 * Both throw clock_doubted: nodes cannot use, or cannot renew, a certificate that was signed by a wrong clock, or by a CA that
 * is not valid yet.
 */
export function openAuthorities({
  secretKey,
  clock,
}: Pick<ServerOptions, "secretKey" | "clock">): Authorities {
  return {
    overlay: makeOpener("overlay", clock, async (row) => {
      const [certificate] = decodeCaBundle(row.certificate);
      if (certificate === undefined) throw new AppError("internal", "An overlay CA cannot be read");
      const { privateKey } = await readCaKey(openKey(row, secretKey));
      return { id: row.id, certificate, privateKey };
    }),
    x509: makeOpener("x509", clock, async (row) => {
      const { openIssuer } = await import("../../pki/x509.ts");
      const pems = { certificatePem: row.certificate, privateKeyPem: openKey(row, secretKey) };
      return { id: row.id, issuer: await openIssuer(pems) };
    }),
  };
}

const activeId =
  "SELECT id, not_before FROM authorities WHERE org_id = $1 AND kind = $2 AND state = 'active'";

/** Returns a function that opens the active CA of an organization. Its row is read in full only if it is not open yet. */
function makeOpener<T>(kind: Kind, clock: ServerOptions["clock"], open: (row: AuthorityRow) => Promise<T>) {
  const opened = new Map<number, T>();
  return async (reader: Reader, orgId: number): Promise<T> => {
    clock.requireBelieved();
    const active = await queryOne(reader, authorities.pick("id", "notBefore"), activeId, [orgId, kind]);
    if (active !== undefined && active.notBefore > clock.now()) throw tooEarly(active.notBefore);
    const known = active === undefined ? undefined : opened.get(active.id);
    if (known !== undefined) return known;
    const row = await activeAuthority(reader, orgId, kind);
    const authority = await open(row);
    if (opened.size >= maxOpen) opened.clear();
    opened.set(row.id, authority);
    return authority;
  };
}

/** rotation-schedule.ts replaces such a CA, unless an administrator has switched automatic rotations off. */
function tooEarly(notBefore: number): AppError {
  const message = `The CA of this organization is valid only from ${formatTime(notBefore)}: it was made while the clock of the control plane was ahead.`;
  const hint = `The control plane replaces it within the hour. If rotations by itself are switched off: \`${brand.executable} admin ca rotate ORG\`.`;
  return new AppError("clock_doubted", message, { hint, retryAfter: 60 });
}

/** The private key of the active CA as PEM. Only the export may use it. */
export async function readAuthorityKey(
  reader: Reader,
  orgId: number,
  kind: Kind,
  secretKey: ServerOptions["secretKey"],
): Promise<string> {
  return openKey(await activeAuthority(reader, orgId, kind), secretKey);
}

/** The version of the active CA's certificate. Opens no key. */
export async function overlayCaVersion(reader: Reader, orgId: number): Promise<1 | 2> {
  const [ca] = decodeCaBundle((await activeAuthority(reader, orgId, "overlay")).certificate);
  return ca?.version ?? 1;
}

async function activeAuthority(reader: Reader, orgId: number, kind: Kind): Promise<AuthorityRow> {
  const row = await authorities.find(reader, { orgId, kind, state: "active" });
  if (row === undefined) throw new AppError("internal", "The organization has no active CA");
  return row;
}

function openKey(row: AuthorityRow, secretKey: ServerOptions["secretKey"]): string {
  return openSecret(secretKey, row.privateKeySealed, authorityContext(row.kind, row.fingerprint));
}
