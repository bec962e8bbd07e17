// The believed time. The clock of the machine is compared with the time since its boot, which no setting of the clock
// changes, and which goes on while the machine sleeps. After a jump the server continues with its former time, and
// signs no certificate, until the clock is back or an administrator confirms it: every engine refuses a certificate
// from the future, and every registration a CA from there. Reports of nodes decide nothing here.

import * as v from "valibot";
import { brand } from "../../brand.ts";
import { formatTime, inWords } from "../../base/quantities.ts";
import { AppError } from "../../base/errors.ts";
import type { System } from "../../base/system.ts";
import { databaseClock, type Database, type Transaction } from "./database.ts";
import { aheadOf } from "./replicas.ts";
import { readMeta, setMeta } from "./meta.ts";
import { queryNumber } from "./table.ts";
import { jsonTextOf } from "../../protocol/values.ts";

/** Less than the five minutes by which certificates are back-dated: a smaller jump does no harm. */
export const toleranceMs = 120_000;
/**
 * A machine without a hardware clock gets the time from the network some time after its boot: until then, steps are
 * usual.
 */
const settledAfterMs = 3_600_000;
/** A machine that was off for longer may have lost its clock. */
const longestAbsenceMs = 31 * 86_400_000;
/** Tolerated drift, as a part of the time that passed: a clock that is slewed, not one that is set. */
const greatestSlew = 0.001;
/** How far the stored time may lag. After the next boot, no earlier time is believed. */
const storeEveryMs = 600_000;
const maxBoots = 16;
const key = "clock";

/** The clock of the machine (`wall`), and the time since its boot at the same moment, both in ms. */
type Point = { wall: number; boot: number };

const Stored = v.object({
  /** The latest believed time, ms. */
  believed_at: v.number(),
  /** A believed point of each boot (`id`), of all servers that share the database: newest first. */
  boots: v.array(v.object({ id: v.string(), wall: v.number(), boot: v.number() })),
});
type Stored = v.InferOutput<typeof Stored>;

/** `wall`: what the machine's clock shows. `expected`: by the source `comparedWith`. Both in ms since 1970. */
export type Doubt = { wall: number; expected: number; comparedWith: "boot" | "last start" | "database" };

export type ServerClock = {
  /** Milliseconds since 1970. While the clock is in doubt: the former time, continued. */
  now(): number;
  /** The time of the machine's clock, believed or not. */
  wall(): number;
  doubt(): Doubt | undefined;
  /** False in the first hour after a boot, in which the clock may be ahead without a doubt. */
  isSettled(): boolean;
  /** Throws clock_doubted. Before each signature for a node, and before each new CA. */
  requireBelieved(): void;
  /** Call it every few seconds. Stores what is believed; in doubt, looks whether an administrator has confirmed the clock. */
  look(): Promise<void>;
  /** Accepts the present clock, for all servers that share the database. */
  confirm(tx: Transaction): Promise<void>;
};

type Edge = Pick<System, "now" | "bootTime" | "monotonic">;
/** How long a comparison with the time since the boot stands, and by how much the clock may have moved since, ms. */
const agreedMs = 1000;

/** `comparesDatabase`: for a server on PostgreSQL, whose servers all trust the clock of the database. */
export async function openClock(
  db: Database,
  { now: wall, bootTime, monotonic }: Edge,
  { comparesDatabase = false } = {},
): Promise<ServerClock> {
  const presentPoint = (): Point => ({ wall: wall(), boot: bootTime().ms });
  /** What this process read or wrote last. */
  let storedText = await readMeta(db, key);
  const referenceFrom = (text: string | undefined): Reference => {
    const found = referenceOf(text, bootTime().id, presentPoint());
    return doubtOf(found, presentPoint()) === undefined ? nextReference(found, presentPoint()) : found;
  };
  let reference = referenceFrom(storedText);
  /** By how much the clock of the database is ahead; undefined: not compared, or within the tolerance. */
  let databaseAheadMs: number | undefined;
  /** When the believed time was stored last, as a time since the boot, ms. */
  let storedAt = Number.NEGATIVE_INFINITY;

  const doubt = (): Doubt | undefined => {
    const present = presentPoint();
    const own = doubtOf(reference, present);
    if (own !== undefined || databaseAheadMs === undefined) return own;
    const expected = present.wall + databaseAheadMs;
    return { wall: present.wall, expected, comparedWith: "database" };
  };
  /**
   * The last comparison without a doubt: the clock of the machine and that of the process, ms. NaN before the first one, which
   * equals nothing. Each request asks several times, and the time since the boot costs more than the rest of a check-in. So a
   * comparison stands while both clocks go equally fast.
   */
  let agreed = { wall: Number.NaN, process: Number.NaN };
  const believedNow = (): number => {
    const present = { wall: wall(), process: monotonic() };
    const passed = present.process - agreed.process;
    const movedMs = Math.abs(present.wall - agreed.wall - passed);
    if (passed < agreedMs && movedMs < agreedMs) return present.wall;
    const expected = doubtOf(reference, presentPoint())?.expected;
    if (expected === undefined) agreed = present;
    return expected ?? present.wall;
  };
  const store = async (tx: Transaction, present: Point, { isConfirmed = false } = {}) => {
    // A confirmation drops what was believed before, which may lie in the future.
    const stored = isConfirmed ? undefined : parseStored(await readMeta(tx, key));
    const boot = { id: bootTime().id, base: reference.base };
    storedText = JSON.stringify(nextStored(stored, present, boot));
    await setMeta(tx, key, storedText);
  };
  return {
    wall,
    now: believedNow,
    doubt,
    isSettled: () => reference.base !== undefined,
    requireBelieved() {
      const found = doubt();
      if (found !== undefined) throw clockDoubted(found);
    },
    async look() {
      if (comparesDatabase) databaseAheadMs = await readDatabaseAhead(db, wall);
      // Another process may have confirmed the clock.
      if (doubt() !== undefined) {
        const text = await readMeta(db, key);
        if (text !== storedText) reference = referenceFrom(text);
        storedText = text;
      }
      if (doubt() !== undefined) return;
      const present = presentPoint();
      reference = nextReference(reference, present);
      if (present.boot - storedAt < storeEveryMs || reference.base === undefined) return;
      await db.writeFor("rows", (tx) => store(tx, present));
      storedAt = present.boot;
    },
    async confirm(tx) {
      const present = presentPoint();
      reference = { base: present };
      databaseAheadMs = undefined;
      await store(tx, present, { isConfirmed: true });
    },
  };
}

