// The one place where a node's certificates are signed. Every way to a certificate (registration, renewal, a changed
// node, restore, rotation) goes through here, and none passes for a node that is revoked.

import { AppError } from "../../errors.ts";
import { readHostPublicKey } from "../../pki/keys.ts";
import { encodePem, fingerprints, signCertificate } from "../../pki/nebula.ts";
import { parseNetwork } from "../../ip.ts";
import { limitCertificates } from "./blocklist.ts";
import type { Authorities, OverlayAuthority } from "./authorities.ts";
import type { NodeRecord } from "../store/nodes.ts";
import type { ServerOptions } from "../options.ts";
import { secondAddress } from "../store/address-pool.ts";
import { textOf, textOrNull, type Reader, type Row, type Transaction } from "../store/database.ts";

export const nodeLifetimeMs = 90 * 86_400_000;
const x509LifetimeMs = 7 * 86_400_000;
/** The engine allows no clock slack. */
const backdatedMs = 5 * 60_000;

type IssuedCertificate = {
  kind: "overlay" | "x509";
  authorityId: number;
  version: 1 | 2;
  fingerprint: string;
  /** The other fingerprint of the same certificate, where its signature has a second form (P-256). */
  twin: string | null;
  pem: string;
  /** ms */
  notBefore: number;
  notAfter: number;
};

/** What signing needs of an organization. */
export type IssuingOrg = {
  id: number;
  slug: string;
  network: string;
  /** In force: null where the certificates cannot hold it. */
  network6: string | null;
  certificateVersion: 1 | "both" | 2;
};

export const issuingColumns = "id, slug, network, network6, certificate_version";

export function issuingOrgOf(row: Row, id: number): IssuingOrg {
  const version = textOf(row, "certificate_version");
  return {
    id,
    slug: textOf(row, "slug"),
    network: textOf(row, "network"),
    // Version 1 holds no IPv6: until the organization leaves it, its second network is nobody's.
    network6: version === "1" ? null : textOrNull(row, "network6"),
    certificateVersion: version === "both" ? "both" : version === "2" ? 2 : 1,
  };
}

/** Throws not_found where the organization is gone. */
export async function readIssuingOrg(reader: Pick<Reader, "get">, id: number): Promise<IssuingOrg> {
  const row = await reader.get(
    `SELECT ${issuingColumns} FROM organizations WHERE id = $1 AND deleted_at IS NULL`,
    [id],
  );
  if (row === undefined) throw new AppError("not_found", "There is no such organization.");
  return issuingOrgOf(row, id);
}

/** Whether certificates may be signed for this node; asked again inside the transaction that stores them. */
export function mayIssue(node: Pick<NodeRecord, "state" | "name">): void {
  if (node.state === "revoked") throw new AppError("node_revoked", `The node ${node.name} is revoked.`);
}

type Deps = { authorities: Authorities; system: Pick<ServerOptions["system"], "now" | "random"> };

/**
 * Signs and stores the node's overlay certificates, one of each version that the organization has, as the present
 * ones; the fingerprint of the last. Signing takes no time to speak of, so it happens inside the transaction, for the
 * node as it stands there. `isBounded` false: something else than the number of certificates bounds how often this is
 * asked for. Throws node_revoked, too_many_certificates.
 */
export async function issueOverlay(
  tx: Transaction,
  org: IssuingOrg,
  asked: NodeRecord,
  { authorities, system }: Deps,
  { isBounded = true } = {},
): Promise<string> {
  mayIssue(asked);
  if (isBounded) await limitCertificates(tx, org, asked, system.now());
  const authority = await authorities.overlay(tx, org.id);
  await retire(tx, asked.id, "overlay");
  const node = withSecondAddress(org, asked);
  if (node.ip6 !== asked.ip6) {
    await tx.run("UPDATE nodes SET ip6 = $2 WHERE id = $1", [node.id, node.ip6]);
    await makeX509Due(tx, node.id);
  }
  let last = "";
  for (const version of versionsOf(org)) {
    const issued = await signFresh(tx, org, node, { version, authority, now: system.now() });
    await insert(tx, node, system, issued);
    last = issued.fingerprint;
  }
  return last;
}

/**
 * Signatures are deterministic: two certificates of the same second that say the same are one, and it may be on the
 * blocklist. So the life is shortened, second by second, until there is none like it.
 */
async function signFresh(
  tx: Transaction,
  org: IssuingOrg,
  node: NodeRecord,
  { version, authority, now }: { version: 1 | 2; authority: OverlayAuthority; now: number },
): Promise<IssuedCertificate> {
  if (node.hostPublicKey === null) throw new AppError("internal", "The node has no key to sign for");
  const ca = authority.certificate;
  const template = {
    version,
    name: node.name,
    networks: networksOf(org, node, version),
    unsafeNetworks: subnetsOf(node, version),
    groups: node.groups,
    notBefore: Math.max(Math.floor((now - backdatedMs) / 1000), ca.notBefore),
    publicKey: readHostPublicKey(node.hostPublicKey),
  };
  let notAfter = Math.min(Math.floor((now + nodeLifetimeMs) / 1000), ca.notAfter);
  for (;;) {
    const certificate = signCertificate({ ...template, notAfter }, authority);
    const [print = "", twin = null] = fingerprints(certificate);
    const known = await tx.get("SELECT id FROM certificates WHERE fingerprint = $1", [print]);
    if (known === undefined) {
      return {
        kind: "overlay",
        authorityId: authority.id,
        version,
        fingerprint: print,
        twin,
        pem: encodePem(certificate),
        notBefore: template.notBefore * 1000,
        notAfter: notAfter * 1000,
      };
    }
    notAfter--;
  }
}

