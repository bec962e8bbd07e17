// Reads from the audit log what decided who reaches whom at a moment. Every event is verified while it is read, to the end
// of the chain.

import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import type { PastReport } from "../../api/history/past.ts";
import { messageOf } from "../../base/errors.ts";
import { foreignText } from "../../base/text.ts";
import { Moment } from "../../api/values.ts";
import { readPublicArchiveKey } from "../audit/archive-key.ts";
import { sentenceOf, verifyChain, type Chain, type Seen } from "../audit/verify.ts";
import { nextRound } from "../http/heavy-work.ts";
import type { ServerOptions } from "../options.ts";
import { archiveName, verifyArchive } from "../retention/archive-file.ts";
import type { Database } from "../store/database.ts";
import { computed, integer, queryAll, queryNumber, text } from "../store/table.ts";
import { chainEnd, events } from "../store/tables/events.ts";
import { parts, presentRows } from "../store/tables/policy-changes.ts";
import { notHeld } from "./verify-report.ts";

/** Megabytes of them are read: valibot alone would take most of the time. */
const Content = v.custom<readonly (string | number | null)[]>(
  (list) =>
    Array.isArray(list) && list.every((each) => each === null || ["string", "number"].includes(typeof each)),
);
const Change = v.tuple([v.number(), foreignText(40), v.number(), v.nullable(Content)]);
const Changes = v.object({ noted_rows: v.array(Change) });

type Values = v.InferOutput<typeof Content>;
/** Rows by part of the policy, then by their ids. */
export type Rows = Map<string, Map<number, Values>>;

export type Past = {
  /** Undefined: the log does not tell. */
  rows: Rows | undefined;
  /** From when on the log tells; undefined: it never does. */
  since: number | undefined;
  /** As a report has it. */
  chain: PastReport["chain"];
  /** Sentences: what is not proved. */
  doubts: string[];
};

type Noted = v.InferOutput<typeof Changes>["noted_rows"];

/** Undefined: the event was changed to something else. */
function changesIn({ type, after }: Seen): Noted | undefined {
  if (type !== "policy.recorded") return [];
  const schema = typeof after === "string" ? v.pipe(v.string(), v.parseJson(), Changes) : Changes;
  const parsed = v.safeParse(schema, after, { abortEarly: true });
  return parsed.success ? parsed.output.noted_rows : undefined;
}

/** The rows at a moment, ms, and those at the end. */
class Fold {
  readonly rows: Rows = new Map();
  readonly present: Rows = new Map();
  readonly until: number;
  last: PastReport["chain"]["last"] = null;
  since: number | undefined;
  first: number | undefined;
  /** The changes nearest to the moment, and how far the clock had got. */
  before = Number.NEGATIVE_INFINITY;
  after = Number.POSITIVE_INFINITY;
  #latest = Number.NEGATIVE_INFINITY;
  isTurned = false;
  isUnreadable = false;

  constructor(until: number) {
    this.until = until;
  }

  /** Whether every row is known. */
  get isBegun(): boolean {
    return this.since !== undefined && this.since <= this.until;
  }

