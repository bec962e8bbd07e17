// Takes a CA rotation from phase to phase (decisions 5): all trust the new CA, all have certificates of it, nobody
// trusts the old one. A phase ends when every online node has confirmed it; where it stands is in the database alone.

import { messageOf } from "../../errors.ts";
import { record, ourselves, type Actor } from "../audit/record.ts";
import { onlineMs } from "../store/nodes.ts";
import type { NodeStore } from "../nodes/services.ts";
import { renewCertificates } from "../nodes/renewal.ts";
import type { Services } from "../services.ts";
import {
  numberOf,
  numberOrNull,
  textOf,
  type Reader,
  type Row,
  type Transaction,
} from "../store/database.ts";
import { raiseConfigVersion } from "../store/versions.ts";

export type Phase = "none" | "trust" | "issue" | "retire";

/** Nodes that are signed for at once: peers that reload at the same time handshake at the same time. */
const issuedTogether = 16;

/**
 * Online as far as anybody can know: seen lately. After a start of the server, or a time in which it heard of no node
 * at all, every active node counts for a while, since it had no way to be seen. One of an imported network always
 * counts: it runs without us, and would be cut off.
 */
const isOnline = "(s.last_checkin_at > $2 OR o.rotation_heard_from > $2 OR n.registered_at IS NULL)";
const hasOldCertificate = `EXISTS (SELECT 1 FROM certificates c JOIN authorities a ON a.id = c.authority_id
  WHERE c.node_id = n.id AND c.state = 'current' AND a.state <> 'active')`;
/** Its certificate restarts its engine, so it gets one in its turn (move-turns.ts), which the new CA signs as well. */
const awaitsTurn = `(o.move_open = 1 AND (n.ip6 IS NULL OR NOT EXISTS (SELECT 1 FROM certificates m
  WHERE m.node_id = n.id AND m.kind = 'overlay' AND m.state = 'current' AND m.version = 2)))`;
const fromNodes = `FROM organizations o JOIN nodes n ON n.org_id = o.id AND n.state = 'active'
  LEFT JOIN sightings s ON s.node_id = n.id WHERE o.id = $1 AND ${isOnline}`;

/** The same nodes by way of what the old CAs have signed, which gets less and less. A node may be met twice. */
const fromOldCertificates = `FROM authorities a JOIN certificates c ON c.authority_id = a.id AND c.state = 'current'
  JOIN nodes n ON n.id = c.node_id AND n.state = 'active' JOIN organizations o ON o.id = n.org_id
  LEFT JOIN sightings s ON s.node_id = n.id
  WHERE a.org_id = $1 AND a.state <> 'active' AND ${isOnline}`;

/** What of a node is still to come in each phase. */
const isUnconfirmed = "n.confirmed_config_version < n.own_version";
const isMissing: Record<Exclude<Phase, "none">, string> = {
  trust: "n.confirmed_config_version < o.rotation_version",
  issue: `(${isUnconfirmed} OR ${hasOldCertificate})`,
  retire: "n.confirmed_config_version < o.rotation_version",
};

/** The nodes that the phase waits for, by id. */
export async function waitingFor(
  reader: Pick<Reader, "all">,
  orgId: number,
  phase: Phase,
  now: number,
): Promise<{ id: number; name: string }[]> {
  if (phase === "none") return [];
  const rows = await reader.all(`SELECT n.id, n.name ${fromNodes} AND ${isMissing[phase]} ORDER BY n.id`, [
    orgId,
    now - onlineMs,
  ]);
  return rows.map((row) => ({ id: numberOf(row, "id"), name: textOf(row, "name") }));
}

/** As `waitingFor`, but cheap: it is asked every second, of large organizations too. */
async function mustWait(
  reader: Pick<Reader, "get">,
  orgId: number,
  phase: Exclude<Phase, "none">,
  now: number,
): Promise<boolean> {
  const isThere = async (from: string) =>
    (await reader.get(`SELECT n.id ${from} LIMIT 1`, [orgId, now - onlineMs])) !== undefined;
  if (phase !== "issue") return isThere(`${fromNodes} AND ${isMissing[phase]}`);
  return (await isThere(fromOldCertificates)) || isThere(`${fromNodes} AND ${isUnconfirmed}`);
}

export function phaseOf(row: Row): Phase {
  const phase = textOf(row, "rotation_phase");
  return phase === "trust" || phase === "issue" || phase === "retire" ? phase : "none";
}

export type RotationStore = Pick<NodeStore, "db" | "system" | "secretKey" | "authorities"> &
  Pick<Services, "log">;

/** A server that has just started has heard of nobody yet. */
export async function hearAnew({ db, system }: Pick<RotationStore, "db" | "system">): Promise<void> {
  const rotating = await db.get("SELECT id FROM organizations WHERE rotation_phase <> 'none' LIMIT 1");
  if (rotating === undefined) return;
  await db.write((tx) =>
    tx.run("UPDATE organizations SET rotation_heard_from = $1 WHERE rotation_phase <> 'none'", [
      system.now(),
    ]),
  );
}

/** One look at every organization that is in a rotation: signs what is to be signed, and goes on where all is confirmed. */
export async function advanceRotations(store: RotationStore): Promise<void> {
  const { db, log } = store;
  const rows = await db.all(
    `SELECT id, rotation_phase, rotation_heard_from FROM organizations
     WHERE rotation_phase <> 'none' AND rotation_paused = 0 AND deleted_at IS NULL ORDER BY id`,
  );
  for (const row of rows) {
    await advance(store, row).catch((error: unknown) => {
      log.warn("A CA rotation does not go on now; it is tried again", {
        organization: numberOf(row, "id"),
        reason: messageOf(error),
      });
    });
  }
}

