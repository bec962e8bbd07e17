// Reads from the audit log what decided who reaches whom at a moment. Every event is verified while it is read, to the end
// of the chain.

import * as v from "valibot";
import type { PastReport } from "../../api/history/past.ts";
import { Moment } from "../../api/values.ts";
import { readPublicArchiveKey } from "../audit/archive-key.ts";
import { sentenceOf, verifyChain, type Chain, type VerifiedEvent } from "../audit/verify.ts";
import { nextRound } from "../http/heavy-work.ts";
import type { ServerOptions } from "../options.ts";
import type { Database } from "../store/database.ts";
import { computed, integer, queryAll, queryNumber, text } from "../store/table.ts";
import { chainEnd, events } from "../store/tables/events.ts";
import { parts, presentRows } from "../store/tables/policy-changes.ts";
import { readArchives, type PastArchives } from "./past-archives.ts";
import { PastRows, type Rows } from "./past-rows.ts";
import { notHeld } from "./verify-report.ts";
import type { Org } from "../http/route.ts";
import { jsonTextOf } from "../../protocol/values.ts";

export type Past = {
  /** Undefined: the log does not tell. */
  rows: Rows | undefined;
  /** From when on the log tells, ms; undefined: it never does. */
  since: number | undefined;
  /** As a report has it. */
  chain: PastReport["chain"];
  /** Sentences: what is not proved. */
  doubts: string[];
};

/** Events about the clock have times in whole seconds. */
const secondMs = 1000;

type Deps = Pick<ServerOptions, "db" | "secretKey" | "dataDirectory">;

/**
 * `moment`: ms. `head`: a hash that the caller noted earlier, "" for none: the report says which event has it. Call recordNotes
 * before, so that the log has every change.
 */
export async function readPast(
  { db, secretKey, dataDirectory }: Deps,
  org: Org,
  moment: number,
  head = "",
): Promise<Past> {
  const key = await readPublicArchiveKey(db, secretKey);
  let past = new PastRows(moment);
  /** The id of the event with the hash `head`. */
  let notedId: number | null = null;
  /** Returns whether the event has changes. */
  const see = (event: VerifiedEvent) => {
    if (event.hash === head) notedId = event.id;
    return past.add(event);
  };
  // Changes are long texts: other requests get their chance after each event that has some.
  const readChain = () => verifyChain(db, org, key, (event) => (see(event) ? nextRound() : undefined));
  let chain = await readChain();
  let archives: PastArchives = { files: [], missing: [], isWhole: chain.archived === null };
  if (!past.isBegun && chain.archived !== null) {
    // The events in the database do not go back far enough: begin again with the archives.
    const asked = { lastHash: chain.archived.last_hash, moment, key };
    archives = await readArchives(dataDirectory, org.id, asked);
    past = new PastRows(moment);
    for (const { events } of archives.files) {
      for (const event of events) see(event);
      await nextRound();
    }
    chain = await readChain();
  }
  const doubts = doubtsAbout(past, chain, archives);
  if (past.isClockTurned || (await isOfWrongClock(db, moment)))
    doubts.push(
      "The clock of the database was set back or forward around this moment: what counts then is uncertain.",
    );
  if (past.isWithinChange)
    doubts.push("Something was being changed at this moment: a change may count in part.");
  const differing = await differencesNow(db, org.id, past.present);
  // If the log has grown meanwhile, tables are ahead of what was read.
  if ((await chainEnd(db, org.id)).hash === chain.head) doubts.push(...differing);
  if (head !== "" && notedId === null) doubts.push(notHeld(head));
  // A chain that was read from its first event on has every row since the organization was created.
  const isKnown = past.isBegun || (archives.isWhole && past.rows.has("organizations"));
  return {
    rows: isKnown ? past.rows : undefined,
    since: past.since ?? (archives.isWhole ? past.firstAt : undefined),
    chain: {
      events: chain.events,
      head: chain.head,
      last: past.last,
      noted: head === "" ? null : { hash: head, event: notedId },
      archives: archives.files.map(({ file }) => file),
    },
    doubts,
  };
}

/** What the log itself shows: where it is broken, incomplete or unreadable. */
function doubtsAbout(past: PastRows, chain: Chain, { files, missing }: PastArchives): string[] {
  return [
    ...files.flatMap(({ file, breaks }) => breaks.map((each) => sentenceOf(`The archive ${file}`, each))),
    ...missing,
    ...chain.breaks.map((each) => sentenceOf("The audit log", each)),
    ...(past.isUnreadable ? ["An event of the audit log was changed so that it cannot be read."] : []),
  ];
}

const clockEvent = events.pick("type", "after");
const clockSql = `SELECT ${clockEvent.select()} FROM events WHERE org_id IS NULL AND type IN ('server.clock_jumped', 'server.clock_returned')
  ORDER BY id`;
const Clock = jsonTextOf(v.object({ clock: Moment, expected: v.optional(Moment) }));

/**
 * SQLite's notes have the time of the machine, also while the server does not believe it. Whether a note of a jumped clock
 * came before or after a moment is not known, from the earlier side of the jump until the clock was right again.
 */
async function isOfWrongClock(db: Database, moment: number): Promise<boolean> {
  if (db.dialect !== "sqlite") return false;
  const jumpsAndReturns = (await queryAll(db, clockEvent, clockSql, [])).flatMap(({ after }) => {
    const parsed = v.safeParse(Clock, after);
    return parsed.success ? [parsed.output] : [];
  });
  return jumpsAndReturns.some(({ clock, expected }, index) => {
    // A return: it ends the jump before it.
    if (expected === undefined) return false;
    const returned = jumpsAndReturns[index + 1]?.clock ?? clock;
    const [from, to] = [Math.min(clock, expected), Math.max(clock, expected, returned) + secondMs];
    return from <= moment && moment <= to;
  });
}

const pageSize = 500;
const rowWithContent = computed({ rowId: integer(), content: text() });

/**
 * A sentence for each row that the tables hold otherwise than the log says. Rows with notes that are not recorded yet are left
 * out.
 */
async function differencesNow(db: Database, orgId: number, rows: Rows): Promise<string[]> {
  // Without a beginning, the log names only what changed.
  if (!rows.has("organizations")) return [];
  const found: string[] = [];
  for (const part of parts) {
    const known = rows.get(part.name) ?? new Map<number, unknown>();
    const present = new Map<number, string>();
    for (let last = -1; ;) {
      const page = await queryAll(db, rowWithContent, presentRows(db.dialect, part), [orgId, last, pageSize]);
      // Parsed and written again, so that equal values are equal texts, as of the known rows below.
      for (const { rowId, content } of page) present.set((last = rowId), JSON.stringify(JSON.parse(content)));
      await nextRound();
      if (page.length < pageSize) break;
    }
    const differing = [...new Set([...known.keys(), ...present.keys()])].filter(
      (id) => present.get(id) !== (known.has(id) ? JSON.stringify(known.get(id)) : undefined),
    );
    await nextRound();
    const noted = "SELECT count(*) AS n FROM policy_changes WHERE org_id = $1 AND part = $2 AND row_id = $3";
    // A few show that the database was changed.
    for (const id of differing.slice(0, 5)) {
      if ((await queryNumber(db, noted, [orgId, part.name, id])) > 0) continue;
      found.push(
        `The table ${part.table} holds something else in row ${id} than the audit log says: the database was changed past the control plane.`,
      );
    }
  }
  return found;
}
