// Which names a name server of the overlay may tell to whom: made by the control plane, obeyed by the node. Pure.

import * as v from "valibot";
import { foreignText } from "../base/text.ts";

/** Nodes of one class see the same nodes. It is a digest: another set of rules has other classes. */
export const ClassName = foreignText(32);

/** Maximum classes: a change of rules compares each class with every other one. */
export const maxPeerClasses = 256;
const several = <T>(schema: v.GenericSchema<unknown, T>) =>
  v.optional(v.pipe(v.array(schema), v.maxLength(maxPeerClasses)), []);

/** Without `all`, a node sees itself and what its class sees. A class that is not listed sees nothing. */
export const NamesForPeers = v.object({
  /** "" on nodes that are no name servers. */
  digest: foreignText(64),
  /** Every node sees all names. */
  all: v.optional(v.boolean()),
  /** The rules make more classes than the maximum: no names are sent. */
  too_many: v.optional(v.boolean()),
  classes: several(ClassName),
  /** For each class a number in hexadecimal digits: bit n is set if it sees class n of the list. */
  sees: several(v.pipe(foreignText(maxPeerClasses / 4), v.regex(/^[0-9a-f]+$/))),
});
export type NamesForPeers = v.InferOutput<typeof NamesForPeers>;

/** `sees`: whether nodes of one class see those of another; symmetric. For work in slices: it compares thousands of pairs. */
export function* tableOfClasses<T>(
  classes: readonly { name: string; of: T }[],
  sees: (one: T, other: T) => boolean,
): Generator<unknown, Pick<NamesForPeers, "classes" | "sees">> {
  const rows = classes.map(() => new Uint8Array(classes.length));
  for (const [at, one] of classes.entries()) {
    for (const [before, other] of classes.slice(0, at + 1).entries()) {
      if (!sees(one.of, other.of)) continue;
      for (const [row, bit] of [
        [at, before],
        [before, at],
      ] as const)
        rows[row]?.fill(1, bit, bit + 1);
    }
    yield;
  }
  return {
    classes: classes.map(({ name }) => name),
    sees: rows.map((row) => BigInt(`0b${row.toReversed().join("")}`).toString(16)),
  };
}

/** Whether a node of one class may learn the names of a node of the other. */
export function mayLearn(
  table: NamesForPeers,
): (asking: string | undefined, other: string | undefined) => boolean {
  if (table.all === true) return () => true;
  const places = new Map(table.classes.map((name, at) => [name, at]));
  const rows = table.sees.map((digits) => BigInt(`0x${digits}`));
  return (asking, other) => {
    const [from, to] = [places.get(asking ?? ""), places.get(other ?? "")];
    if (from === undefined || to === undefined) return false;
    return (((rows[from] ?? 0n) >> BigInt(to)) & 1n) === 1n;
  };
}
