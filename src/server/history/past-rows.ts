// The rows that decide who reaches whom, as they were at a moment: made from the changes that events of the audit log hold
// (`policy.recorded`, written by record-notes.ts), one event after the other.

import * as v from "valibot";
import type { PastReport } from "../../api/history/past.ts";
import { foreignText } from "../../base/text.ts";
import type { VerifiedEvent } from "../audit/verify.ts";
import { jsonTextOf } from "../../protocol/values.ts";

/** The values of a row's columns. Megabytes of them are read: valibot alone would take most of the time. */
const Content = v.custom<readonly (string | number | null)[]>(
  (list) =>
    Array.isArray(list) && list.every((each) => each === null || ["string", "number"].includes(typeof each)),
);
type Content = v.InferOutput<typeof Content>;

/** Time in ms, part, id of the row, and its values; null: the row is gone. The part `*`: what came before does not count. */
const Change = v.tuple([v.number(), foreignText(40), v.number(), v.nullable(Content)]);
type Change = v.InferOutput<typeof Change>;
const Changes = v.object({ noted_rows: v.array(Change) });

/** Rows by part of the policy (store/tables/policy-changes.ts), then by their ids. */
export type Rows = Map<string, Map<number, Content>>;

/** The changes that an event holds. Most events have none. Undefined: the event was changed to something else. */
function changesIn({ type, after }: VerifiedEvent): Change[] | undefined {
  if (type !== "policy.recorded") return [];
  // JSON text if it was read in the database, a value if it was parsed in an archive.
  const schema = typeof after === "string" ? jsonTextOf(Changes) : Changes;
  const parsed = v.safeParse(schema, after, { abortEarly: true });
  return parsed.success ? parsed.output.noted_rows : undefined;
}

/** Whether the event says that every row follows, at this moment or before. */
export function isBeginning(event: VerifiedEvent, moment: number): boolean {
  return changesIn(event)?.some(([at, part]) => part === "*" && at <= moment) === true;
}

/** Changes of one transaction are noted one after the other, without longer pauses. */
const longestPauseMs = 100;

export class PastRows {
  /** The rows as they were at the moment. */
  readonly rows: Rows = new Map();
  /** The rows as they are after the last event. */
  readonly present: Rows = new Map();
  /** The moment that is asked about, ms. */
  readonly moment: number;
  /** The last event with a change that counts for the moment. */
  last: PastReport["chain"]["last"] = null;
  /** From when on every row is known, ms. */
  since: number | undefined;
  /** The time of the first change, ms. */
  firstAt: number | undefined;
  /** The clock of the database was set back around the moment. */
  isClockTurned = false;
  /** An event was changed so that its changes cannot be read. */
  isUnreadable = false;
  /** The times of the last change up to the moment, and of the first one after it, ms. */
  #before = Number.NEGATIVE_INFINITY;
  #after = Number.POSITIVE_INFINITY;
  /** The latest time of any change, ms. A change with an earlier time shows that the clock was set back. */
  #latest = Number.NEGATIVE_INFINITY;

  constructor(moment: number) {
    this.moment = moment;
  }

  /** Whether every row of the moment is known. */
  get isBegun(): boolean {
    return this.since !== undefined && this.since <= this.moment;
  }

  /** Whether the moment may be within a transaction. */
  get isWithinChange(): boolean {
    return this.#after - this.#before < longestPauseMs;
  }

  /** Takes the next event. Returns whether it has changes. */
  add(event: VerifiedEvent): boolean {
    const changes = changesIn(event);
    if (changes === undefined) this.isUnreadable = true;
    for (const change of changes ?? [])
      if (this.#apply(change)) this.last = { id: event.id, hash: event.hash };
    return changes?.length !== 0;
  }

  /** Returns whether the change counts for the moment. */
  #apply(change: Change): boolean {
    const [at, part] = change;
    const isBack = at < this.#latest - longestPauseMs;
    // The clock went over the moment twice: a change may count that came after it.
    if (isBack && at <= this.moment && this.moment <= this.#latest) this.isClockTurned = true;
    this.#latest = Math.max(this.#latest, at);
    this.firstAt ??= at;
    if (part === "*") this.since = Math.min(this.since ?? at, at);
    applyTo(this.present, change);
    if (at > this.moment) {
      this.#after = Math.min(this.#after, at);
      return false;
    }
    this.#before = Math.max(this.#before, at);
    applyTo(this.rows, change);
    return true;
  }
}

function applyTo(rows: Rows, [, part, id, content]: Change): void {
  if (part === "*") return rows.clear();
  const known = rows.getOrInsertComputed(part, () => new Map());
  if (content === null) known.delete(id);
  else known.set(id, content);
}
