// Reads YAML (and JSON, which is YAML too) into plain values, with the line and column of each. In slices: a long policy
// takes seconds, and other requests must not wait for it.
//
// The parser of the library makes tokens, its composer makes nodes of them, and `Reading` makes plain values of the nodes. The
// composer takes whole documents only, and cannot pause. Therefore long lists and maps are composed in parts, at every depth: a copy
// of the document that holds a few entries only is composed at a time, and the values of the parts are joined.

import { Composer, isAlias, isMap, isScalar, isSeq, LineCounter, Lexer, Parser, type CST } from "yaml";
import { blanks, isLong, maxPart, tooManyEntries, weigh, type Weights } from "./yaml-weights.ts";

/** A fault at a place of the text. */
export type Fault = { line: number; column: number; message: string };

export type PlainDocument = {
  value: unknown;
  faults: Fault[];
  /** Where the value of a path begins, as `rules.3.ports`; the nearest parent's if the path has none. */
  placeOf(path: string): { line: number; column: number };
};

/** Maximum faults in one answer. */
export const maxFaults = 20;
/** Maximum faults that are collected. */
const enoughFaults = 100;
/** Maximum depth. A policy has six levels. */
const maxDepth = 64;
/** Items of lists and keys of maps: in all, and in one list or map. More are refused before they are composed. */
export const maxEntries = 50_000;
const maxListEntries = 10_000;
/** Blanks in a row: a comment and its line end are two. The parser keeps them in one list, which cannot be divided. */
const maxBlanks = 10_000;

export function* readDocument(text: string): Generator<unknown, PlainDocument> {
  const lines = new LineCounter();
  const reading = new Reading(lines);
  const value = yield* readValue(text, reading);
  return {
    value,
    faults: reading.faults.toSorted((a, b) => a.line - b.line || a.column - b.column).slice(0, maxFaults),
    placeOf(path) {
      for (let at = path; ; at = at.slice(0, Math.max(0, at.lastIndexOf(".")))) {
        const offset = reading.offsets.get(at);
        if (offset !== undefined || at === "") return positionOf(lines, offset ?? 0);
      }
    },
  };
}

function* readValue(text: string, reading: Reading): Generator<unknown, unknown> {
  const tokens = yield* parse(text, reading);
  if (reading.faults.length > 0) return null;
  // A second document would be a fault.
  const document = tokens.find((token) => token.type === "document");
  // These are composed for their faults alone.
  const others = tokens.filter(({ type }) => type === "error" || type === "directive" || type === "doc-end");
  for (const token of others.slice(0, enoughFaults)) {
    composeTokens([token], reading);
    yield;
  }
  if (document === undefined) return null;
  const fault = (offset: number, message: string) => reading.addFault(offset, message);
  const weights = yield* weigh(document, { all: maxEntries, list: maxListEntries }, fault);
  if (weights === undefined) return null;
  // First what is around the value, for its faults.
  const { value, ...around } = document;
  if (value === undefined) return reading.plain(composeTokens([document], reading), "");
  composeTokens([around], reading);
  const wrap = (inner: CST.Token): CST.Document => ({ ...around, start: [], end: [], value: inner });
  return yield* compose(value, { path: "", depth: 0, wrap }, { reading, weights });
}

/** The tokens without blanks. Ends at the first fault, or once the text is too large. */
function* parse(text: string, reading: Reading): Generator<unknown, CST.Token[]> {
  const tokens: CST.Token[] = [];
  reading.lines.addNewLine(0);
  const parser = new Parser(reading.lines.addNewLine);
  let documents = 0;
  const take = (token: CST.Token) => {
    if (token.type === "document" && ++documents > 1) {
      reading.addFault(token.offset, "Expected one document: delete what follows.");
    }
    if (!blanks.has(token.type)) tokens.push(token);
  };
  const counts = new LexemeCounts();
  for (const lexeme of new Lexer().lex(text)) {
    for (const token of parser.next(lexeme)) take(token);
    if (parser.stack.length > maxDepth) reading.addFault(parser.offset, "This is nested too deep.");
    const excess = counts.add(lexeme);
    if (excess !== undefined) reading.addFault(parser.offset, excess);
    if (reading.faults.length > 0) return tokens;
    if (counts.all % 50 === 0) yield;
  }
  for (const token of parser.end()) take(token);
  yield;
  return tokens;
}

/** Counts lexemes, so that a text that is too large is refused before its end is parsed. */
class LexemeCounts {
  all = 0;
  #blanksInARow = 0;
  /** An entry has at most one of each of these. */
  readonly #entryMarks = new Map([
    ["-", 0],
    [",", 0],
    [":", 0],
  ]);

  /** Returns what is too much, as a sentence. */
  add(lexeme: string): string | undefined {
    this.all++;
    this.#blanksInARow = /^[\s#]/.test(lexeme) ? this.#blanksInARow + 1 : 0;
    if (this.#blanksInARow > maxBlanks) return "Too many blank lines and comments in a row.";
    const count = this.#entryMarks.get(lexeme);
    if (count === undefined) return undefined;
    this.#entryMarks.set(lexeme, count + 1);
    return count >= maxEntries ? tooManyEntries(maxEntries) : undefined;
  }
}

