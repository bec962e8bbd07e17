// Compares two seals on a signer's machine: which nodes gain or lose access to which other nodes. Of unprivileged nodes, a seal
// contains only groups and names, and the control plane chooses which machine has them. So one of the compared peers is "anyone who
// has the control plane". The comparison assumes that nodes enforce both seals.

import type { SealedState } from "../../protocol/seals/seal.ts";
import { inSlices } from "../http/heavy-work.ts";
import { TooMuchWork } from "../policy/comparison-limit.ts";
import type { NodeClass } from "../policy/node-classes.ts";
import { isNothing, showAccess, type Access } from "../policy/packets.ts";
import { makeReach, type Change } from "../policy/reach.ts";
import { ownersIn, partiesOf } from "./seal-parties.ts";
import { anyoneId, translate } from "./seal-translation.ts";

/**
 * One line for each access. `legend`: the names of nodes that lines only number. `reason`: there are too many pairs; each rule that
 * changes is still shown.
 */
export type PairDifferences = { gained: string[]; lost: string[]; legend: string[]; reason?: string };

const none: PairDifferences = { gained: [], lost: [], legend: [] };

/** `before`: undefined for the first seal. */
export async function pairDifferences(
  before: SealedState | undefined,
  after: SealedState,
): Promise<PairDifferences> {
  // The comparison of a large organization takes seconds.
  if (before !== undefined && Bun.deepEquals(before, after)) return none;
  try {
    return wordsOf(await inSlices(changesBetween(before, after)));
  } catch (error) {
    if (!(error instanceof TooMuchWork)) throw error;
    const reason = "! There are too many pairs of nodes to compare: read each rule that changes";
    return { ...none, reason };
  }
}

function* changesBetween(
  before: SealedState | undefined,
  after: SealedState,
): Generator<unknown, readonly Change[]> {
  const states = [...(before === undefined ? [] : [before]), after];
  const [parties, owners] = [partiesOf(states), ownersIn(states)];
  const policyBefore = yield* translate(before, parties, owners);
  const policyAfter = yield* translate(after, parties, owners);
  const reach = yield* makeReach(policyBefore, policyAfter);
  return yield* reach.changes();
}

/** Names in a line. Longer lists are written once, in the legend. */
const namedInLine = 8;

function wordsOf(changes: readonly Change[]): PairDifferences {
  /** The numbers in the legend of classes with many names. */
  const numbers = new Map<NodeClass, number>();
  const label = (nodeClass: NodeClass) => {
    const names = namesIn(nodeClass);
    if (names.length <= namedInLine) return names.join(", ");
    return `${names.length} nodes [${numbers.getOrInsert(nodeClass, numbers.size + 1)}]`;
  };
  const lines = (which: "gains" | "loses") => {
    const found = changes.filter((each) => !isNothing(each[which]));
    // Those of `anyone` first.
    const sorted = found.toSorted((a, b) => Number(isAboutAnyone(b)) - Number(isAboutAnyone(a)));
    return linesOf(sorted, which, label);
  };
  const [gained, lost] = [lines("gains"), lines("loses")];
  // After the lines, which number the classes.
  const legend = [...numbers].map(([nodeClass, number]) => `[${number}]: ${namesIn(nodeClass).join(", ")}`);
  return { gained, lost, legend };
}

const namesIn = ({ members }: NodeClass): string[] => [...new Set(members.map(({ name }) => name))];
const isAboutAnyone = ({ from, to }: Change): boolean =>
  [from, to].some(({ members }) => members.some(({ id }) => id === anyoneId));

/** One line for all that a class reaches in the same way. */
function linesOf(
  changes: readonly Change[],
  which: "gains" | "loses",
  label: (nodeClass: NodeClass) => string,
): string[] {
  const words = (access: Access) => showAccess(access).join(", ");
  const lines = Map.groupBy(changes, (each) => `${label(each.from)}: ${words(each[which])}`);
  return [...lines.values()].flatMap((ofLine) => {
    const [first] = ofLine;
    if (first === undefined) return [];
    const to = ofLine.map((each) => label(each.to)).join(", ");
    return [`${words(first[which])} from ${label(first.from)} to ${to}`];
  });
}
