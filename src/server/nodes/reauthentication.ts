// Where an organization asks for it, users say every N days in a browser that their nodes are still theirs. They are told 7
// days before. A node whose user does not is revoked, never less than 7 days after the user was told. A proof changes no
// certificate and no configuration, so no packet is lost.

import * as v from "valibot";
import { brand } from "../../brand.ts";
import { formatTime } from "../../duration.ts";
import { AppError, messageOf } from "../../errors.ts";
import { ourselves, record, type Actor } from "../audit/record.ts";
import type { ServerOptions } from "../options.ts";
import { sendMail } from "../people/mail.ts";
import type { Reader } from "../store/database.ts";
import { computed, integer, integerOrNull, queryAll, queryOne, text } from "../store/table.ts";
import { findNode } from "../store/nodes.ts";
import { ownerProofs } from "../store/tables/owner-proofs.ts";
import { requireOwner } from "./node-owner.ts";
import { beginPeriod } from "./owner-period.ts";
import { revokeInside } from "./revoke.ts";
import { settle } from "./upkeep.ts";

type Store = Pick<ServerOptions, "db" | "system">;
type Mailing = Store & Pick<ServerOptions, "mail" | "log" | "publicUrl">;

const dayMs = 86_400_000;
const toldDays = 7;
const toldMs = toldDays * dayMs;
/** Nodes in one transaction: few enough that check-ins do not wait for it. */
const together = 20;

export const OwnNodeDue = v.object({
  node_id: v.number(),
  name: v.string(),
  owner_id: v.number(),
  /** The node is revoked then. */
  until: v.string(),
});

const due = computed({
  id: integer(),
  orgId: integer(),
  slug: text(),
  name: text(),
  ownerId: integer(),
  email: text(),
  until: integer(),
  toldAt: integerOrNull(),
});
type Due = ReturnType<typeof due.parse>;

/** The later one of two numbers, for both databases. */
const later = (a: string, b: string) => `CASE WHEN ${a} > ${b} THEN ${a} ELSE ${b} END`;
const since = later(
  later("coalesce(p.proven_at, 0)", "o.reauthenticate_from"),
  "coalesce(n.registered_at, 0)",
);
const end = `${since} + o.reauthenticate_days * ${dayMs}`;
/** $1: now. Nodes whose user has to be told, or was told. `until`: never less than 7 days after that. */
const dueNodes = `SELECT d.id, d.org_id, d.slug, d.name, d.owner_id, d.email, d.told_at,
    ${later("d.ends", `coalesce(d.told_at, $1) + ${toldMs}`)} AS until
  FROM (SELECT n.id, n.org_id, o.slug, n.name, n.owner_id, u.email, p.told_at, ${end} AS ends
    FROM organizations o JOIN nodes n ON n.org_id = o.id AND n.owner_id IS NOT NULL AND n.state = 'active'
    JOIN users u ON u.id = n.owner_id LEFT JOIN owner_proofs p ON p.node_id = n.id
    WHERE o.reauthenticate_days IS NOT NULL AND o.deleted_at IS NULL) d
  WHERE d.ends - ${toldMs} <= $1`;
const anyOrganization = "SELECT id FROM organizations WHERE reauthenticate_days IS NOT NULL LIMIT 1";

/** The nodes of an organization whose time ends, those of one user first to last. */
export async function listDue(
  { db, system }: Store,
  org: { id: number },
  ownerId: number | undefined,
): Promise<v.InferOutput<typeof OwnNodeDue>[]> {
  const sql = `${dueNodes} AND d.org_id = $2 AND d.owner_id = coalesce($3, d.owner_id) ORDER BY until, d.id LIMIT 1000`;
  const found = await queryAll(db, due, sql, [system.now(), org.id, ownerId ?? null]);
  return found.map((each) => ({
    node_id: each.id,
    name: each.name,
    owner_id: each.ownerId,
    until: formatTime(each.until),
  }));
}