function positionOf(lines: LineCounter, offset: number): { line: number; column: number } {
  const { line, col } = lines.linePos(offset);
  return { line: Math.max(1, line), column: Math.max(1, col) };
}

/** What is noted while a text is read: faults, and where each value begins (`offsets`, by path). */
class Reading {
  readonly faults: Fault[] = [];
  readonly offsets = new Map<string, number>();
  readonly lines: LineCounter;
  readonly #known = new Set<string>();

  constructor(lines: LineCounter) {
    this.lines = lines;
  }

  /** Each fault once: the text around a list is composed with each of its parts. */
  addFault(offset: number, message: string): void {
    const key = `${offset} ${message}`;
    if (this.#known.has(key) || this.faults.length >= enoughFaults) return;
    this.#known.add(key);
    this.faults.push({ ...positionOf(this.lines, offset), message });
  }

  /** The plain value of a node; null for an empty one. `firstItem`: the number of its first item. Notes the places below `path`. */
  plain(node: unknown, path: string, firstItem = 0): unknown {
    if (isAlias(node))
      this.addFault(node.range?.[0] ?? 0, "YAML aliases are not supported: write the value again.");
    if (!isSeq(node) && !isMap(node) && !isScalar(node)) return null;
    const offset = node.range?.[0] ?? 0;
    this.offsets.getOrInsert(path, offset);
    if (node.anchor !== undefined || node.tag?.startsWith("!") === true) {
      this.addFault(offset, "Anchors and tags are not supported.");
    }
    if (isScalar(node)) return node.value;
    if (isSeq(node)) return node.items.map((item, at) => this.plain(item, `${path}.${firstItem + at}`));
    const entries = new Map<string, unknown>();
    for (const { key, value } of node.items) {
      const name = isScalar(key) ? nameOfKey(key.value) : "";
      const innerPath = innerPathOf(path, name);
      const keyOffset = isScalar(key) ? (key.range?.[0] ?? offset) : offset;
      if (entries.has(name)) this.#addRepeatedKey(keyOffset, name);
      else if (isScalar(key) && key.range) this.offsets.set(innerPath, keyOffset);
      // Valibot drops these keys without an error. Groups may have such names.
      const isGroupName = path === "groups";
      if (!isGroupName && (name in Object.prototype || name === "prototype"))
        this.addFault(keyOffset, `${name} cannot be a key.`);
      entries.set(name, this.plain(value, innerPath));
    }
    // Makes own keys, also of `__proto__`.
    return Object.fromEntries(entries);
  }

  /** Adds a part of a list or map to `whole`: the parts before it. */
  join(part: unknown, path: string, whole: unknown[] | Map<string, unknown>): void {
    if (Array.isArray(whole)) {
      if (Array.isArray(part)) for (const item of part) whole.push(item);
      return;
    }
    for (const [name, value] of Object.entries(Object(part))) {
      if (whole.has(name)) this.#addRepeatedKey(this.offsets.get(innerPathOf(path, name)) ?? 0, name);
      whole.set(name, value);
    }
  }

  #addRepeatedKey(offset: number, name: string): void {
    this.addFault(offset, `The key ${name} is here twice.`);
  }
}

/** The path of an entry; "" is the path of the document's value. */
const innerPathOf = (path: string, name: string) => (path === "" ? name : `${path}.${name}`);

/**
 * Where a token is. `wrap` puts it, or a part of it, into a copy of its document in which each list and map around it has this one
 * entry; `depth` says how many of them are around it.
 */
type Place = { path: string; depth: number; wrap(inner: CST.Token): CST.Document };
/** `weights`: the number of tokens of each list, map and item, by which long ones are found (yaml-weights.ts). */
type Tools = { reading: Reading; weights: Weights };
type Collection = CST.BlockMap | CST.BlockSequence | CST.FlowCollection;
type Item = Collection["items"][number];

/** The value of a token: a long list or map is composed in parts. */
function* compose(token: CST.Token, place: Place, tools: Tools): Generator<unknown, unknown> {
  const { reading, weights } = tools;
  if (!isCollection(token) || !isLong(weights, token)) return composeAtOnce(token, place, reading);
  const whole = isSequence(token) ? [] : new Map<string, unknown>();
  for (const part of partsOf(token, tools)) {
    if (reading.faults.length >= enoughFaults) return null;
    yield;
    const longEntry = longEntryOf(part, weights);
    const values =
      longEntry === undefined
        ? composeAtOnce(withItems(token, part.items), place, reading, part.first)
        : yield* composeEntry(token, longEntry, place, tools);
    reading.join(values, place.path, whole);
  }
  return Array.isArray(whole) ? whole : Object.fromEntries(whole);
}

/** `first`: the number of the first item, if the token is a part of a list. */
function composeAtOnce(token: CST.Token, { path, depth, wrap }: Place, reading: Reading, first?: number) {
  return reading.plain(within(composeTokens([wrap(token)], reading), depth), path, first);
}

