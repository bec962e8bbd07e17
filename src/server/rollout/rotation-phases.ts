// Takes a CA rotation from phase to phase: all nodes trust the new CA, all have certificates of it, none trusts the
// former one. A step follows when every online node has confirmed the one before and tunnels had time to follow. The
// database alone holds the progress.

import { messageOf } from "../../errors.ts";
import { record, ourselves, type Actor } from "../audit/record.ts";
import { onlineMs } from "../store/nodes.ts";
import type { NodeStore } from "../nodes/node-store.ts";
import { renewCertificates } from "../nodes/renewal.ts";
import type { ServerOptions } from "../options.ts";
import {
  numberOf,
  numberOrNull,
  textOf,
  truthOf,
  type Reader,
  type Row,
  type Transaction,
} from "../store/database.ts";
import { raiseConfigVersion, raiseOwnVersion } from "../store/versions.ts";

export type Phase = "none" | "trust" | "issue" | "retire";

/** Nodes that are signed for at once: peers that reload at the same time handshake at the same time. */
const issuedTogether = 16;

/**
 * From the last confirmation until the former CA leaves. An engine exchanges the certificates inside a tunnel only when
 * it next examines that tunnel, and tears down every tunnel that still rests on a CA that has left.
 */
const tunnelsFollowMs = 60_000;

/**
 * Before each lighthouse loses the former CA, on top of two examinations of its tunnels. Nodes look each other up
 * there, so its tunnels must not break together with theirs, nor those of two lighthouses together.
 */
const lighthouseGapMs = 10_000;
const defaultAliveS = 2;

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
const isBehind = "n.confirmed_config_version < o.rotation_version";
/** By the index of the few nodes that others depend on: a look at all of them each second costs too much. */
const isLighthouse = `n.is_lighthouse = 1 AND n.id IN (SELECT id FROM nodes
  WHERE org_id = $1 AND (is_lighthouse = 1 OR is_relay = 1 OR subnets <> '[]'))`;
/** A lighthouse loses the former CA later than the others, by a version of its own. */
const isUnconfirmedLighthouse = `${isLighthouse} AND ${isUnconfirmed}`;
const isMissing: Record<Exclude<Phase, "none">, string> = {
  trust: isBehind,
  issue: `(${isUnconfirmed} OR ${hasOldCertificate})`,
  retire: `(${isBehind} OR (${isUnconfirmedLighthouse}))`,
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
  if (phase === "issue")
    return (await isThere(fromOldCertificates)) || isThere(`${fromNodes} AND ${isUnconfirmed}`);
  if (await isThere(`${fromNodes} AND ${isBehind}`)) return true;
  return phase === "retire" && isThere(`${fromNodes} AND ${isUnconfirmedLighthouse}`);
}

export function phaseOf(row: Row): Phase {
  const phase = textOf(row, "rotation_phase");
  return phase === "trust" || phase === "issue" || phase === "retire" ? phase : "none";
}

