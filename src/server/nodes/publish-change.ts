// What follows from the change of a node's row: new certificates, versions of configurations, and the block of former certificates
// that granted more.

import { issueOverlay, makeX509Due, outdatePhone, type IssuingOrg } from "../certificates/issue.ts";
import { holdName } from "../allocation/held-names.ts";
import { isPeerOfRule } from "../policy/rules.ts";
import type { Transaction } from "../store/database.ts";
import type { NodeRecord } from "../store/nodes.ts";
import { notifyNode, raiseConfigVersion, raiseOwnVersion, readConfigVersion } from "../store/versions.ts";
import { atLeisure, blockFormerLater } from "./lifecycle/upkeep.ts";
import { affectsOthers, certifiedText, grantsBeyond } from "./node-differences.ts";
import type { NodeStore } from "./node-store.ts";

export type Issuing = Pick<NodeStore, "authorities" | "secretKey" | "system">;

/**
 * Publishes a change of an active node, which the caller has stored: issues new certificates if their content changes, raises the
 * version of the nodes that the change affects, and blocks the former certificates in time if they granted more. Returns the
 * fingerprint of the new certificate, if there is one.
 */
export async function publishChange(
  tx: Transaction,
  services: Issuing,
  org: IssuingOrg,
  before: NodeRecord,
  after: NodeRecord,
): Promise<string | undefined> {
  const isRenamed = before.name !== after.name;
  const grantedMore = grantsBeyond(before, after);
  // Removing rights is a revocation, which is never refused.
  const isBounded = grantsBeyond(after, before);
  // A phone gets its next certificate only when its user imports a new site file.
  const certify = () =>
    after.phone === null
      ? issueOverlay(tx, org, after, services, { isBounded })
      : outdatePhone(tx, after.id, { isRefused: grantedMore });
  const [isNamedInRules, , fingerprint] = await Promise.all([
    isRenamed && isPeerOfRule(tx, { id: org.id }, after.id),
    // node.crt holds name and address. It is signed when the node, woken below, fetches its configuration.
    (isRenamed || before.ip !== after.ip) && makeX509Due(tx, after.id),
    certifiedText(before) === certifiedText(after) ? undefined : certify(),
  ]);
  const isForAll = isNamedInRules || affectsOthers(before, after);
  const version = isForAll
    ? await raiseConfigVersion(tx, org.id)
    : await raiseOwnVersion(tx, org.id, after.id);
  if (isForAll) await notifyNode(tx, org.id, after.id);
  // Not for a rename alone: while the former name is held, no rule names it, so its certificate opens nothing. An urgent block would
  // change the configurations of all nodes at once.
  const isUrgent = isNamedInRules || grantsBeyond({ ...before, name: after.name }, after);
  // With `atLeisure` they are blocked at their time, whatever the node confirms.
  const blocked = grantedMore
    ? await blockFormerLater(tx, after.id, isUrgent ? version : atLeisure, services.system.now())
    : 0;
  if (isRenamed) {
    // The former name is held until all nodes have confirmed a version. If former certificates are to be blocked, it is the version
    // that blocks them, which is not known yet (null). Otherwise it is the present one, whose rules do not have the former name.
    await holdName(tx, before, blocked > 0 ? null : await readConfigVersion(tx, org.id));
  }
  return fingerprint ?? undefined;
}

/** Earlier releases rendered names of pending nodes in rules: other nodes may still have this name. */
export async function holdPendingName(tx: Transaction, node: NodeRecord): Promise<void> {
  if (await isPeerOfRule(tx, { id: node.orgId }, node.id))
    await holdName(tx, node, await raiseConfigVersion(tx, node.orgId));
}
