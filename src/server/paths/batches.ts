// Writes reports of many nodes (paths, flows) together, within a second: a write costs the same for one row as for hundreds. Also
// tells whether an organization wants such reports.

import { messageOf } from "../../base/errors.ts";
import { makeBacklog } from "../http/backlog.ts";
import type { ServerOptions } from "../options.ts";
import type { Transaction } from "../store/database.ts";
import { queryOne } from "../store/table.ts";
import { organizations } from "../store/tables/organizations.ts";

type Deps = Pick<ServerOptions, "db" | "log">;
type OfNode = { orgId: number; nodeId: number };

export type Batches<T> = {
  /** False if too much waits already. */
  add(entry: T): boolean;
  /** Writes what is still in memory. */
  stop(): Promise<void>;
};

type Writing<T> = {
  /** Logged when writing begins to fail. */
  warning: string;
  rowsOf(entry: T): number;
  store(tx: Transaction, batch: readonly T[]): Promise<void>;
  /** Called with each entry when it leaves the memory. Without it, entries that cannot be stored stay, and are tried again. */
  settle?(entry: T, isStored: boolean): void;
};

const flushMs = 500;
/** Rows in one transaction, so that other writers wait only briefly. */
const batchRows = 512;
/** The most rows that wait. One organization may use a quarter of them. */
const maxWaitingRows = 100_000;
const maxOrganizations = 200_000;

export function makeBatches<T extends OfNode>(
  { db, log }: Deps,
  { warning, rowsOf, store, settle }: Writing<T>,
): Batches<T> {
  const waiting = makeBacklog<T>(maxWaitingRows, rowsOf);
  let isFailing = false;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let running: Promise<void> | undefined;
  const flush = () => (running ??= write().finally(() => (running = undefined)));
  const schedule = () => void (timer ??= setTimeout(() => void flush(), flushMs).unref());
  const tryToStore = async (batch: readonly T[]) => {
    try {
      await db.writeFor("rows", (tx) => store(tx, batch));
      isFailing = false;
    } catch (error) {
      if (!isFailing) log.warn(warning, { reason: messageOf(error) });
      isFailing = true;
    }
    return !isFailing;
  };
  const write = async () => {
    // `left`: of those that wait now. What comes meanwhile is left to the next timer.
    for (let left = waiting.count; left > 0;) {
      const batch = waiting.next(batchRows, isOtherNode);
      const isStored = await tryToStore(batch);
      if (!isStored && settle === undefined) break;
      left -= batch.length;
      waiting.remove(batch);
      for (const entry of batch) settle?.(entry, isStored);
    }
    // Not earlier: a timer that an entry set during this write would call `flush`, which only returns the write under way.
    timer = undefined;
    if (waiting.count > 0) schedule();
  };
  return {
    add(entry) {
      const isAdded = waiting.add(entry.orgId, entry);
      if (isAdded) schedule();
      return isAdded;
    },
    async stop() {
      await running;
      await flush();
      clearTimeout(timer);
    },
  };
}

/** Reports of one node are never in one batch: a later one must see the rows of an earlier one. */
const isOtherNode = ({ nodeId }: OfNode, others: readonly OfNode[]) =>
  others.every((other) => other.nodeId !== nodeId);

/** Returns whether an organization wants such reports. Kept in memory until the organization notifies a change. */
export function makeWantsReports(
  db: Deps["db"],
  setting: "pathReports" | "flows",
): (orgId: number) => Promise<boolean> {
  const pick = organizations.pick(setting);
  const wanted = new Map<number, boolean>();
  db.listen("organization", (payload) => void wanted.delete(Number(payload)));
  return async (orgId) => {
    const known = wanted.get(orgId);
    if (known !== undefined) return known;
    const sql = `SELECT ${pick.select()} FROM organizations WHERE id = $1`;
    const isWanted = (await queryOne(db, pick, sql, [orgId]))?.[setting] === true;
    if (wanted.size >= maxOrganizations) wanted.clear();
    wanted.set(orgId, isWanted);
    return isWanted;
  };
}