export type RotationStore = Pick<NodeStore, "db" | "system" | "secretKey" | "authorities"> &
  Pick<ServerOptions, "log">;

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
    `SELECT id, rotation_phase, rotation_heard_from, rotation_settled_at, rotation_now, alive_interval
     FROM organizations
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
  const isSigning = phase === "issue" && (await issueSome(store, orgId)) > 0;
  const settledAt = numberOrNull(row, "rotation_settled_at");
  if (isSigning || (await mustWait(db, orgId, phase, system.now()))) {
    if (settledAt !== null) await db.write((tx) => noteSettled(tx, orgId, null));
    return;
  }
  const settleMs = await settleTime(db, row, phase, system.now());
  // A time to come was noted by a clock that was set back since.
  if (settleMs > 0 && (settledAt === null || settledAt > system.now()))
    return db.write((tx) => noteSettled(tx, orgId, system.now()));
  if (settleMs > 0 && system.now() < (settledAt ?? 0) + settleMs) return;
  await db.write(async (tx) => {
    // Another replica may have gone on, a person may have paused it.
    const present = await tx.get(
      "SELECT rotation_phase, rotation_settled_at FROM organizations WHERE id = $1 AND rotation_paused = 0",
      [orgId],
    );
    if (present === undefined || phaseOf(present) !== phase) return;
    if (settleMs > 0 && numberOrNull(present, "rotation_settled_at") !== settledAt) return;
    if (await mustWait(tx, orgId, phase, system.now())) return;
    await takeStep(tx, orgId, phase, system.now());
  });
}

/** How long all online nodes must have confirmed the present step before the next one, in ms. */
async function settleTime(reader: Pick<Reader, "get">, row: Row, phase: Phase, now: number): Promise<number> {
  if (truthOf(row, "rotation_now")) return 0;
  if (phase === "issue") return tunnelsFollowMs;
  if (phase !== "retire" || (await nextLighthouse(reader, numberOf(row, "id"), now)) === undefined) return 0;
  return lighthouseGapMs + 2000 * (numberOrNull(row, "alive_interval") ?? defaultAliveS);
}

/** When the next step follows, if no node is waited for; ms since 1970. */
export async function nextStepAt(reader: Pick<Reader, "get">, row: Row, now: number): Promise<number | null> {
  const settledAt = numberOrNull(row, "rotation_settled_at");
  return settledAt === null ? null : settledAt + (await settleTime(reader, row, phaseOf(row), now));
}

/** Since when no node is waited for; null: some are, or the next step has just been taken. */
async function noteSettled(tx: Transaction, orgId: number, at: number | null): Promise<void> {
  await tx.run("UPDATE organizations SET rotation_settled_at = $2 WHERE id = $1", [orgId, at]);
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

async function takeStep(
  tx: Transaction,
  orgId: number,
  phase: Exclude<Phase, "none">,
  now: number,
): Promise<void> {
  await noteSettled(tx, orgId, null);
  if (phase === "trust") await changeIssuer(tx, orgId);
  if (phase === "issue") await retire(tx, orgId, now, { lighthousesLater: true });
  if (phase === "retire") {
    const lighthouse = await nextLighthouse(tx, orgId, now);
    if (lighthouse !== undefined) return takeFormer(tx, orgId, lighthouse);
    await endRetirement(tx, orgId);
  }
  const next = nextPhase[phase];
  await tx.run("UPDATE organizations SET rotation_phase = $2 WHERE id = $1", [orgId, next]);
  await noteRotation(tx, orgId, now, { action: next === "none" ? "finish" : "advance", phase: next });
}

/** An online node that still trusts the former CAs, one after the other. */
async function nextLighthouse(
  reader: Pick<Reader, "get">,
  orgId: number,
  now: number,
): Promise<number | undefined> {
  const row = await reader.get(
    `SELECT n.id ${fromNodes} AND ${isLighthouse} AND n.keeps_former = 1 ORDER BY n.id LIMIT 1`,
    [orgId, now - onlineMs],
  );
  return row === undefined ? undefined : numberOf(row, "id");
}

/** The former CAs leave one node's trust. */
async function takeFormer(tx: Transaction, orgId: number, nodeId: number): Promise<void> {
  await tx.run("UPDATE nodes SET keeps_former = 0 WHERE id = $1", [nodeId]);
  await raiseOwnVersion(tx, orgId, nodeId);
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
 * The former CAs leave the trust of all nodes; with `lighthousesLater`, lighthouses keep them until `takeFormer`. Nodes
 * that were offline still have certificates of these CAs: those become due, so that such a node gets new ones together
 * with the new bundle.
 */
export async function retire(
  tx: Transaction,
  orgId: number,
  now: number,
  { lighthousesLater }: { lighthousesLater: boolean },
): Promise<void> {
  if (lighthousesLater) {
    await tx.run(
      "UPDATE nodes SET keeps_former = 1 WHERE org_id = $1 AND is_lighthouse = 1 AND state = 'active'",
      [orgId],
    );
  }
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

/** No way back from here: an offline node would still believe what the former keys sign. Lighthouses that are offline lose them too. */
async function endRetirement(tx: Transaction, orgId: number): Promise<void> {
  const left = await tx.all("SELECT id FROM nodes WHERE org_id = $1 AND keeps_former = 1", [orgId]);
  for (const row of left) await takeFormer(tx, orgId, numberOf(row, "id"));
  await tx.run(
    "UPDATE authorities SET private_key_sealed = '' WHERE org_id = $1 AND state = 'former' AND retired_at IS NOT NULL",
    [orgId],
  );
}