/** A node that was made before its organization had IPv6 gets its address with the first certificate that can hold it. */
export function withSecondAddress(org: IssuingOrg, node: NodeRecord): NodeRecord {
  return node.ip6 === null && org.network6 !== null ? { ...node, ip6: secondAddress(org, node.ip) } : node;
}

export function versionsOf({ certificateVersion }: Pick<IssuingOrg, "certificateVersion">): (1 | 2)[] {
  return certificateVersion === "both" ? [1, 2] : [certificateVersion];
}

function networksOf(org: IssuingOrg, node: NodeRecord, version: 1 | 2): string[] {
  const withPrefix = (ip: string | null, network: string | null) => {
    const prefix = network === null ? undefined : parseNetwork(network)?.prefix;
    return ip === null || prefix === undefined ? [] : [`${ip}/${prefix}`];
  };
  const ipv4 = withPrefix(node.ip, org.network);
  return version === 1 ? ipv4 : [...ipv4, ...withPrefix(node.ip6, org.network6)];
}

/** Version 1 knows no IPv6; in version 2 a network behind the node needs an address of its family. */
function subnetsOf(node: NodeRecord, version: 1 | 2): string[] {
  return node.subnets.filter((subnet) => !subnet.includes(":") || (version === 2 && node.ip6 !== null));
}

/** A signed node.crt that is not stored yet. */
export type SignedX509 = { node: NodeRecord; issued: IssuedCertificate };

/** node.crt, where the node sent a request for it. Asynchronous (2 ms): never inside a transaction. */
export async function signX509(
  reader: Pick<Reader, "get">,
  org: IssuingOrg,
  node: NodeRecord,
  { authorities, system }: Deps,
): Promise<SignedX509 | undefined> {
  mayIssue(node);
  if (node.csr === null) return undefined;
  const { issueNodeX509, readCsr, x509Fingerprint } = await import("../../pki/x509.ts");
  const { id: authorityId, issuer } = await authorities.x509(reader, org.id);
  const { publicKey } = await readCsr(node.csr);
  const ca = issuer.certificate;
  const notBefore = Math.max(system.now() - backdatedMs, ca.notBefore.getTime());
  const notAfter = Math.min(system.now() + x509LifetimeMs, ca.notAfter.getTime());
  const pem = await issueNodeX509(
    {
      publicKey,
      name: node.name,
      organization: org.slug,
      nodeId: node.id,
      addresses: node.ip6 === null ? [node.ip] : [node.ip, node.ip6],
      notBefore,
      notAfter,
      serial: system.random(16),
    },
    issuer,
  );
  const fingerprint = x509Fingerprint(pem);
  const issued = {
    kind: "x509",
    authorityId,
    version: 1,
    fingerprint,
    twin: null,
    pem,
    notBefore,
    notAfter,
  } as const;
  return { node, issued };
}

/**
 * Stores a node.crt as the present one. False where the node was changed while it was signed: then what was signed is
 * dropped, and what made the change has marked the node for another.
 */
export async function storeX509(
  tx: Transaction,
  present: NodeRecord,
  signed: SignedX509,
  system: Deps["system"],
): Promise<boolean> {
  mayIssue(present);
  const names = ({ name, ip, ip6, csr }: NodeRecord) => JSON.stringify([name, ip, ip6, csr]);
  if (names(present) !== names(signed.node)) return false;
  await retire(tx, present.id, "x509");
  await insert(tx, present, system, signed.issued);
  return true;
}

/**
 * The present node.crt no longer says what it should. Called before the overlay certificates are issued anew, with
 * which the next look at the node is due.
 */
export async function makeX509Due(tx: Transaction, nodeId: number): Promise<void> {
  await tx.run(
    "UPDATE certificates SET renew_at = 0 WHERE node_id = $1 AND kind = 'x509' AND state = 'current'",
    [nodeId],
  );
}

/** Sets when a certificate of the node is to be renewed, from what it has. */
export async function setRenewal(tx: Transaction, nodeId: number): Promise<void> {
  await tx.run(
    "UPDATE nodes SET renew_at = (SELECT min(renew_at) FROM certificates WHERE node_id = $1 AND state = 'current') WHERE id = $1",
    [nodeId],
  );
}

async function retire(tx: Transaction, nodeId: number, kind: IssuedCertificate["kind"]): Promise<void> {
  await tx.run(
    "UPDATE certificates SET state = 'former' WHERE node_id = $1 AND kind = $2 AND state = 'current'",
    [nodeId, kind],
  );
}

async function insert(
  tx: Transaction,
  node: Pick<NodeRecord, "id" | "orgId">,
  { now, random }: Deps["system"],
  issued: IssuedCertificate,
): Promise<void> {
  const { kind, authorityId, version, fingerprint, twin, pem, notBefore, notAfter } = issued;
  await tx.run(
    `INSERT INTO certificates
       (org_id, node_id, authority_id, kind, version, fingerprint, twin, pem, not_before, not_after, renew_at, state, created_at)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, 'current', $12)`,
    [
      node.orgId,
      node.id,
      authorityId,
      kind,
      version,
      fingerprint,
      twin,
      pem,
      notBefore,
      notAfter,
      renewalTime(notBefore, notAfter, random),
      now(),
    ],
  );
  await setRenewal(tx, node.id);
}

/** Two thirds of its life, give or take a fortieth, so that nodes made together are not renewed together. */
export function renewalTime(
  notBefore: number,
  notAfter: number,
  random: ServerOptions["system"]["random"],
): number {
  const [high = 0, low = 0] = random(2);
  const jitter = ((high * 256 + low) / 65_535 - 0.5) / 20;
  return Math.round(notBefore + (notAfter - notBefore) * (2 / 3 + jitter));
}
