// Titles and texts of alarms about nodes, as they are shown now. The stored ones are those of the notification; an open alarm is shown
// with the nodes that are left of it, by their current names. `heads` of an alarm: what it is named after. `rest`: what has the same
// cause. Both are keys, which are ids of nodes here.

import type { Reader } from "../store/database.ts";
import { inParts, places, queryAll } from "../store/table.ts";
import { nodes } from "../store/tables/nodes.ts";
import type { AlarmRow } from "../store/tables/webhooks.ts";
import { awayTitle, isAboutAway, isAwayKind, maxNamed, withRest } from "./away-causes.ts";
import { certificateTitle } from "./other-causes.ts";

export const namedNode = nodes.pick("id", "name");

type Names = ReadonlyMap<string, string>;

async function readNames(db: Reader, keys: readonly string[]): Promise<Names> {
  const names = new Map<string, string>();
  await inParts([...new Set(keys)].map(Number), async (ids) => {
    const sql = `SELECT ${namedNode.select()} FROM nodes WHERE id IN (${places(ids, 1)})`;
    for (const { id, name } of await queryAll(db, namedNode, sql, ids)) names.set(String(id), name);
  });
  return names;
}

/** The names of these nodes, in the order of their ids. */
const namesIn = (names: Names, keys: readonly string[]): string[] =>
  keys.toSorted((a, b) => Number(a) - Number(b)).flatMap((key) => names.get(key) ?? []);

export async function namesOfNodes(db: Reader, keys: readonly string[]): Promise<string[]> {
  return namesIn(await readNames(db, keys), keys);
}

export const titleOf = (kind: string, names: readonly string[], others: number): string =>
  isAwayKind(kind) ? awayTitle(kind, names, others) : certificateTitle(names);

/** The keys of nodes that the title names. None if the stored title is shown: of ended alarms, and of paths, whose title names peers. */
const keysInTitle = (row: AlarmRow): string[] =>
  row.endedAt !== null || (!isAboutAway(row) && row.kind !== "certificate")
    ? []
    : row.heads.slice(0, maxNamed);

/** The keys of the nodes that the text names beside the heads. */
const keysInText = (row: AlarmRow): string[] =>
  row.endedAt !== null || !isAboutAway(row) ? [] : row.rest.slice(0, maxNamed);

/** Returns the current title and text of each of these alarms. Reads the names of all at once. */
export async function readWords(
  db: Reader,
  rows: readonly AlarmRow[],
): Promise<(row: AlarmRow) => Pick<AlarmRow, "title" | "text">> {
  const all = await readNames(
    db,
    rows.flatMap((row) => [...keysInTitle(row), ...keysInText(row)]),
  );
  // Titles and texts name the first `maxNamed` nodes, and count the others: for these, the keys stand in place of names.
  const namesOf = (named: readonly string[], keys: readonly string[]) => [
    ...namesIn(all, named),
    ...keys.slice(maxNamed),
  ];
  return (row) => {
    const { kind, heads, rest, title, text, endedAt } = row;
    const names = namesOf(keysInTitle(row), heads);
    // A node that was deleted has no name.
    const isStored = keysInTitle(row).length === 0 || names.length < heads.length;
    return {
      title: isStored ? title : titleOf(kind, names, rest.length),
      text: endedAt === null && isAboutAway(row) ? withRest(text, namesOf(keysInText(row), rest)) : text,
    };
  };
}