  /** Whether the event has changes. */
  see(event: Seen): boolean {
    const changes = changesIn(event);
    if (changes === undefined) this.isUnreadable = true;
    for (const change of changes ?? []) if (this.#add(change)) this.last = { id: event.id, hash: event.hash };
    return changes?.length !== 0;
  }

  /** Adds a change. Returns whether it counts for the moment that was asked about. */
  #add(change: Noted[number]): boolean {
    const [at, part] = change;
    if (at < this.#latest - tickMs && this.until >= at && this.until <= this.#latest) this.isTurned = true;
    this.#latest = Math.max(this.#latest, at);
    this.first ??= at;
    if (part === "*") this.since = Math.min(this.since ?? at, at);
    applyTo(this.present, change);
    if (at > this.until) this.after = Math.min(this.after, at);
    else {
      this.before = Math.max(this.before, at);
      applyTo(this.rows, change);
    }
    return at <= this.until;
  }
}

function applyTo(rows: Rows, [, part, id, content]: Noted[number]): void {
  if (part === "*") return rows.clear();
  const known = rows.get(part) ?? new Map<number, Values>();
  rows.set(part, known);
  if (content === null) known.delete(id);
  else known.set(id, content);
}

/** Events tell it in whole seconds. */
const secondMs = 1000;

/** Changes of one transaction are noted one after the other, without longer pauses. */
const tickMs = 100;

type Deps = Pick<ServerOptions, "db" | "secretKey" | "dataDirectory">;
type Org = { id: number; slug: string };

/** `until`: the moment, ms. `head`: a hash that the caller noted. Record all notes before. */
export async function readPast(
  { db, secretKey, dataDirectory }: Deps,
  org: Org,
  until: number,
  head = "",
): Promise<Past> {
  const key = await readPublicArchiveKey(db, secretKey);
  let fold = new Fold(until);
  let noted: number | null = null;
  const see = (event: Seen) => {
    if (event.hash === head) noted = event.id;
    return fold.see(event);
  };
  const readChain = () =>
    verifyChain(db, org.id, org.slug, key, (event) => (see(event) ? nextRound() : undefined));
  let chain = await readChain();
  let older: Archives = { files: [], missing: [], isWhole: chain.archived === null };
  if (!fold.isBegun && chain.archived !== null) {
    older = await readArchives(dataDirectory, org.id, chain.archived, until, key);
    fold = new Fold(until);
    for (const { seen } of older.files) {
      for (const event of seen) see(event);
      await nextRound();
    }
    chain = await readChain();
  }
  const doubts = [
    ...older.files.flatMap(({ file, breaks }) =>
      breaks.map((each) => sentenceOf(`The archive ${file}`, each)),
    ),
    ...older.missing,
    ...chain.breaks.map((each) => sentenceOf("The audit log", each)),
  ];
  if (fold.isUnreadable) doubts.push("An event of the audit log was changed so that it cannot be read.");
  if (fold.isTurned || (await isOfWrongClock(db, until)))
    doubts.push(
      "The clock of the database was set back or forward around this moment: what counts then is uncertain.",
    );
  if (fold.after - fold.before < tickMs)
    doubts.push("Something was being changed at this moment: a change may count in part.");
  const differing = await differencesNow(db, org.id, fold.present);
  // Otherwise something was recorded meanwhile.
  if ((await chainEnd(db, org.id)).hash === chain.head) doubts.push(...differing);
  if (head !== "" && noted === null) doubts.push(notHeld(head));
  const isKnown = fold.isBegun || (older.isWhole && fold.rows.has("organizations"));
  return {
    rows: isKnown ? fold.rows : undefined,
    since: fold.since ?? (older.isWhole ? fold.first : undefined),
    chain: {
      events: chain.events,
      head: chain.head,
      last: fold.last,
      noted: head === "" ? null : { hash: head, event: noted },
      archives: older.files.map(({ file }) => file),
    },
    doubts,
  };
}

const clockEvent = events.pick("type", "after");
const clockSql = `SELECT ${clockEvent.select()} FROM events WHERE org_id IS NULL AND type IN ('server.clock_jumped', 'server.clock_returned')
  ORDER BY id`;
const Clock = v.pipe(v.string(), v.parseJson(), v.object({ clock: Moment, expected: v.optional(Moment) }));

/**
 * SQLite's notes have the time of the machine, also while the server does not believe it. Whether a note of a jumped clock
 * came before or after a moment is not known, from the earlier side of the jump until the clock was right again.
 */
async function isOfWrongClock(db: Database, until: number): Promise<boolean> {
  if (db.dialect !== "sqlite") return false;
  const times = (await queryAll(db, clockEvent, clockSql, [])).flatMap(({ after }) => {
    const parsed = v.safeParse(Clock, after);
    return parsed.success ? [parsed.output] : [];
  });
  return times.some(({ clock, expected }, at) => {
    if (expected === undefined) return false;
    const ended = times[at + 1]?.clock ?? clock;
    const [from, to] = [Math.min(clock, expected), Math.max(clock, expected, ended) + secondMs];
    return from <= until && until <= to;
  });
}

/** What stands in the place of a hash before the first event of a chain. */
const beginning = "";

type Archive = { file: string; seen: Seen[]; breaks: Chain["breaks"] };
/** `missing`: a sentence about what was not found. `isWhole`: since the first event. */
type Archives = { files: Archive[]; missing: string[]; isWhole: boolean };

/** The archives that the chain continues, oldest first, from one with a beginning on. */
async function readArchives(
  dataDirectory: string | undefined,
  orgId: number,
  newest: { last_hash: string },
  until: number,
  key: string | undefined,
): Promise<Archives> {
  const directory = join(dataDirectory ?? "", archiveName);
  const files: Archive[] = [];
  let wanted = newest.last_hash;
  let isBegun = false;
  for (const file of dataDirectory === undefined ? [] : namesIn(directory, orgId)) {
    if (isBegun || wanted === beginning) break;
    await nextRound();
    const seen: Seen[] = [];
    try {
      const { header, breaks } = verifyArchive(join(directory, file), key, (event) => void seen.push(event));
      if (header.last_hash !== wanted) continue;
      files.unshift({ file, seen, breaks });
      wanted = header.previous_hash;
    } catch (error) {
      return { files, missing: [messageOf(error)], isWhole: false };
    }
    isBegun = seen.some((event) => changesIn(event)?.some(([at, part]) => part === "*" && at <= until));
  }
  const isWhole = wanted === beginning;
  const absent = `The archive that ends with the hash ${wanted.slice(0, 16)}… is not in ${directory}: put it there to know more.`;
  return { files, missing: isWhole || isBegun ? [] : [absent], isWhole };
}

/** Newest first. */
function namesIn(directory: string, orgId: number): string[] {
  if (!existsSync(directory)) return [];
  const found = readdirSync(directory).flatMap((name) => {
    const [, org, first] = /^events-(\d+)-(\d+)-\d+\.jsonl$/.exec(name) ?? [];
    return Number(org) === orgId ? [{ name, first: Number(first) }] : [];
  });
  return found.sort((a, b) => b.first - a.first).map(({ name }) => name);
}

const pageSize = 500;
const row = computed({ rowId: integer(), content: text() });

/** Whether the tables hold what the log says. Rows with notes that are not recorded yet are left out. */
async function differencesNow(db: Database, orgId: number, rows: Rows): Promise<string[]> {
  // Without a beginning, the log names only what changed.
  if (!rows.has("organizations")) return [];
  const found: string[] = [];
  for (const part of parts) {
    const known = rows.get(part.name) ?? new Map<number, unknown>();
    const present = new Map<number, string>();
    for (let last = -1; ;) {
      const page = await queryAll(db, row, presentRows(db.dialect, part), [orgId, last, pageSize]);
      for (const { rowId, content } of page) present.set((last = rowId), JSON.stringify(JSON.parse(content)));
      await nextRound();
      if (page.length < pageSize) break;
    }
    const differing = [...new Set([...known.keys(), ...present.keys()])].filter(
      (id) => present.get(id) !== (known.has(id) ? JSON.stringify(known.get(id)) : undefined),
    );
    await nextRound();
    const noted = "SELECT count(*) AS n FROM policy_changes WHERE org_id = $1 AND part = $2 AND row_id = $3";
    for (const id of differing.slice(0, 5)) {
      if ((await queryNumber(db, noted, [orgId, part.name, id])) > 0) continue;
      found.push(
        `The table ${part.table} holds something else in row ${id} than the audit log says: the database was changed past the control plane.`,
      );
    }
  }
  return found;
}