type LongEntry = { at: number; entry: Item; value: CST.Token };

/** The entry with a long value, which is alone in its part. Undefined: the part can be composed at once. */
function longEntryOf({ first, items }: Part, weights: Weights): LongEntry | undefined {
  const [entry] = items;
  const value = entry?.value ?? undefined;
  if (entry === undefined || value === undefined || !isLong(weights, value)) return undefined;
  return { at: first, entry, value };
}

/** A list or map with this entry alone, whose long value is composed in parts; null after a fault. */
function* composeEntry(
  token: Collection,
  { at, entry, value }: LongEntry,
  place: Place,
  tools: Tools,
): Generator<unknown, unknown> {
  const isInList = isSequence(token);
  if (isInList && entry.sep !== undefined) {
    tools.reading.addFault(value.offset, "Write this entry of the list in braces.");
    return null;
  }
  // The key without its value, for its place and its faults.
  const { value: _, ...bare } = entry;
  const keyAlone = composeAtOnce(withItems(token, [bare]), place, tools.reading, at);
  const name = isInList ? String(at) : (Object.keys(Object(keyAlone))[0] ?? "");
  const inside: Place = {
    path: innerPathOf(place.path, name),
    depth: place.depth + 1,
    wrap: (inner) => place.wrap(withItems(token, [{ ...entry, value: inner }])),
  };
  const plainValue = yield* compose(value, inside, tools);
  return isInList ? [plainValue] : Object.fromEntries([[name, plainValue]]);
}

function isSequence(token: Collection): boolean {
  return token.type === "block-seq" || (token.type === "flow-collection" && token.start.source === "[");
}

/** `first`: the number of the first item in its list or map. */
type Part = { first: number; items: Item[] };

/** The items in parts that take about a millisecond each. A long item is a part of its own. */
function* partsOf(token: Collection, { reading, weights }: Tools): Generator<Part> {
  let part: Part = { first: 0, items: [] };
  let weight = 0;
  for (const [at, item] of token.items.entries()) {
    const itemWeight = weights.get(item) ?? 0;
    if (part.items.length > 0 && weight + itemWeight > maxPart) {
      yield part;
      part = { first: at, items: [] };
      weight = 0;
    }
    if (token.type === "flow-collection") checkSeparators(token, at, reading);
    part.items.push(part.items.length === 0 ? withoutComma(item) : item);
    weight += itemWeight;
  }
  yield part;
}

/** Checks the comma before an item: the composer sees parts only, each without the comma at its beginning. */
function checkSeparators({ items }: CST.FlowCollection, at: number, reading: Reading): void {
  const { start = [], key, sep, value } = items[at] ?? {};
  const offset = start[0]?.offset ?? key?.offset ?? value?.offset ?? 0;
  const isEmpty = !key && sep === undefined && value === undefined;
  if (isEmpty) {
    // The last entry holds what stands before the closing bracket.
    if (at < items.length - 1) reading.addFault(offset, "Unexpected empty item.");
  } else if (at > 0 && !start.some(({ type }) => type === "comma"))
    reading.addFault(offset, "Missing , between items.");
}

function withoutComma(item: Item): Item {
  return { ...item, start: item.start.filter(({ type }) => type !== "comma") };
}

function isCollection(token: CST.Token): token is Collection {
  return token.type === "block-map" || token.type === "block-seq" || token.type === "flow-collection";
}

function withItems(token: Collection, items: readonly Item[]): Collection {
  const [first] = items;
  const offset = first?.start[0]?.offset ?? first?.key?.offset ?? token.offset;
  // The items are of this collection. One in brackets begins with its bracket, any other with its first item.
  const part = { ...token, items } as Collection;
  return token.type === "flow-collection" ? part : { ...part, offset };
}

/** The node inside of `depth` lists and maps that have one item each. */
function within(node: unknown, depth: number): unknown {
  let inner = node;
  for (let level = 0; level < depth; level++) {
    if (isSeq(inner)) inner = inner.items[0];
    else if (isMap(inner)) inner = inner.items[0]?.value;
  }
  return inner;
}

/** A key may be a number or null. */
function nameOfKey(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** Composes the tokens, notes the faults, and returns the contents of the last document. */
function composeTokens(tokens: Iterable<CST.Token>, reading: Reading): unknown {
  // The composer compares each key with all others: `plain` looks for keys that are there twice.
  const composer = new Composer({ version: "1.2", uniqueKeys: false, keepSourceTokens: false });
  let found: unknown = null;
  for (const document of composer.compose(tokens)) {
    found = document.contents;
    for (const { pos, message } of [...document.errors, ...document.warnings]) {
      reading.addFault(pos[0], sentenceOf(message));
    }
  }
  return found;
}

/** The parser's messages, as sentences. */
function sentenceOf(message: string): string {
  const [line = message] = message.split("\n");
  const text = line.replace(/ at line \d+, column \d+:?$/, "").trim();
  if (text.startsWith("Tabs are not allowed")) return "Tabs are not allowed as indentation: use spaces.";
  return /[.!?]$/.test(text) ? text : `${text}.`;
}
