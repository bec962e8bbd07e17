// For nodes and webhooks of older versions, only an event has their creator. Before the first archive removes these
// events, the creators are copied into the rows: when a user leaves, everything that the user created must be found.

import * as v from "valibot";
import { Event } from "../../api/events.ts";
import { principal } from "../audit/record.ts";
import type { Database, Reader } from "../store/database.ts";
import { computed, integer, queryAll } from "../store/table.ts";
import { events } from "../store/tables/events.ts";
import { registrants } from "../store/tables/nodes.ts";
import { webhooks } from "../store/tables/webhooks.ts";

const pageSize = 2000;
const ids = computed({ id: integer() });
const eventPick = events.pick("id", "type", "subject", "actor");

/** Writes only rows that miss their creator. May be repeated. */
export async function keepCreators(db: Database, orgId: number): Promise<void> {
  const missing = await readMissing(db, orgId);
  if (missing.size === 0) return;
  const sql = `SELECT ${eventPick.select()} FROM events WHERE org_id = $1 AND id > $2 ORDER BY id LIMIT ${pageSize}`;
  /** `table`: `node` or `webhook`. `by`: the creator, such as `person/7`. */
  const found: { table: string; id: number; by: string }[] = [];
  for (let last = 0; ;) {
    const page = await queryAll(db, eventPick, sql, [orgId, last]);
    for (const { type, subject, actor } of page) {
      const isCreation = type === "node.registered" || type === "webhook.created";
      if (!isCreation || !missing.has(subject)) continue;
      const { kind, id } = v.parse(Event.entries.actor, JSON.parse(actor));
      if (kind !== "person" && kind !== "service") continue;
      const [table = "", rowId] = subject.split("/");
      found.push({ table, id: Number(rowId), by: principal({ kind, id }) });
    }
    const next = page.at(-1)?.id;
    if (next === undefined) break;
    last = next;
  }
  await db.write(async (tx) => {
    for (const { table, id, by } of found) {
      if (table === "webhook") await webhooks.update(tx, { id, createdBy: null }, { createdBy: by });
      else await registrants.upsert(tx, { nodeId: id, principal: by }, "ON CONFLICT DO NOTHING");
    }
  });
}

/** `node/7` and `webhook/3`: the subjects of the events. */
async function readMissing(reader: Reader, orgId: number): Promise<Set<string>> {
  const nodes = `SELECT id FROM nodes n WHERE n.org_id = $1 AND n.registered_at IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM registrants r WHERE r.node_id = n.id)`;
  const hooks = "SELECT id FROM webhooks WHERE org_id = $1 AND created_by IS NULL AND deleted_at IS NULL";
  return new Set([
    ...(await queryAll(reader, ids, nodes, [orgId])).map(({ id }) => `node/${id}`),
    ...(await queryAll(reader, ids, hooks, [orgId])).map(({ id }) => `webhook/${id}`),
  ]);
}
