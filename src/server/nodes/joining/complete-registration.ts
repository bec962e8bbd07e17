// The second transaction of a registration: stores certificates and API token, and activates the node.

import { hashToken, makeOpaqueToken } from "../../../pki/opaque.ts";
import type { RegisterAnswer } from "../../../protocol/registration.ts";
import { issuedEvents, record } from "../../audit/record.ts";
import {
  issueOverlay,
  mayIssue,
  signX509,
  storeX509,
  withSecondAddress,
  type IssuingOrg,
} from "../../certificates/issue.ts";
import { findDue } from "../lifecycle/renewal.ts";
import type { Budget } from "../../retention/budget.ts";
import { findNode, isConfigured, isHandRun, isOnline } from "../../store/nodes.ts";
import type { NodeStore } from "../node-store.ts";
import { requireCredential, type Credential, type Grant } from "./registration-credential.ts";
import type { Transaction } from "../../store/database.ts";
import { nodes, type NodeRow } from "../../store/tables/nodes.ts";
import { retiredTokens } from "../../store/tables/sessions.ts";
import { publishNames } from "../../names/publish.ts";
import { isPeerOfRule } from "../../policy/rules.ts";
import type { Throttle } from "../../http/throttle.ts";
import { notifyNode, raiseConfigVersion, readConfigVersion } from "../../store/versions.ts";
import type { Renderings } from "../../config/renderings.ts";
import { readTogether, type Views } from "../../config/organization-views.ts";
import { filesFor } from "../../config/node-files.ts";
import type { SentFiles } from "../contact/sent-files.ts";
import { isHub } from "../../../protocol/routing/roles.ts";

export type Services = NodeStore & {
  throttle: Throttle;
  views: Views;
  renderings: Renderings;
  budget: Budget;
  sentFiles: SentFiles;
};

/** `resumed`: the same machine repeats a registration that was interrupted. */
export type Registering = { node: NodeRow; resumed: boolean; grant: Grant };

/**
 * Signs the certificates that the node lacks, stores them with a new API token, and returns the node's first configuration.
 * Throws if the credential has ended meanwhile.
 */
export async function completeRegistration(
  services: Services,
  org: IssuingOrg,
  { node, resumed, grant }: Registering,
  credential: Credential,
): Promise<RegisterAnswer> {
  const { db, system, views, changes } = services;
  const { actor } = credential;
  // A registration that was completed before has certificates: sign only those that are due.
  const due =
    resumed && node.registeredAt !== null
      ? await findDue(db, org, node, system.now())
      : { overlay: true, x509: true };
  // Before the transaction: this is asynchronous, and others would wait for it.
  const x509 = due.x509 ? await signX509(db, org, withSecondAddress(org, node), services) : undefined;
  const apiToken = makeOpaqueToken(system.random);
  await db.writeFor({ org: org.id }, async (tx) => {
    const now = system.now();
    await requireCredential(tx, org.id, credential);
    // Not bounded: the uses of a token, and how often a registration can be resumed, bound these certificates.
    const fingerprint = due.overlay
      ? await issueOverlay(tx, org, await findNode(tx, org.id, node.id), services, { isBounded: false })
      : undefined;
    // Read after the certificate, whose issue changes the row.
    const present = await findNode(tx, org.id, node.id);
    // Throws if the node was revoked while its X.509 certificate was signed.
    mayIssue(present);
    if (x509 !== undefined) await storeX509(tx, present, x509, system);
    await replaceToken(tx, present, hashToken(apiToken), now);
    await activate(tx, present, now);
    await publishNames(tx, org.id, [node.id]);
    const event = { orgId: org.id, at: now, actor, subject: `node/${node.id}` };
    const used = { subject: `registration_token/${grant.tokenId}`, after: { node_id: node.id } };
    await record(tx, [
      ...(grant.tokenId === null ? [] : [{ ...event, type: "token.used" as const, ...used }]),
      { ...event, type: "node.registered", after: { name: node.name, ip_address: node.ip, resumed } },
      ...issuedEvents(event, fingerprint),
    ]);
  });
  const { view, node: active } = await readTogether(db, views, org.id, node.id);
  const files = await filesFor(services, view, active, isOnline(active, system.now(), changes));
  const config = await files.answer();
  await services.sentFiles.note(active, files);
  const isRightUnused = grant.tokenId !== null && grant.mayBeHub && !isHub(active);
  return {
    node: config.node,
    api_token: apiToken,
    config,
    ...(isRightUnused ? { unused_right: "lighthouse" } : {}),
  };
}

/**
 * A new node has no older configuration in force, so it counts as having confirmed the current version. A node that registers again
 * keeps what it has confirmed; one of an imported network (`isHandRun`) is active, but registers for the first time.
 */
async function activate(tx: Transaction, node: NodeRow, now: number): Promise<void> {
  await notifyNode(tx, node.orgId, node.id);
  if (node.state === "active" && !isHandRun(node)) return;
  // Other configurations contain lighthouses, relays, routers and the peers of rules.
  if (isConfigured(node) || (await isPeerOfRule(tx, { id: node.orgId }, node.id)))
    await raiseConfigVersion(tx, node.orgId);
  const confirmedConfigVersion = await readConfigVersion(tx, node.orgId);
  await nodes.update(tx, { id: node.id }, { state: "active", registeredAt: now, confirmedConfigVersion });
}

/** The node's former token stops working. It stays known, so that its use does not count as a guess. */
async function replaceToken(
  tx: Transaction,
  { id, tokenHash }: NodeRow,
  hash: string,
  now: number,
): Promise<void> {
  await nodes.update(tx, { id }, { tokenHash: hash });
  if (tokenHash === null) return;
  const keepFirst = "ON CONFLICT (token_hash) DO NOTHING";
  const retired = await retiredTokens.upsert(tx, { tokenHash, retiredAt: now }, keepFirst);
  if (retired > 0) await tx.notify("auth", `node ${id}`);
}
