// The one place where a node's certificates are signed. Every way to a certificate (registration, renewal, a changed
// node, restore) goes through here, and none passes for a node that is revoked.

import { AppError } from "../errors.ts";
import { readHostPublicKey } from "../pki/keys.ts";
import { encodePem, fingerprint, signCertificate } from "../pki/nebula.ts";
import type { Authorities } from "./authorities.ts";
import { parseNetwork } from "./addresses.ts";
import type { NodeRecord } from "./node-records.ts";
import type { Services } from "./services.ts";
import type { Reader, Transaction } from "./store/database.ts";

export const nodeLifetimeMs = 90 * 86_400_000;
export const x509LifetimeMs = 7 * 86_400_000;
/** The engine allows no clock slack. */
const backdatedMs = 5 * 60_000;

export type IssuedCertificate = {
  kind: "overlay" | "x509";
  authorityId: number;
  version: 1 | 2;
  fingerprint: string;
  pem: string;
  notBefore: number;
  notAfter: number;
};

/** Whether certificates may be signed for this node; asked again inside the transaction that stores them. */
export function mayIssue(node: Pick<NodeRecord, "state" | "name">): void {
  if (node.state === "revoked") throw new AppError("node_revoked", `The node ${node.name} is revoked.`);
}

type Org = { id: number; slug: string; network: string };

/** The overlay certificate of version 1. Reads the CA through `reader`; signs at once, so it may run in a transaction. */
export async function issueOverlay(
  reader: Pick<Reader, "get">,
  org: Org,
  node: NodeRecord,
  authorities: Authorities,
  now: number,
): Promise<IssuedCertificate> {
  mayIssue(node);
  const { id: authorityId, certificate: ca, privateKey } = await authorities.overlay(reader, org.id);
  const network = parseNetwork(org.network);
  if (node.hostPublicKey === null || network === undefined)
    throw new AppError("internal", "The node has no key to sign for");
  const notBefore = Math.max(Math.floor((now - backdatedMs) / 1000), ca.notBefore);
  const notAfter = Math.min(Math.floor((now + nodeLifetimeMs) / 1000), ca.notAfter);
  const certificate = signCertificate(
    {
      version: 1,
      name: node.name,
      networks: [`${node.ip}/${network.prefix}`],
      unsafeNetworks: node.subnets.filter((subnet) => !subnet.includes(":")),
      groups: node.groups,
      notBefore,
      notAfter,
      publicKey: readHostPublicKey(node.hostPublicKey),
    },
    { certificate: ca, privateKey },
  );
  return {
    kind: "overlay",
    authorityId,
    version: 1,
    fingerprint: fingerprint(certificate),
    pem: encodePem(certificate),
    notBefore: notBefore * 1000,
    notAfter: notAfter * 1000,
  };
}

/** node.crt, where the node sent a request for it. Asynchronous (2 ms): never inside a transaction. */
export async function issueX509(
  reader: Pick<Reader, "get">,
  org: Org,
  node: NodeRecord,
  authorities: Authorities,
  { now, random }: Pick<Services["system"], "now" | "random">,
): Promise<IssuedCertificate | undefined> {
  mayIssue(node);
  if (node.csr === null) return undefined;
  const { issueNodeX509, readCsr, x509Fingerprint } = await import("../pki/x509.ts");
  const { id: authorityId, issuer } = await authorities.x509(reader, org.id);
  const { publicKey } = await readCsr(node.csr);
  const notBefore = now() - backdatedMs;
  const notAfter = Math.min(now() + x509LifetimeMs, issuer.certificate.notAfter.getTime());
  const pem = await issueNodeX509(
    {
      publicKey,
      name: node.name,
      organization: org.slug,
      nodeId: node.id,
      addresses: node.ip6 === null ? [node.ip] : [node.ip, node.ip6],
      notBefore,
      notAfter,
      serial: random(16),
    },
    issuer,
  );
  return {
    kind: "x509",
    authorityId,
    version: 1,
    fingerprint: x509Fingerprint(pem),
    pem,
    notBefore,
    notAfter,
  };
}

/** Stores what was signed as the node's present certificate; the former one of its kind is kept, or blocked at once. */
export async function storeCertificate(
  tx: Transaction,
  node: Pick<NodeRecord, "id" | "orgId">,
  issued: IssuedCertificate,
  now: number,
): Promise<void> {
  await tx.run(
    "UPDATE certificates SET state = 'former' WHERE node_id = $1 AND kind = $2 AND version = $3 AND state = 'current'",
    [node.id, issued.kind, issued.version],
  );
  await tx.run(
    `INSERT INTO certificates
       (org_id, node_id, authority_id, kind, version, fingerprint, pem, not_before, not_after, state, created_at)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 'current', $10)`,
    [
      node.orgId,
      node.id,
      issued.authorityId,
      issued.kind,
      issued.version,
      issued.fingerprint,
      issued.pem,
      issued.notBefore,
      issued.notAfter,
      now,
    ],
  );
}
