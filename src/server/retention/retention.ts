// Retention: deletes what has ended, and archives old events. One server of several does it, once an hour.

import { messageOf } from "../../base/errors.ts";
import type { Meters } from "../http/meters.ts";
import { inTurn } from "../for-all.ts";
import { defaultRetention, type ServerOptions } from "../options.ts";
import type { Database } from "../store/database.ts";
import { readMeta, setMeta } from "../store/meta.ts";
import { queryAll } from "../store/table.ts";
import { organizations } from "../store/tables/organizations.ts";
import { archiveBatch, type ChainName } from "./archive.ts";
import { deleteEnded } from "./ended-records.ts";

type Deps = Pick<
  ServerOptions,
  "db" | "system" | "clock" | "log" | "secretKey" | "dataDirectory" | "retention" | "accessLifetimeS"
> & {
  meters: Pick<Meters, "archived">;
};

const everyMs = 3_600_000;
const turnKey = "retention_at";
const names = organizations.pick("id", "slug");

/** Does everything that is due, unless a server did so within the hour. `signal`: the server stops. */
export async function retain(deps: Deps, signal: AbortSignal): Promise<void> {
  const { db, system, clock, dataDirectory, retention = defaultRetention } = deps;
  // By a clock that is ahead, certificates have ended that peers still accept: their revocations would be deleted.
  if (!clock.isSettled() || !(await takeTurn(db, system.now()))) return;
  const archive = async () => {
    if (dataDirectory === undefined) return;
    const sql = `SELECT ${names.select()} FROM organizations ORDER BY id`;
    for (const chain of [{ id: null, slug: null }, ...(await queryAll(db, names, sql))])
      await archiveChain({ ...deps, dataDirectory }, chain, signal);
  };
  // The second step also runs if the first one fails.
  await inTurn(() => deleteEnded(deps, retention.eventsS * 1000, () => signal.aborted), archive);
}

/** A failure of one organization leaves its events where they are, and does not stop the others. */
async function archiveChain(
  deps: Deps & { dataDirectory: string },
  chain: ChainName,
  signal: AbortSignal,
): Promise<void> {
  const { log, meters, retention = defaultRetention } = deps;
  try {
    while (!signal.aborted && (await archiveBatch(deps, chain, retention))) meters.archived("ok");
  } catch (error) {
    meters.archived("failed");
    log.error("Cannot archive events; none of them was deleted, and the next try is in an hour", {
      organization: chain.slug ?? "(operator)",
      reason: messageOf(error),
    });
  }
}

/**
 * Whether an hour has passed since the last turn, which then begins now. The lease of the loop excludes other servers. A time
 * in the future comes from a clock that was ahead, and does not count.
 */
function takeTurn(db: Database, now: number): Promise<boolean> {
  return db.writeFor("rows", async (tx) => {
    const last = Number((await readMeta(tx, turnKey)) ?? 0);
    if (last <= now && now - last < everyMs) return false;
    await setMeta(tx, turnKey, String(now));
    return true;
  });
}
