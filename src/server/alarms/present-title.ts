// Titles of alarms about nodes. The stored title is what was told; as long as an alarm is open, it is shown with the nodes
// that are left of it.

import type { Reader } from "../store/database.ts";
import { inParts, places, queryAll } from "../store/table.ts";
import { nodes } from "../store/tables/nodes.ts";
import type { AlarmRow } from "../store/tables/webhooks.ts";
import { awayTitle, isAwayKind, maxNamed } from "./away-causes.ts";
import { certificateTitle } from "./other-causes.ts";

export const namedNode = nodes.pick("id", "name");

export async function namesOfNodes(db: Reader, keys: readonly string[]): Promise<string[]> {
  const names: string[] = [];
  await inParts(keys.map(Number), async (ids) => {
    const sql = `SELECT ${namedNode.select()} FROM nodes WHERE id IN (${places(ids, 1)}) ORDER BY id`;
    names.push(...(await queryAll(db, namedNode, sql, ids)).map(({ name }) => name));
  });
  return names;
}

export const titleOf = (kind: string, names: readonly string[], others: number): string =>
  isAwayKind(kind) ? awayTitle(kind, names, others) : certificateTitle(names);

/** The sentence of a path names its peers, which may have changed without its end: it stays. */
export async function presentTitle(
  db: Reader,
  { kind, heads, rest, title, endedAt }: AlarmRow,
): Promise<string> {
  if (endedAt !== null || (!isAwayKind(kind) && kind !== "certificate")) return title;
  const [named, more] = [heads.slice(0, maxNamed), heads.slice(maxNamed)];
  const names = await namesOfNodes(db, named);
  return names.length < named.length ? title : titleOf(kind, [...names, ...more], rest.length);
}
