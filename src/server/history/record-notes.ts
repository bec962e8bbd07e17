// Moves what triggers noted (store/tables/policy-changes.ts) into the audit log.

import { ourselves, record, type AuditEvent } from "../audit/record.ts";
import { forAll, orgOf } from "../for-all.ts";
import type { Store } from "../options.ts";
import { computed, integer, queryAll } from "../store/table.ts";
import { takeNotes, type PolicyChangeRow } from "../store/tables/policy-changes.ts";
import { organizations } from "../store/tables/organizations.ts";

/** Notes that one transaction records. */
const maxNotes = 1000;
/** Bytes of the notes in one event. */
const maxEventBytes = 48 * 1024;

/** Of a note, without its content: more than time, part and id take. */
const noteBytes = 64;

const org = computed({ orgId: integer() });

/** Records the notes of all organizations. */
export async function recordAllNotes(deps: Store): Promise<void> {
  const sql = "SELECT DISTINCT org_id FROM policy_changes ORDER BY org_id";
  await forAll(await queryAll(deps.db, org, sql), orgOf, ({ orgId }) => recordNotes(deps, orgId));
}

/** A note leaves its table in the transaction that records it. */
export async function recordNotes({ db, system }: Store, orgId: number): Promise<void> {
  for (let count = maxNotes; count === maxNotes;) {
    count = await db.writeFor({ org: orgId }, async (tx) => {
      const notes = await takeNotes(tx, orgId, maxNotes);
      if (notes.length === 0) return 0;
      const slug = (await organizations.find(tx, { id: orgId }))?.slug ?? "";
      const about = { orgId, at: system.now(), actor: ourselves, subject: `policy/${slug}` };
      const event = { ...about, type: "policy.recorded" } as const;
      const recorded = inEvents(notes).map((rows): AuditEvent => ({ ...event, after: { noted_rows: rows } }));
      await record(tx, recorded);
      return notes.length;
    });
  }
}

/** For each event its notes, as lists: time in ms, part, id of the row, its values or null (read by past-rows.ts). */
function inEvents(notes: readonly PolicyChangeRow[]): unknown[][] {
  const events: unknown[][] = [];
  let room = 0;
  for (const { at, part, rowId, content } of notes) {
    const bytes = Buffer.byteLength(content ?? "") + noteBytes;
    if (bytes > room) {
      events.push([]);
      room = maxEventBytes;
    }
    room -= bytes;
    events.at(-1)?.push([at, part, rowId, content === null ? null : JSON.parse(content)]);
  }
  return events;
}
