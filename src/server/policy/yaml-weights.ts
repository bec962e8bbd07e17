// How long each part of a YAML text is, in tokens. To compose is to make values of tokens: the library cannot pause while it does, so
// yaml-document.ts composes long lists and maps in parts. Here what cannot be divided is bounded, such as the length of a key.

import type { CST } from "yaml";

/** The tokens of lists, maps and their items, with all that is in them. */
export type Weights = ReadonlyMap<object, number>;

/** Tokens that are composed at once: about a millisecond. */
export const maxPart = 300;

export function isLong(weights: Weights, token: CST.Token): boolean {
  return (weights.get(token) ?? 0) > maxPart;
}

type Faulting = (offset: number, message: string) => void;

export const tooManyEntries = (most: number) =>
  `A policy has at most ${most} entries in all, in lists and below keys. Let rules name groups instead of many single nodes.`;

/**
 * Weighs a document. Also removes blanks and comments of which it has many in a row: each part would be composed with them.
 * Undefined: there are too many entries, and the faults say so. `most`: entries in all, and in one list or map.
 * At each `yield`, other requests may get their chance.
 */
export function* weigh(
  document: CST.Document,
  most: { all: number; list: number },
  fault: Faulting,
): Generator<unknown, Weights | undefined> {
  const weights = new Map<object, number>();
  let visited = 0;
  let entries = 0;
  let isTooMany = false;
  const refuse = (offset: number, message: string) => {
    isTooMany = true;
    fault(offset, message);
  };
  const trimHere = (list: CST.SourceToken[] | undefined) => trim(list, fault);
  function* weightOf(token: CST.Token | null | undefined): Generator<unknown, number> {
    if (++visited % 500 === 0) yield;
    if (token === null || token === undefined) return 0;
    if ("props" in token && token.props.length > maxMarks) fault(token.offset, tooManyMarks);
    if ("end" in token) trimHere(token.end);
    if (!("items" in token)) return 1;
    let weight = 1;
    const size = token.items.length;
    if (size > most.list) refuse(token.offset, `Expected at most ${most.list} entries here.`);
    const hadRoom = entries <= most.all;
    entries += size;
    // Refused once, where the limit is passed.
    if (hadRoom && entries > most.all) refuse(token.offset, tooManyEntries(most.all));
    for (const item of token.items) {
      trimHere(item.start);
      trimHere(item.sep);
      const key = yield* weightOf(item.key);
      if (key > maxPart) fault(item.key?.offset ?? token.offset, "This key is too long.");
      const own = 1 + item.start.length + (item.sep?.length ?? 0) + key + (yield* weightOf(item.value));
      weights.set(item, own);
      weight += own;
    }
    weights.set(token, weight);
    return weight;
  }
  trimHere(document.start);
  trimHere(document.end);
  yield* weightOf(document.value);
  return isTooMany ? undefined : weights;
}

/** Anchors, tags and the like before a value. */
const maxMarks = 16;
const tooManyMarks = "Too many marks stand before one value.";
export const blanks = new Set<CST.Token["type"]>(["space", "newline", "comment"]);

/** Removes blanks and comments from a list with many tokens, in place. */
function trim(list: CST.SourceToken[] | undefined, fault: Faulting): void {
  if (list === undefined || list.length <= maxMarks) return;
  // The last two say whether the value begins in a new line.
  const kept = list.filter(({ type }, at) => !blanks.has(type) || at >= list.length - 2);
  if (kept.length > maxMarks) fault(kept[0]?.offset ?? 0, tooManyMarks);
  list.splice(0, list.length, ...kept.slice(0, maxMarks));
}
