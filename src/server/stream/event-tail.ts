// Follows the audit logs of the organizations that a console shows. One loop for each organization reads new events and
// hands them to all its streams, whichever replica wrote them: the database says what is new, so none can be missed.

import { listEvents, listEventsBefore } from "../audit/read.ts";
import type { Event } from "../../api/events.ts";
import type { Contact, Reports } from "../nodes/contact/reports.ts";
import type { Reader } from "../store/database.ts";
import type { System } from "../../base/system.ts";

/** A change is on every open console within this time. */
const lookEveryMs = 500;
/** Events that are read at once. */
const limit = 200;

/** Gets new events, oldest first, and the nodes that were in contact with this server. */
export type Follower = (events: readonly Event[], contacts: readonly Contact[]) => void;

export type Tail = {
  /** The id of the newest event of the organization, 0 without one. */
  newest(orgId: number): Promise<number>;
  /**
   * Hands over events that are newer than the first look. `begun` resolves at that look: the caller then reads what is older.
   * `leave`: ends it.
   */
  follow(orgId: number, follower: Follower): { begun: Promise<void>; leave(): void };
};

type Deps = {
  db: Reader;
  system: Pick<System, "sleep">;
  reports: Pick<Reports, "watch">;
  /** Called when a look failed, which is repeated, or when a follower threw, which misses these events. */
  failed(error: unknown): void;
};
/** The loop of one organization. It ends when its last follower leaves. */
type Loop = { followers: Set<Follower>; closing: AbortController; begun: PromiseWithResolvers<void> };

export function makeTail({ db, system, reports, failed }: Deps): Tail {
  const loops = new Map<number, Loop>();
  const newest = async (orgId: number) =>
    (await listEventsBefore(db, orgId, { before: Number.MAX_SAFE_INTEGER, limit: 1 })).at(-1)?.id ?? 0;

  /** Events are not read again, so a follower that throws must not keep the others from theirs. */
  const handOver = (followers: Iterable<Follower>, events: Event[], contacts: readonly Contact[]) => {
    for (const follower of followers) {
      try {
        follower(events, contacts);
      } catch (error) {
        failed(error);
      }
    }
  };
  const run = async (orgId: number, { followers, closing, begun }: Loop) => {
    /** The id of the newest event that was read. */
    let last: number | undefined;
    const watch = reports.watch(orgId);
    closing.signal.addEventListener("abort", watch.end);
    while (!closing.signal.aborted) {
      try {
        last ??= await newest(orgId);
        begun.resolve();
        const { events } = await listEvents(db, orgId, { after: last, limit });
        last = events.at(-1)?.id ?? last;
        const contacts = watch.take();
        if (events.length + contacts.length > 0) handOver(followers, events, contacts);
        // There are more: read them at once.
        if (events.length === limit) continue;
      } catch (error) {
        // The database is away: the next turn reads what was recorded meanwhile.
        failed(error);
      }
      await system.sleep(lookEveryMs, closing.signal).catch(() => undefined);
    }
  };

  return {
    newest,
    follow(orgId, follower) {
      const known = loops.get(orgId);
      const loop: Loop = known ?? {
        followers: new Set(),
        closing: new AbortController(),
        begun: Promise.withResolvers(),
      };
      loop.followers.add(follower);
      if (known === undefined) {
        loops.set(orgId, loop);
        void run(orgId, loop);
      }
      const leave = () => {
        loop.followers.delete(follower);
        if (loop.followers.size > 0) return;
        loop.closing.abort();
        if (loops.get(orgId) === loop) loops.delete(orgId);
      };
      return { begun: loop.begun.promise, leave };
    },
  };
}