async function advance(store: RotationStore, row: Row): Promise<void> {
  const { db, system } = store;
  const [orgId, phase] = [numberOf(row, "id"), phaseOf(row)];
  if (phase === "none") return;
  await noteSilence(store, orgId, numberOrNull(row, "rotation_heard_from"));
  if (phase === "issue" && (await issueSome(store, orgId)) > 0) return;
  if (await mustWait(db, orgId, phase, system.now())) return;
  await db.write(async (tx) => {
    // Another replica may have gone on, a person may have paused it.
    const present = await tx.get(
      "SELECT rotation_phase FROM organizations WHERE id = $1 AND rotation_paused = 0",
      [orgId],
    );
    if (present === undefined || phaseOf(present) !== phase) return;
    if (await mustWait(tx, orgId, phase, system.now())) return;
    await finish(tx, orgId, phase, system.now());
  });
}

/** A server that all nodes are cut off from must not take them for offline and go on without them. */
async function noteSilence(
  { db, system }: Pick<RotationStore, "db" | "system">,
  orgId: number,
  heardFrom: number | null,
): Promise<void> {
  const now = system.now();
  if (heardFrom !== null && heardFrom > now - onlineMs / 2) return;
  const somebody = await db.get(
    `SELECT n.id FROM nodes n JOIN sightings s ON s.node_id = n.id
     WHERE n.org_id = $1 AND n.state = 'active' AND s.last_checkin_at > $2 LIMIT 1`,
    [orgId, now - onlineMs],
  );
  if (somebody !== undefined) return;
  await db.write((tx) =>
    tx.run("UPDATE organizations SET rotation_heard_from = $2 WHERE id = $1", [orgId, now]),
  );
}

/**
 * Certificates of the new CA for some of the online nodes that have none; each hears of its own at once. How many nodes
 * it met.
 */
async function issueSome(store: RotationStore, orgId: number): Promise<number> {
  const { db, system, log } = store;
  const rows = await db.all(
    `SELECT DISTINCT n.id ${fromOldCertificates} AND NOT ${awaitsTurn} LIMIT ${issuedTogether}`,
    [orgId, system.now() - onlineMs],
  );
  await Promise.all(
    rows.map(async (row) => {
      const id = numberOf(row, "id");
      await renewCertificates(store, orgId, id).catch((error: unknown) => {
        log.warn("A node gets no certificate of the new CA now", { node: id, reason: messageOf(error) });
      });
    }),
  );
  return rows.length;
}

const nextPhase: Record<Exclude<Phase, "none">, Phase> = { trust: "issue", issue: "retire", retire: "none" };

async function finish(
  tx: Transaction,
  orgId: number,
  phase: Exclude<Phase, "none">,
  now: number,
): Promise<void> {
  if (phase === "trust") await changeIssuer(tx, orgId);
  if (phase === "issue") await retire(tx, orgId, now);
  if (phase === "retire") await forgetKeys(tx, orgId);
  const next = nextPhase[phase];
  await tx.run("UPDATE organizations SET rotation_phase = $2 WHERE id = $1", [orgId, next]);
  await noteRotation(tx, orgId, now, { action: next === "none" ? "finish" : "advance", phase: next });
}

/** One kind of event for all that happens to a rotation; `action` and `phase` say what. */
export async function noteRotation(
  tx: Transaction,
  orgId: number,
  at: number,
  after: { action: string; phase: Phase } & Record<string, string>,
  actor: Actor = ourselves,
): Promise<void> {
  await record(tx, { orgId, at, type: "ca.rotated", actor, subject: `organization/${orgId}`, after });
}

/** From here on the new CA signs. The old one stays trusted. */
async function changeIssuer(tx: Transaction, orgId: number): Promise<void> {
  await tx.run("UPDATE authorities SET state = 'former' WHERE org_id = $1 AND state = 'active'", [orgId]);
  await tx.run("UPDATE authorities SET state = 'active' WHERE org_id = $1 AND state = 'next'", [orgId]);
}

/**
 * The former CAs leave every node's trust. Who was offline has certificates of theirs: they are due, so that the node
 * gets new ones together with the new bundle when it comes.
 */
export async function retire(tx: Transaction, orgId: number, now: number): Promise<void> {
  await tx.run(
    "UPDATE authorities SET retired_at = $2 WHERE org_id = $1 AND state = 'former' AND retired_at IS NULL",
    [orgId, now],
  );
  const old = "SELECT id FROM authorities WHERE org_id = $1 AND state = 'former'";
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
  await toVersion(tx, orgId, await raiseConfigVersion(tx, orgId));
}

/** The version that the nodes have to confirm. */
export async function toVersion(tx: Transaction, orgId: number, version: number): Promise<void> {
  await tx.run("UPDATE organizations SET rotation_version = $2 WHERE id = $1", [orgId, version]);
}

/** Nothing can go back any more: what the old keys could still sign, somebody who was offline would believe. */
async function forgetKeys(tx: Transaction, orgId: number): Promise<void> {
  await tx.run(
    "UPDATE authorities SET private_key_sealed = '' WHERE org_id = $1 AND state = 'former' AND retired_at IS NOT NULL",
    [orgId],
  );
}
