// Removes revoked nodes from open alarms. evaluate.ts calls it for each alarm, before it looks what is left of its cause.

import type { Database } from "../store/database.ts";
import { inParts, places, queryAll } from "../store/table.ts";
import { alarms, type AlarmRow } from "../store/tables/webhooks.ts";
import { isAboutAway, namesOf } from "./away-causes.ts";
import { pathsTitle } from "./path-causes.ts";
import { namedNode, namesOfNodes, titleOf } from "./present-title.ts";

export type FollowedAlarm = AlarmRow & {
  /** If all of its nodes were revoked: the sentence with which it ends. */
  revoked?: string;
};

/**
 * Removes revoked nodes from an alarm and its title. Its `heads` are the keys of what it is named after, its `rest` of what has the
 * same cause. `silent`: the keys of silent nodes, none of which is revoked.
 */
export async function withoutRevoked(
  db: Database,
  alarm: AlarmRow,
  silent: ReadonlySet<string>,
): Promise<FollowedAlarm> {
  const { id, kind } = alarm;
  const isOfNodes = isAboutAway(alarm) || kind === "path" || kind === "certificate";
  /** The names of revoked nodes by key. */
  const gone = new Map<string, string>();
  // The keys of these kinds are ids of nodes.
  const ids = isOfNodes ? [...alarm.heads, ...alarm.rest].filter((key) => !silent.has(key)).map(Number) : [];
  await inParts(ids, async (some) => {
    const sql = `SELECT ${namedNode.select()} FROM nodes WHERE id IN (${places(some, 1)}) AND state <> 'active'`;
    for (const node of await queryAll(db, namedNode, sql, some)) gone.set(String(node.id), node.name);
  });
  if (gone.size === 0) return alarm;
  const heads = alarm.heads.filter((key) => !gone.has(key));
  // An alarm is named after its heads, and ends without them.
  if (heads.length === 0) {
    const names = alarm.heads.flatMap((key) => gone.get(key) ?? []);
    return {
      ...alarm,
      revoked: `${namesOf(names)} ${names.length === 1 ? "was" : "were"} deleted or revoked`,
    };
  }
  const rest = alarm.rest.filter((key) => !gone.has(key));
  const names = await namesOfNodes(db, heads);
  const title = kind === "path" ? pathsTitle(names) : titleOf(kind, names, rest.length);
  const change = { heads, rest, title };
  await db.writeFor({ org: alarm.orgId }, (tx) => alarms.update(tx, { id, endedAt: null }, change));
  return { ...alarm, ...change };
}
