// Advances CA rotations from phase to phase. `trust`: all nodes come to trust the new CA. `issue`: all get certificates of it.
// `retire`: all stop trusting the former CA, lighthouses one after the other. A step follows when every online node has confirmed
// the previous one and tunnels had time to switch. Only the database holds the progress.

import { messageOf } from "../../base/errors.ts";
import { ourselves, record, type Actor } from "../audit/record.ts";
import { outdatePhones } from "../certificates/issue.ts";
import { onlineMs } from "../../api/values.ts";
import type { NodeStore } from "../nodes/node-store.ts";
import { renewCertificates } from "../nodes/lifecycle/renewal.ts";
import type { ServerOptions } from "../options.ts";
import type { Reader, Transaction } from "../store/database.ts";
import { queryAll } from "../store/table.ts";
import { authorities } from "../store/tables/certificates.ts";
import { nodes } from "../store/tables/nodes.ts";
import { organizations } from "../store/tables/organizations.ts";
import { raiseConfigVersion, raiseOwnVersion } from "../store/versions.ts";
import {
  awaitsUpdate,
  fromOldCertificates,
  hasOldCertificate,
  mustWait,
  nextLighthouse,
  type Phase,
  type RunningPhase,
} from "./rotation-waiting.ts";

/** Nodes that get certificates at the same time: peers that reload together also handshake together. */
const issuedTogether = 16;

/**
 * The wait from the last confirmation until the former CA is removed. An engine exchanges the certificates of a tunnel only when it
 * next checks that tunnel, and closes every tunnel whose certificate is of a removed CA.
 */
const tunnelsFollowMs = 60_000;

/**
 * Wait before each lighthouse loses the former CA, in addition to two checks of its tunnels. Nodes look each other up at
 * lighthouses, so its tunnels must not break together with theirs or with those of another lighthouse.
 */
const lighthouseGapMs = 10_000;
/** How often an engine checks a tunnel, unless the organization has set another `alive_interval`. */
const defaultAliveS = 2;

export type RotationStore = Pick<NodeStore, "db" | "system" | "secretKey" | "authorities"> &
  Pick<ServerOptions, "log" | "clock">;

/** Call it at the start of a server. It has seen no node yet, so for a while all active nodes count as online. */
export async function resetSilenceTimer({ db, system }: Pick<RotationStore, "db" | "system">): Promise<void> {
  const rotating = await db.get("SELECT id FROM organizations WHERE rotation_phase <> 'none' LIMIT 1");
  if (rotating === undefined) return;
  await db.write((tx) =>
    tx.run("UPDATE organizations SET rotation_heard_from = $1 WHERE rotation_phase <> 'none'", [
      system.now(),
    ]),
  );
}

const rotationPick = organizations.pick(
  "id",
  "rotationPhase",
  "rotationHeardFrom",
  "rotationSettledAt",
  "rotationNow",
  "aliveInterval",
);
type Rotation = ReturnType<typeof rotationPick.parse>;
const runningRotations = `SELECT ${rotationPick.select()} FROM organizations
  WHERE rotation_phase <> 'none' AND rotation_paused = 0 AND deleted_at IS NULL ORDER BY id`;

/** Advances every running rotation: issues certificates and takes the next step if the previous one is confirmed. */
export async function advanceRotations(store: RotationStore): Promise<void> {
  const { db, log } = store;
  for (const rotation of await queryAll(db, rotationPick, runningRotations)) {
    await advance(store, rotation).catch((error: unknown) => {
      log.warn("A CA rotation cannot continue now; retrying", {
        organization: rotation.id,
        reason: messageOf(error),
      });
    });
  }
}

