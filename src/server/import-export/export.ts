// Exports an organization as plain files, which `nebula-cert` and `nebula` can use without a control plane. The private
// keys of its CAs leave the database here, encrypted with a passphrase unless the operator wants them plain.

import { createPrivateKey } from "node:crypto";
import { encryptCaKey, readCaKey } from "../../pki/ca-key.ts";
import type { Admin } from "../admin.ts";
import { openAuthorities, readAuthorityKey } from "../certificates/authorities.ts";
import { operator, record } from "../audit/record.ts";
import type { NodeStore } from "../nodes/node-store.ts";
import { renewCertificates } from "../nodes/lifecycle/renewal.ts";
import type { PlainFile } from "./plain-files.ts";
import { nodeRecordOf, type NodeRecord } from "../store/nodes.ts";
import { makeRenderings } from "../config/renderings.ts";
import { AppError } from "../../base/errors.ts";
import { authorities } from "../store/tables/certificates.ts";
import { queryAll } from "../store/table.ts";
import { nodes } from "../store/tables/nodes.ts";
import { nodesWithSightings } from "../store/sightings.ts";
import { makeViews, type OrgView } from "../config/organization-views.ts";
import { filesFor } from "../config/node-files.ts";
import type { Org } from "../http/route.ts";

type Exporting = Pick<Admin, "db" | "secretKey" | "clock"> & Pick<NodeStore, "system">;

/**
 * All files; without a passphrase the keys are plain. The audit log records the export. `isPlan`: only to show what would be
 * written, so nothing is signed or recorded.
 */
export async function exportOrganization(
  admin: Exporting,
  org: Org,
  { passphrase, isPlan = false }: { passphrase?: string | undefined; isPlan?: boolean } = {},
): Promise<PlainFile[]> {
  const { db, system } = admin;
  const view = await makeViews(system.now).of(db, org.id);
  const keys = await authorityFiles(admin, org, passphrase);
  if (!isPlan) await signMissing(admin, org);
  const rows = await db.all(
    `SELECT * FROM ${nodesWithSightings} WHERE org_id = $1 AND state = 'active' AND host_public_key IS NOT NULL ORDER BY id`,
    [org.id],
  );
  const filesOfNodes: PlainFile[] = [];
  for (const node of rows.map(nodeRecordOf)) filesOfNodes.push(...(await nodeFiles(admin, view, node)));
  const files = [{ path: "ca.crt", content: view.trust.caPem, mode: 0o644 }, ...keys, ...filesOfNodes];
  if (isPlan) return files;
  await db.writeFor({ org: org.id }, (tx) =>
    record(tx, {
      orgId: org.id,
      at: system.now(),
      type: "ca.exported",
      actor: operator,
      subject: `organization/${org.slug}`,
      after: { nodes: rows.length, keys_encrypted: passphrase !== undefined },
    }),
  );
  return files;
}

/** Nodes that have lost a group and have not checked in since then have no certificate that peers accept for long. */
async function signMissing({ db, secretKey, system, clock }: Exporting, org: Org): Promise<void> {
  const idPick = nodes.pick("id");
  const sql = `SELECT id FROM nodes WHERE org_id = $1 AND state = 'active' AND NOT EXISTS
    (SELECT 1 FROM certificates c WHERE c.node_id = nodes.id AND c.kind = 'overlay' AND c.state = 'current')`;
  const services = { db, system, authorities: openAuthorities({ secretKey, clock }) };
  for (const { id } of await queryAll(db, idPick, sql, [org.id]))
    await renewCertificates(services, org.id, id, { due: { overlay: true, x509: false } });
}

async function authorityFiles(
  { db, secretKey }: Pick<Admin, "db" | "secretKey">,
  org: Org,
  passphrase: string | undefined,
): Promise<PlainFile[]> {
  const overlay = await readAuthorityKey(db, org.id, "overlay", secretKey);
  const x509 = await readAuthorityKey(db, org.id, "x509", secretKey);
  const overlayKey =
    passphrase === undefined ? overlay : await encryptCaKey(await readCaKey(overlay), passphrase);
  const x509Key =
    passphrase === undefined
      ? x509
      : createPrivateKey(x509).export({ type: "pkcs8", format: "pem", cipher: "aes-256-cbc", passphrase });
  const active = await authorities.find(db, { orgId: org.id, kind: "x509", state: "active" });
  if (active === undefined) throw new AppError("internal", `${org.slug} has no active X.509 CA`);
  return [
    { path: "ca.key", content: overlayKey, mode: 0o600 },
    { path: "x509-ca.crt", content: active.certificate, mode: 0o644 },
    { path: "x509-ca.key", content: x509Key, mode: 0o600 },
  ];
}

/** Private keys of nodes never leave their machines. With host.pub the certificate of a node can be renewed. */
async function nodeFiles({ db }: Pick<Admin, "db">, view: OrgView, node: NodeRecord): Promise<PlainFile[]> {
  // `rendered` counts for the metrics of a server, which a command does not have.
  const renderings = makeRenderings({ rendered: () => undefined });
  // Only an answer of the API says whether the node is online; its files do not.
  const isOnline = false;
  const { answer } = await filesFor({ db, renderings }, view, node, isOnline);
  const files = { ...(await answer()).files, "host.pub": node.hostPublicKey ?? "" };
  return Object.entries(files).flatMap(([name, content]) =>
    content === undefined ? [] : [{ path: `nodes/${node.name}/${name}`, content, mode: 0o644 }],
  );
}