/** The user says that the node is still theirs. Throws not_found, permission_denied. */
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
    if (node.state === "revoked") throw new AppError("not_found", "There is no such node.");
    const now = system.now();
    await beginPeriod(tx, id, now, "proven");
    const event = { orgId: org.id, at: now, actor, subject: `node/${id}` };
    await record(tx, { ...event, type: "node.reauthenticated", after: { name: node.name } });
  });
}

/** Tells users whose time ends, and revokes nodes whose time has ended. */
export async function reauthenticate(services: Mailing): Promise<void> {
  const { db, system } = services;
  if ((await db.get(anyOrganization)) === undefined) return;
  const now = system.now();
  const found = await queryAll(db, due, `${dueNodes} ORDER BY d.org_id, d.id LIMIT 1000`, [now]);
  const untold = found.filter(({ toldAt }) => toldAt === null);
  const over = found.filter(({ toldAt, until }) => toldAt !== null && until <= now);
  for (const each of batches(over)) await revokeBatch(services, each);
  for (const each of batches(untold)) await tellBatch(services, each);
}

function batches(found: readonly Due[]): Due[][] {
  return [...Map.groupBy(found, ({ orgId }) => orgId).values()].flatMap((all) =>
    Array.from({ length: Math.ceil(all.length / together) }, (_, at) =>
      all.slice(at * together, (at + 1) * together),
    ),
  );
}

/** As it is now: a proof may have come in between. */
async function stillDue(tx: Pick<Reader, "get">, { id }: Due, now: number): Promise<Due | undefined> {
  return queryOne(tx, due, `${dueNodes} AND d.id = $2`, [now, id]);
}

async function revokeBatch({ db, system }: Store, found: readonly Due[]): Promise<void> {
  const [{ orgId } = { orgId: 0 }] = found;
  await db.writeFor({ org: orgId }, async (tx) => {
    const now = system.now();
    const ids: number[] = [];
    for (const each of found) {
      const present = await stillDue(tx, each, now);
      if (present !== undefined && present.toldAt !== null && present.until <= now) ids.push(each.id);
    }
    const reason = "its user did not confirm it in time";
    await revokeInside(tx, orgId, ids, { actor: ourselves, reason, now });
  });
  await settle({ db, system }, orgId);
}

async function tellBatch(services: Mailing, found: readonly Due[]): Promise<void> {
  const { db, system } = services;
  const [{ orgId } = { orgId: 0 }] = found;
  const told: Due[] = [];
  await db.writeFor({ org: orgId }, async (tx) => {
    const now = system.now();
    for (const each of found) {
      const present = await stillDue(tx, each, now);
      if (present === undefined || present.toldAt !== null) continue;
      const again = "ON CONFLICT (node_id) DO UPDATE SET told_at = excluded.told_at";
      await ownerProofs.upsert(tx, { nodeId: each.id, provenAt: 0, toldAt: now }, again);
      const after = { name: present.name, owner_id: present.ownerId, until: formatTime(present.until) };
      const event = { orgId, at: now, actor: ourselves, subject: `node/${each.id}` };
      await record(tx, { ...event, type: "node.reauthentication_due", after });
      told.push(present);
    }
  });
  for (const own of Map.groupBy(told, ({ ownerId }) => ownerId).values()) await mailTo(services, own);
}

/** One e-mail for all nodes of a user that were told together. Without an SMTP server, the console and events tell. */
async function mailTo({ mail, log, publicUrl }: Mailing, own: readonly Due[]): Promise<void> {
  const [first] = own;
  if (mail === undefined || first === undefined) return;
  const lines = own.map(({ name, until }) => `${name}: until ${formatTime(until)}`).join("\n");
  const address = `${publicUrl}/console/${encodeURIComponent(first.slug)}/`;
  const sentence = `${first.slug} asks you to confirm that these machines are still yours. Each is cut off from the network at its time:`;
  const body = `${sentence}\n\n${lines}\n\nSign in and confirm them:\n${address}\n`;
  const subject = `${brand.title}: confirm your machines in ${first.slug}`;
  await sendMail(mail, { to: first.email, subject, text: body }).catch((error: unknown) =>
    log.warn("Cannot tell a user that machines have to be confirmed", { reason: messageOf(error) }),
  );
}
