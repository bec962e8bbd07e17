// Which names a name server of the overlay may tell to whom: made by the control plane, obeyed by the node. Pure.

import * as v from "valibot";
import { foreignText } from "../base/text.ts";
import { listOf } from "./values.ts";

/** Nodes of one class see the same nodes. It is a digest: another set of rules has other classes. */
export const ClassName = foreignText(32);

/** Maximum classes: a change of rules compares each class with every other one. */
export const maxPeerClasses = 256;
const ofClasses = <const S extends v.GenericSchema>(schema: S) =>
  v.optional(listOf(schema, maxPeerClasses), []);

/** Unless `all` is set, a node sees itself and what its class sees. A class that is not listed sees nothing. */
export const NamesForPeers = v.object({
  /** Of the table: a node that sends the same one back is sent no table again. "" on nodes that are no name servers. */
  digest: foreignText(64),
  /** Every node sees all names. */
  all: v.optional(v.boolean()),
  /** The rules make more classes than the maximum: no names are sent. */
  too_many: v.optional(v.boolean()),
  classes: ofClasses(ClassName),
  /** For each class a number in hexadecimal digits: bit n is set if it sees class n of the list. */
  sees: ofClasses(v.pipe(foreignText(maxPeerClasses / 4), v.regex(/^[0-9a-f]+$/))),
});
export type NamesForPeers = v.InferOutput<typeof NamesForPeers>;

/**
 * The table of which class sees which. `of`: what stands for a class in `sees`, which must be symmetric. A generator, so that
 * the server can do other work between the slices: it compares thousands of pairs.
 */
export function* tableOfClasses<T>(
  classes: readonly { name: string; of: T }[],
  sees: (one: T, other: T) => boolean,
): Generator<unknown, Pick<NamesForPeers, "classes" | "sees">> {
  // rows[n] bit m: whether class n sees class m.
  const rows = classes.map(() => 0n);
  const setBit = (row: number, bit: number) => {
    rows[row] = (rows[row] ?? 0n) | (1n << BigInt(bit));
  };
  for (const [row, one] of classes.entries()) {
    for (const [column, other] of classes.slice(0, row + 1).entries()) {
      if (!sees(one.of, other.of)) continue;
      setBit(row, column);
      setBit(column, row);
    }
    yield;
  }
  return { classes: classes.map(({ name }) => name), sees: rows.map((row) => row.toString(16)) };
}

/**
 * Makes the function that says whether a node of the class `asking` may learn the names of a node of the class `other`. Undefined: a
 * node without a class.
 */
export function learningIn(
  table: NamesForPeers,
): (asking: string | undefined, other: string | undefined) => boolean {
  if (table.all === true) return () => true;
  const indexes = new Map(table.classes.map((name, index) => [name, index]));
  const rows = table.sees.map((digits) => BigInt(`0x${digits}`));
  return (asking, other) => {
    const [from, to] = [indexes.get(asking ?? ""), indexes.get(other ?? "")];
    if (from === undefined || to === undefined) return false;
    return (((rows[from] ?? 0n) >> BigInt(to)) & 1n) === 1n;
  };
}
