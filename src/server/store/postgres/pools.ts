// The connections of one process to PostgreSQL. A host that loses its power or network closes no connection: queries on it
// would wait for a quarter of an hour. So a query that must be fast, the pulse, decides whether the connections still work.

import { defer } from "../../../base/defer.ts";
import { SQL } from "bun";
import { AppError } from "../../../base/errors.ts";
import { sessionSettings, sqlStateOf } from "./refusals.ts";

/** Check-ins need no query, so few are enough. */
const readConnections = 4;
/** Writes that wait for the lock of another replica hold a connection, so reads have connections of their own. */
export const writeConnections = 8;
const connectWithinS = 5;
/** Far longer than a busy database takes for the simplest query. */
const pulseWithinMs = 8000;

export type Pools = {
  reads(): SQL;
  /**
   * Runs a transaction's work on a write connection that no other work has. Prefers one that was used before: its statements
   * are prepared, and its session has read the catalog.
   */
  writing<T>(work: (sql: SQL) => Promise<T>): Promise<T>;
  /** Runs a fast query on a connection of its own. If it gets no answer, gives up all connections, and opens new ones. */
  pulse<T>(query: (sql: SQL) => Promise<T>): Promise<T>;
  /** Calls the listener when the channel is notified, and whenever a notification may have been missed. */
  listen(channel: string, listener: () => void): Promise<void>;
  close(): Promise<void>;
};

/** Whether PostgreSQL refused a write because the session is read-only (25006). */
function isReadOnly(error: unknown): boolean {
  const cause = error instanceof AppError ? error.cause : error;
  return cause instanceof Error && sqlStateOf(cause) === "25006";
}

export function openPools(url: string, applicationName: string): Pools {
  const pool = (max: number) =>
    new SQL(url, {
      max,
      bigint: true,
      connectionTimeout: connectWithinS,
      connection: { ...sessionSettings, application_name: applicationName },
      onclose: () => undefined,
    });
  const openAll = () => {
    const writes = Array.from({ length: writeConnections }, () => pool(1));
    return { reads: pool(readConnections), writes, idle: [...writes], pulse: pool(1) };
  };
  let pools = openAll();
  let subscription: { channel: string; listener: () => void } | undefined;
  /** The pools that have subscribed, or are about to. */
  let listening: typeof pools | undefined;

  const listenAgain = async () => {
    if (subscription === undefined || listening === pools) return;
    listening = pools;
    const { channel, listener } = subscription;
    try {
      // The second one is called whenever Bun listens, also after a lost connection: notifications may have been missed.
      await pools.reads.listen(channel, listener, listener);
    } catch (error) {
      listening = undefined;
      throw error;
    }
  };
  const closeAll = (closing: typeof pools, timeoutS: number) =>
    Promise.all(
      [closing.reads, ...closing.writes, closing.pulse].map((each) =>
        each.close({ timeout: timeoutS }).catch(() => undefined),
      ),
    );
  return {
    reads: () => pools.reads,
    async writing(work) {
      const { idle } = pools;
      const sql = idle.pop();
      if (sql === undefined) throw new AppError("internal", "More transactions than connections for writes");
      /** What goes back to the idle connections. */
      let returned = sql;
      try {
        return await work(sql);
      } catch (error) {
        // Not if `pulse` has given these connections up meanwhile.
        if (isReadOnly(error) && idle === pools.idle) {
          // Opens new connections: a session stays read-only if the database was when it began.
          returned = pool(1);
          pools.writes[pools.writes.indexOf(sql)] = returned;
          void sql.close({ timeout: 0 }).catch(() => undefined);
        }
        throw error;
      } finally {
        idle.push(returned);
      }
    },
    async pulse(query) {
      const used = pools;
      const giveUp = () => {
        if (used !== pools) return;
        pools = openAll();
        // Queries that wait on the old connections fail at once.
        void closeAll(used, 0);
      };
      const timer = setTimeout(giveUp, pulseWithinMs);
      using _ = defer(() => clearTimeout(timer));
      const result = await query(used.pulse);
      // Not awaited: a failure is repeated by the next pulse.
      void listenAgain().catch(() => undefined);
      return result;
    },
    async listen(channel, listener) {
      subscription = { channel, listener };
      await listenAgain();
    },
    async close() {
      subscription = undefined;
      await closeAll(pools, 5);
    },
  };
}
