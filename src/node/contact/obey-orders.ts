// Carries out the orders in the control plane's answers and refusals: revocations and restores of this node. files/orders.ts
// verifies them and does the work; this decides when.

import { AppError, hasCode } from "../../base/errors.ts";
import type { Log } from "../../base/log.ts";
import type { System } from "../../base/system.ts";
import type { OverlayControl } from "../engine/control-engine.ts";
import type { Organization } from "../files/organizations.ts";
import { readRestoredNote, readRevokedNote } from "../files/revoked-notes.ts";

type OrderDeps = { control: OverlayControl; log: Log; system: Pick<System, "now"> };

/**
 * Carries the order of an answer out or, if it has none, goes on with an interrupted restore. `notStarted`: the order was
 * accepted, but the engine did not start. `synchronizeOnce` runs before a restored engine starts: the peers have blocked its
 * former certificate, so it needs the new one.
 */
export async function obeyOrder(
  jws: string | undefined,
  organization: Organization,
  deps: OrderDeps,
  synchronizeOnce: () => Promise<unknown>,
) {
  const start = async () => {
    await synchronizeOnce();
    await deps.control.start();
  };
  const restoring = { ...deps, control: { ...deps.control, start } };
  try {
    const order =
      jws === undefined
        ? await finishRestore(organization, restoring)
        : await acceptAndCarryOut(jws, organization, restoring);
    return { order };
  } catch (error) {
    if (!hasCode(error, "engine_failed")) throw error;
    return { notStarted: error };
  }
}

type Revoked = { result: "revoked"; action: "none" | "stopped" | "started"; reason: string };

/**
 * A refusal alone changes nothing: only a signed order in it stops the overlay. Exception: a control plane that never
 * sent an order key can only answer 401 or 403, so these count as revocation.
 */
export async function handleRefusal(
  error: unknown,
  organization: Organization,
  deps: OrderDeps,
): Promise<Revoked> {
  if (!(error instanceof AppError)) throw error;
  const { carryOut, orderKeysOf } = await import("../files/orders.ts");
  const { order } = error.details;
  if (order !== undefined) {
    const { action, isRevocation, reason } = await acceptAndCarryOut(order, organization, deps);
    if (isRevocation) return { result: "revoked", action, reason };
  } else if (orderKeysOf(organization).length === 0 && unsignedRefusals.includes(error.code)) {
    const order = { action: "revoke", reason: error.message, node_id: organization.config.node_id } as const;
    const { action, unsaved } = await carryOut(order, organization, deps.control, carryOutDeps(deps));
    return { result: "revoked", action, reason: reasonWith(unsaved, error.message) };
  }
  throw error;
}

/** Codes by which a control plane without an order key says that this node is revoked or deleted. */
const unsignedRefusals: readonly string[] = [
  "not_authenticated",
  "token_not_valid",
  "permission_denied",
  "node_token_scope",
  "node_revoked",
];

/** Throws if the order is not valid. `restored`: it ended a revocation. */
export async function acceptAndCarryOut(jws: string, organization: Organization, deps: OrderDeps) {
  const { directory } = organization;
  const { acceptOrder, carryOut } = await import("../files/orders.ts");
  const accepted = await acceptOrder(jws, organization);
  const { order } = accepted;
  const wasStopped = (readRevokedNote(directory) ?? readRestoredNote(directory)) !== undefined;
  const { action, unsaved } = await carryOut(order, organization, deps.control, carryOutDeps(deps));
  const isRevocation = order.action === "revoke";
  const reason = reasonWith(unsaved ?? accepted.unsaved, order.reason);
  return { action, isRevocation, reason, restored: wasStopped && !isRevocation };
}

/** `unsaved`: why the order could not be stored. It was carried out, but after a restart this machine may not know of it. */
function reasonWith(unsaved: AppError | undefined, reason: string): string {
  if (unsaved === undefined) return reason;
  return `${reason}. The order could not be stored: ${unsaved.message}. Free some space; the next check tries again`;
}

/** Continues an interrupted restore: the control plane stops repeating the order once the configuration arrived. */
async function finishRestore(organization: Organization, deps: OrderDeps) {
  if (readRestoredNote(organization.directory) === undefined) return undefined;
  const { carryOut } = await import("../files/orders.ts");
  const order = { action: "restore", reason: "", node_id: organization.config.node_id } as const;
  const { action } = await carryOut(order, organization, deps.control, carryOutDeps(deps));
  return { action, isRevocation: false, reason: "", restored: true };
}

function carryOutDeps({ system, log }: OrderDeps): { now(): number; log: Log } {
  return { now: () => system.now(), log };
}