/** For restored data, whose stored time is long past. */
export async function forgetClock(tx: Transaction): Promise<void> {
  await tx.run("DELETE FROM meta WHERE key = $1", [key]);
}

function parseStored(text: string | undefined): Stored | undefined {
  return text === undefined ? undefined : v.parse(jsonTextOf(Stored), text);
}

/** `id`, `base`: of this boot; nothing is stored of a boot without either. */
function nextStored(
  stored: Stored | undefined,
  present: Point,
  { id, base }: { id: string | undefined; base: Point | undefined },
): Stored {
  const own = base === undefined || id === undefined ? [] : [{ id, ...base }];
  const ofOtherBoots = (stored?.boots ?? []).filter((each) => each.id !== id);
  return {
    believed_at: Math.max(stored?.believed_at ?? 0, present.wall),
    boots: [...own, ...ofOtherBoots].slice(0, maxBoots),
  };
}

/** By how much the clock of the database is ahead of the machine's, ms; undefined: within the tolerance. */
async function readDatabaseAhead(db: Database, wall: () => number): Promise<number | undefined> {
  const before = wall();
  const databaseNow = await queryNumber(db, `SELECT ${databaseClock} AS n`);
  const ownAheadMs = aheadOf(databaseNow, before, wall());
  return Math.abs(ownAheadMs) > toleranceMs ? -ownAheadMs : undefined;
}

/**
 * What the clock is compared with. `base`: a point of this boot that was believed. Without one, in the first hour of a boot,
 * steps are usual; but the clock may be neither before `last`, nor long after it: the believed time that an earlier boot
 * stored, as if this process had started at that time.
 */
type Reference = { base?: Point; last?: Point };

function referenceOf(text: string | undefined, bootId: string | undefined, present: Point): Reference {
  const stored = parseStored(text);
  // Without an id, a later boot cannot be told from this one.
  const known = bootId === undefined ? undefined : stored?.boots.find(({ id }) => id === bootId);
  // Less time since the boot than was noted: another boot with the same id.
  if (known !== undefined && present.boot >= known.boot - toleranceMs)
    return { base: { wall: known.wall, boot: known.boot } };
  return stored === undefined ? {} : { last: { wall: stored.believed_at, boot: present.boot } };
}

function doubtOf({ base, last }: Reference, { wall, boot }: Point): Doubt | undefined {
  const known = base ?? last;
  if (known === undefined) return undefined;
  const expected = known.wall + boot - known.boot;
  const ahead = wall - expected;
  const mostAhead = base === undefined ? longestAbsenceMs : toleranceMs;
  if (ahead >= -toleranceMs && ahead <= mostAhead) return undefined;
  return { wall, expected, comparedWith: base === undefined ? "last start" : "boot" };
}

/** The reference for the next comparison: a clock may be corrected slowly. */
function nextReference({ base, last }: Reference, present: Point): Reference {
  if (base === undefined) {
    if (present.boot >= settledAfterMs) return { base: present };
    return last === undefined ? {} : { last };
  }
  const passed = present.boot - base.boot;
  const expected = base.wall + passed;
  const mostSlew = Math.max(0, passed) * greatestSlew;
  const slewed = Math.max(-mostSlew, Math.min(mostSlew, present.wall - expected));
  return { base: { wall: expected + slewed, boot: present.boot } };
}

/** The doubt as one sentence. */
export function describeDoubt({ wall, expected, comparedWith }: Doubt): string {
  const by = `${inWords(Math.abs(wall - expected))} ${wall > expected ? "ahead" : "behind"}`;
  const than = {
    boot: `it was set since the machine started: ${formatTime(expected)} is expected`,
    "last start": `${formatTime(expected)} is expected, by the last time that a server on this database ran`,
    database: `the clock of the database shows ${formatTime(expected)}`,
  }[comparedWith];
  return `The clock of this server shows ${formatTime(wall)}, which is ${by}: ${than}. No certificate is signed; revocations go on`;
}

export const howToConfirm = `Set the clock right (\`timedatectl set-ntp true\`). If what it shows is right: \`${brand.executable} admin clock confirm\` on the machine of the control plane.`;

export function clockDoubted(doubt: Doubt): AppError {
  return new AppError("clock_doubted", `${describeDoubt(doubt)}.`, { hint: howToConfirm, retryAfter: 60 });
}
