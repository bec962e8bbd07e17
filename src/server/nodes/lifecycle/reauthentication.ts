// If an organization requires it, users confirm every N days in a browser that their nodes are still theirs. They are
// notified 7 days before. A node whose user does not confirm it is revoked, never less than 7 days after the
// notification. A confirmation changes no certificate and no configuration, so no packet is lost.

import type { NodeDue } from "../../../api/enrollments.ts";
import { brand } from "../../../brand.ts";
import { formatTime } from "../../../base/quantities.ts";
import { messageOf } from "../../../base/errors.ts";
import { ourselves, record, type Actor } from "../../audit/record.ts";
import { forAll, inTurn, orgOf } from "../../for-all.ts";
import type { ServerOptions, Store } from "../../options.ts";
import { sendMail } from "../../users/mail.ts";
import { findNode, revokedNode } from "../../store/nodes.ts";
import { notifyNode, notifyNodes } from "../../store/versions.ts";
import { confirmationPage, findAllDue, findDueIn, findStillDue, type Due } from "./confirmations-due.ts";
import { requireOwner } from "../node-owner.ts";
import { readGaps } from "../contact/silence.ts";
import { beginPeriod, noteTold } from "./owner-period.ts";
import { revokeInside } from "./revoke.ts";
import { runDueUpkeep } from "./upkeep.ts";

type Mailing = Store & Pick<ServerOptions, "mail" | "log" | "publicUrl">;

/** Nodes in one transaction: few enough that check-ins do not wait for it. */
const batchSize = 20;

/** The nodes of an organization whose time ends, those of one user first to last. */
export async function listDue(
  { db, system }: Store,
  org: { id: number },
  ownerId: number | undefined,
): Promise<NodeDue[]> {
  const found = await findDueIn(db, { orgId: org.id, ownerId }, system.now());
  return found.map(({ id, name, ownerId, until }) => ({
    node_id: id,
    name,
    owner_id: ownerId,
    until: formatTime(until),
  }));
}

/** The user confirms the node. Throws not_found, permission_denied. */
export async function proveOwner(
  { db, system }: Store,
  org: { id: number },
  id: number,
  userId: number,
  actor: Actor,
): Promise<void> {
  await db.writeFor({ org: org.id }, async (tx) => {
    const node = await findNode(tx, org.id, id);
    await requireOwner(tx, node, userId);
    if (node.state === "revoked") throw revokedNode(node);
    const now = system.now();
    await beginPeriod(tx, id, now, "proven");
    await notifyNode(tx, org.id, id);
    const event = { orgId: org.id, at: now, actor, subject: `node/${id}` };
    await record(tx, { ...event, type: "node.reauthenticated", after: { name: node.name } });
  });
}

/** Notifies users whose time ends, and revokes nodes whose time has ended. */
export async function reauthenticate(services: Mailing): Promise<void> {
  const { db, system } = services;
  const now = system.now();
  await forgetNotices(services, now);
  const found = await findAllDue(db, now);
  const untold = found.filter(({ toldAt }) => toldAt === null);
  const over = found.filter(({ toldAt, until }) => toldAt !== null && until <= now);
  await inTurn(
    () => forAll(batches(over), orgOfBatch, (batch) => revokeBatch(services, batch)),
    () => forAll(batches(untold), orgOfBatch, (batch) => notifyBatch(services, batch)),
  );
}

/** If no server was up for so long, users could not confirm: they are notified again, and have 7 days again. */
const longPauseMs = 86_400_000;
const anyNoticeBefore = "SELECT node_id FROM owner_proofs WHERE told_at < $1 LIMIT 1";

async function forgetNotices({ db }: Store, now: number): Promise<void> {
  const gaps = await readGaps(db, now);
  const [, upAgainAt] = gaps.findLast(([from, to]) => to - from >= longPauseMs) ?? [];
  if (upAgainAt === undefined || (await db.get(anyNoticeBefore, [upAgainAt])) === undefined) return;
  await db.writeFor("rows", (tx) =>
    tx.run("UPDATE owner_proofs SET told_at = NULL WHERE told_at < $1", [upAgainAt]),
  );
}

const orgOfBatch = ([first]: readonly Due[]) => first?.orgId;

/** Lists of at most `batchSize` nodes, each of one organization. */
function batches(found: readonly Due[]): Due[][] {
  return [...Map.groupBy(found, orgOf).values()].flatMap((all) =>
    Array.from({ length: Math.ceil(all.length / batchSize) }, (_, at) =>
      all.slice(at * batchSize, (at + 1) * batchSize),
    ),
  );
}

async function revokeBatch({ db, system }: Store, found: readonly Due[]): Promise<void> {
  const orgId = orgOfBatch(found);
  if (orgId === undefined) return;
  await db.writeFor({ org: orgId }, async (tx) => {
    const now = system.now();
    const stillDue = await findStillDue(tx, found, now);
    const ids = stillDue.filter(({ toldAt, until }) => toldAt !== null && until <= now).map(({ id }) => id);
    const reason = "its user did not confirm it in time";
    await revokeInside(tx, orgId, ids, { actor: ourselves, reason, now });
  });
  // Pending work may have waited for the confirmations of these nodes only.
  await runDueUpkeep({ db, system }, orgId);
}

async function notifyBatch(services: Mailing, found: readonly Due[]): Promise<void> {
  const { db, system } = services;
  const orgId = orgOfBatch(found);
  if (orgId === undefined) return;
  const told = await db.writeFor({ org: orgId }, async (tx) => {
    const now = system.now();
    const untold = (await findStillDue(tx, found, now)).filter(({ toldAt }) => toldAt === null);
    if (untold.length === 0) return untold;
    const ids = untold.map(({ id }) => id);
    await noteTold(tx, ids, now);
    const events = untold.map(({ id, name, ownerId, until }) => ({
      orgId,
      at: now,
      actor: ourselves,
      subject: `node/${id}`,
      type: "node.reauthentication_due" as const,
      after: { name, owner_id: ownerId, until: formatTime(until) },
    }));
    await record(tx, events);
    // Wakes the nodes: their machines show the deadline.
    await notifyNodes(tx, orgId, ids);
    return untold;
  });
  for (const ofOwner of Map.groupBy(told, ({ ownerId }) => ownerId).values()) await mailTo(services, ofOwner);
}

/** One e-mail for all nodes of a user whose time ends. Without an SMTP server, the console and events show it. */
async function mailTo({ mail, log, publicUrl }: Mailing, ofOwner: readonly Due[]): Promise<void> {
  const [first] = ofOwner;
  if (mail === undefined || first === undefined) return;
  const lines = ofOwner.map(({ name, until }) => `${name}: until ${formatTime(until)}`).join("\n");
  const address = confirmationPage(publicUrl, first.slug);
  const sentence = `${first.slug} asks you to confirm that these machines are still yours. Each is cut off from the network at its time:`;
  const body = `${sentence}\n\n${lines}\n\nSign in and confirm them:\n${address}\n`;
  const subject = `${brand.title}: confirm your machines in ${first.slug}`;
  await sendMail(mail, { to: first.email, subject, text: body }).catch((error: unknown) =>
    log.warn("Cannot tell a user that machines have to be confirmed", { reason: messageOf(error) }),
  );
}