/** Waits for nodes, then for the settle time, then takes the step. */
async function advance(store: RotationStore, rotation: Rotation): Promise<void> {
  const { db, system } = store;
  const { id: orgId, rotationPhase: phase, rotationSettledAt: settledAt } = rotation;
  if (phase === "none") return;
  await noteSilence(store, orgId, rotation.rotationHeardFrom);
  const isIssuing = phase === "issue" && (await issueSome(store, orgId)) > 0;
  if (isIssuing || (await mustWait(db, orgId, phase, system.now()))) {
    if (settledAt !== null) await db.writeFor({ org: orgId }, (tx) => setSettled(tx, orgId, null));
    return;
  }
  const settleMs = await settleTime(db, rotation, system.now());
  // A future time was stored by a clock that was set back since.
  if (settleMs > 0 && (settledAt === null || settledAt > system.now()))
    return db.writeFor({ org: orgId }, (tx) => setSettled(tx, orgId, system.now()));
  if (settleMs > 0 && system.now() < (settledAt ?? 0) + settleMs) return;
  await db.writeFor({ org: orgId }, async (tx) => {
    // Another replica may have advanced the rotation, an administrator paused it.
    const current = await organizations.find(tx, { id: orgId, rotationPaused: false });
    if (current?.rotationPhase !== phase) return;
    if (settleMs > 0 && current.rotationSettledAt !== settledAt) return;
    if (await mustWait(tx, orgId, phase, system.now())) return;
    await takeStep(tx, orgId, phase, system.now());
  });
}

/** How long all online nodes must have confirmed the current step before the next one, ms. */
async function settleTime(reader: Reader, rotation: Rotation, now: number): Promise<number> {
  const { id, rotationPhase: phase, rotationNow, aliveInterval } = rotation;
  if (rotationNow) return 0;
  if (phase === "issue") return tunnelsFollowMs;
  if (phase !== "retire" || (await nextLighthouse(reader, id, now)) === undefined) return 0;
  // Two checks of the tunnels, in ms.
  return lighthouseGapMs + 2000 * (aliveInterval ?? defaultAliveS);
}

/** When the next step follows, ms since 1970; null while the rotation waits for nodes. */
export async function nextStepAt(reader: Reader, rotation: Rotation, now: number): Promise<number | null> {
  const { rotationSettledAt } = rotation;
  return rotationSettledAt === null ? null : rotationSettledAt + (await settleTime(reader, rotation, now));
}

/** Stores since when the rotation waits for no node; null: it waits, or has just taken a step. */
async function setSettled(tx: Transaction, orgId: number, at: number | null): Promise<void> {
  await organizations.update(tx, { id: orgId }, { rotationSettledAt: at });
}

/**
 * Notes the time if the server sees no node of the organization. It may be disconnected itself, so all active nodes then count as
 * online for a while, and the rotation waits for them.
 */
async function noteSilence(
  { db, system }: Pick<RotationStore, "db" | "system">,
  orgId: number,
  heardFrom: number | null,
): Promise<void> {
  const now = system.now();
  if (heardFrom !== null && heardFrom > now - onlineMs / 2) return;
  const anyNode = await db.get(
    `SELECT n.id FROM nodes n JOIN sightings s ON s.node_id = n.id
     WHERE n.org_id = $1 AND n.state = 'active' AND s.last_checkin_at > $2 LIMIT 1`,
    [orgId, now - onlineMs],
  );
  if (anyNode !== undefined) return;
  await db.writeFor({ org: orgId }, (tx) =>
    organizations.update(tx, { id: orgId }, { rotationHeardFrom: now }),
  );
}

/** Issues certificates of the new CA to some online nodes that have none, and wakes these nodes. Returns their number. */
async function issueSome(store: RotationStore, orgId: number): Promise<number> {
  const { db, system, log } = store;
  const sql = `SELECT DISTINCT n.id ${fromOldCertificates} AND NOT ${awaitsUpdate} LIMIT ${issuedTogether}`;
  const chosen = await queryAll(db, nodes.pick("id"), sql, [orgId, system.now() - onlineMs]);
  await Promise.all(
    chosen.map(async ({ id }) => {
      // Checked again in the transaction: the node may have renewed by itself.
      const hasOld = async (tx: Transaction) =>
        (await tx.get(`SELECT n.id FROM nodes n WHERE n.id = $1 AND ${hasOldCertificate}`, [id])) !==
        undefined;
      await renewCertificates(store, orgId, id, { isStillDue: hasOld }).catch((error: unknown) => {
        log.warn("A certificate of the new CA cannot be issued now; retrying", {
          node: id,
          reason: messageOf(error),
        });
      });
    }),
  );
  return chosen.length;
}

