// How the replicas on one PostgreSQL hear of one another's commits: each leaves rows in `notices` and rings. What was
// missed while a connection was down is read when it stands again, so that nothing is ever lost.

import { numberOf, textOf, type Channel, type Reader } from "./database.ts";

export type Notice = { channel: Channel; payload: string };

/** A bell that was not heard costs this at most. */
const lookAtLeastEveryMs = 2000;

/**
 * Tells of each notice that is not our own. `subscribe` rings when somebody commits, and whenever it could have missed
 * that. `keepOwn` takes the ids of what this process has left itself, before their commit.
 */
export async function watchNotices(
  reader: Reader,
  tell: (notice: Notice) => void,
  subscribe: (ring: () => void) => Promise<() => Promise<void>>,
): Promise<{ keepOwn(id: number): void; stop(): Promise<void> }> {
  const own = new Set<number>();
  const newest = await reader.get("SELECT coalesce(max(id), 0) AS id FROM notices");
  let last = numberOf(newest ?? {}, "id");
  let looking: Promise<void> | undefined;
  let rung = false;

  const look = async () => {
    do {
      rung = false;
      const sql = "SELECT id, channel, payload FROM notices WHERE id > $1 ORDER BY id";
      for (const row of await reader.all(sql, [last])) {
        last = numberOf(row, "id");
        const channel = channelOf(textOf(row, "channel"));
        if (!own.has(last) && channel !== undefined) tell({ channel, payload: textOf(row, "payload") });
      }
      for (const id of own) if (id <= last) own.delete(id);
    } while (rung);
  };
  const ring = () => {
    rung = true;
    // While the database does not answer nothing can be heard; the timer and the new subscription look again.
    looking ??= look()
      .catch(() => undefined)
      .finally(() => (looking = undefined));
  };
  const unsubscribe = await subscribe(ring);
  const timer = setInterval(ring, lookAtLeastEveryMs);
  timer.unref();
  return {
    keepOwn: (id) => void own.add(id),
    async stop() {
      clearInterval(timer);
      await unsubscribe().catch(() => undefined);
      await looking;
    },
  };
}

function channelOf(text: string): Channel | undefined {
  return text === "auth" || text === "organization" || text === "node" ? text : undefined;
}
