// The data of a name server of the overlay: all names, each with the class of its node, and which classes see which. Nodes to which
// the same rules apply are one class (visibility.ts). Pure.

import { maxPeerClasses, tableOfClasses, type NamesForPeers } from "../../protocol/names-for-peers.ts";
import type { NamesClass, Visibility } from "./visibility.ts";
import { hash } from "node:crypto";

export const noTable: NamesForPeers = { digest: "", classes: [], sees: [] };

/** The class as name servers know it. Undefined if there are no classes: every node sees all names. */
export function classNameOf(visibility: Visibility, { key }: NamesClass): string | undefined {
  if (visibility.toAll) return undefined;
  return hash("sha256", `${visibility.digest()} ${key}`, "hex").slice(0, 16);
}

/** The table. `classes`: of all nodes that have names, in any order. For work in slices. */
export function* tableFor(
  visibility: Visibility,
  classes: Iterable<NamesClass>,
): Generator<unknown, NamesForPeers> {
  if (visibility.toAll) return { ...noTable, digest: "all", all: true };
  const byName = new Map<string, NamesClass>();
  for (const nodeClass of classes) {
    byName.set(classNameOf(visibility, nodeClass) ?? "", nodeClass);
    if (byName.size > maxPeerClasses) return { ...noTable, digest: "too-many", too_many: true };
  }
  const sorted = [...byName]
    .map(([name, nodeClass]) => ({ name, of: nodeClass }))
    .sort((a, b) => (a.name < b.name ? -1 : 1));
  const table = yield* tableOfClasses(sorted, (one, other) => visibility.sees(one, other));
  return { ...table, digest: hash("sha256", JSON.stringify(table), "hex").slice(0, 32) };
}