const nextPhase: Record<RunningPhase, Phase> = { trust: "issue", issue: "retire", retire: "none" };

async function takeStep(tx: Transaction, orgId: number, phase: RunningPhase, now: number): Promise<void> {
  await setSettled(tx, orgId, null);
  if (phase === "trust") await changeIssuer(tx, orgId);
  if (phase === "issue") await retire(tx, orgId, now, { lighthousesLater: true });
  if (phase === "retire") {
    // The phase is over only when no online lighthouse is left.
    const lighthouse = await nextLighthouse(tx, orgId, now);
    if (lighthouse !== undefined) return dropFormer(tx, orgId, lighthouse);
    await endRetirement(tx, orgId);
  }
  const next = nextPhase[phase];
  await organizations.update(tx, { id: orgId }, { rotationPhase: next });
  await recordRotation(tx, orgId, now, { action: next === "none" ? "finish" : "advance", phase: next });
}

/** Removes the former CAs from the trust of one node. */
async function dropFormer(tx: Transaction, orgId: number, nodeId: number): Promise<void> {
  await nodes.update(tx, { id: nodeId }, { keepsFormer: false });
  await raiseOwnVersion(tx, orgId, nodeId);
}

/** Records an event of the rotation: one type for all, with `action` and `phase`. */
export async function recordRotation(
  tx: Transaction,
  orgId: number,
  at: number,
  after: { action: string; phase: Phase } & Record<string, string>,
  actor: Actor = ourselves,
): Promise<void> {
  await record(tx, { orgId, at, type: "ca.rotated", actor, subject: `organization/${orgId}`, after });
}

/** Lets the new CA sign. The old one stays trusted. */
async function changeIssuer(tx: Transaction, orgId: number): Promise<void> {
  await authorities.update(tx, { orgId, state: "active" }, { state: "former" });
  await authorities.update(tx, { orgId, state: "next" }, { state: "active" });
  await outdatePhones(tx, orgId);
}

/**
 * Removes the former CAs from the bundle of all nodes; with `lighthousesLater`, lighthouses keep them until `dropFormer`. Nodes that
 * were offline still have certificates of these CAs: these become due, so that the node gets new ones together with the new bundle.
 */
export async function retire(
  tx: Transaction,
  orgId: number,
  now: number,
  { lighthousesLater }: { lighthousesLater: boolean },
): Promise<void> {
  if (lighthousesLater) {
    await nodes.update(tx, { orgId, isLighthouse: true, state: "active" }, { keepsFormer: true });
  }
  await authorities.update(
    tx,
    { orgId, state: "former", retiredAt: null, offline: false },
    { retiredAt: now },
  );
  // Not the offline CAs, whose keys signers hold: a rotation leaves them as they are.
  const old = "SELECT id FROM authorities WHERE org_id = $1 AND state = 'former' AND offline = 0";
  await tx.run(
    `UPDATE certificates SET renew_at = 0 WHERE org_id = $1 AND state = 'current' AND authority_id IN (${old})`,
    [orgId],
  );
  await tx.run(
    `UPDATE nodes SET renew_at = 0 WHERE org_id = $1 AND id IN
       (SELECT node_id FROM certificates WHERE org_id = $1 AND state = 'current' AND renew_at = 0)`,
    [orgId],
  );
  await tx.notify("auth", `organization ${orgId}`);
  await raiseRotationVersion(tx, orgId);
}

/** Raises the version of all nodes: they have to confirm it before the next step. */
export async function raiseRotationVersion(tx: Transaction, orgId: number): Promise<void> {
  const rotationVersion = await raiseConfigVersion(tx, orgId);
  await organizations.update(tx, { id: orgId }, { rotationVersion });
}

/** Deletes the keys of the former CAs, because offline nodes still trust them. From then on, no rollback is possible. */
async function endRetirement(tx: Transaction, orgId: number): Promise<void> {
  // Of the lighthouses only those that are offline are left.
  for (const { id } of await nodes.all(tx, { orgId, keepsFormer: true })) await dropFormer(tx, orgId, id);
  await tx.run(
    "UPDATE authorities SET private_key_sealed = '' WHERE org_id = $1 AND state = 'former' AND retired_at IS NOT NULL",
    [orgId],
  );
}
