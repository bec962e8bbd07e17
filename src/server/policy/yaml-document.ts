// Reads YAML (and JSON, which is YAML too) into plain values, with the line and column of each. In slices: a long policy
// takes seconds, and other requests must not wait for it. Long lists and maps are composed in parts, at every depth.

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
  // A second document is a fault already.
  const [document] = tokens.filter((token) => token.type === "document");
  if (reading.faults.length > 0) return null;
  const others = tokens.filter(({ type }) => type === "error" || type === "directive" || type === "doc-end");
  for (const token of others.slice(0, enoughFaults)) {
    contents([token], reading);
    yield;
  }
  if (document === undefined) return null;
  const fault = (offset: number, message: string) => reading.fault(offset, message);
  const weights = yield* weigh(document, { all: maxEntries, list: maxListEntries }, fault);
  if (weights === undefined) return null;
  // Composing takes most of the time, so it is done in parts: first what is around the value, for its faults.
  const { value, ...around } = document;
  if (value === undefined) return reading.plain(contents([document], reading), "");
  contents([around], reading);
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
      reading.fault(token.offset, "Expected one document: delete what follows.");
    }
    if (!blanks.has(token.type)) tokens.push(token);
  };
  let count = 0;
  /** How often each of `entryMarks` came. */
  const marks = new Map(entryMarks.map((mark) => [mark, 0]));
  let blanksInARow = 0;
  for (const lexeme of new Lexer().lex(text)) {
    for (const token of parser.next(lexeme)) take(token);
    if (parser.stack.length > maxDepth) reading.fault(parser.offset, "This is nested too deep.");
    blanksInARow = /^[\s#]/.test(lexeme) ? blanksInARow + 1 : 0;
    if (blanksInARow > maxBlanks) reading.fault(parser.offset, "Too many blank lines and comments in a row.");
    const marked = marks.get(lexeme);
    if (marked !== undefined) {
      marks.set(lexeme, marked + 1);
      if (marked >= maxEntries) reading.fault(parser.offset, tooManyEntries(maxEntries));
    }
    if (reading.faults.length > 0) return tokens;
    if (++count % 50 === 0) yield;
  }
  for (const token of parser.end()) take(token);
  yield;
  return tokens;
}

/** Each entry has at most one of each of these: more of one than entries are allowed, and the rest need not be parsed. */
const entryMarks = ["-", ",", ":"];

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

  /** Deduplicates faults: the parts of a list are each composed with the surrounding text. */
  fault(offset: number, message: string): void {
    const key = `${offset} ${message}`;
    if (this.#known.has(key) || this.faults.length >= enoughFaults) return;
    this.#known.add(key);
    this.faults.push({ ...positionOf(this.lines, offset), message });
  }

  /** The plain value of a node. `first`: the number of its first item. Notes the places below `path`. */
  plain(node: unknown, path: string, first = 0): unknown {
    if (!isSeq(node) && !isMap(node) && !isScalar(node)) {
      if (isAlias(node))
        this.fault(node.range?.[0] ?? 0, "YAML aliases are not supported: write the value again.");
      return null;
    }
    const offset = node.range?.[0] ?? 0;
    if (!this.offsets.has(path)) this.offsets.set(path, offset);
    if (node.anchor !== undefined || node.tag?.startsWith("!") === true) {
      this.fault(offset, "Anchors and tags are not supported.");
    }
    if (isScalar(node)) return node.value;
    if (isSeq(node)) return node.items.map((item, at) => this.plain(item, `${path}.${first + at}`));
    const entries = new Map<string, unknown>();
    for (const { key, value } of node.items) {
      const name = isScalar(key) ? wordOf(key.value) : "";
      const inner = path === "" ? name : `${path}.${name}`;
      const place = isScalar(key) ? (key.range?.[0] ?? offset) : offset;
      if (entries.has(name)) this.#twice(place, name);
      else if (isScalar(key) && key.range) this.offsets.set(inner, place);
      // Valibot drops these keys of an entry without an error, but users may choose them as names of groups.
      const isKey = path !== "groups";
      if (isKey && (name in Object.prototype || name === "prototype"))
        this.fault(place, `${name} cannot be a key.`);
      entries.set(name, this.plain(value, inner));
    }
    // Makes own keys, also of `__proto__`.
    return Object.fromEntries(entries);
  }

  /** Adds a part of a list or map to what was read of it before. */
  join(part: unknown, path: string, whole: unknown[] | Map<string, unknown>): void {
    if (Array.isArray(whole)) {
      if (Array.isArray(part)) for (const item of part) whole.push(item);
      return;
    }
    for (const [name, value] of Object.entries(Object(part))) {
      if (whole.has(name)) this.#twice(this.offsets.get(path === "" ? name : `${path}.${name}`) ?? 0, name);
      whole.set(name, value);
    }
  }

  #twice(offset: number, name: string): void {
    this.fault(offset, `The key ${name} is here twice.`);
  }
}

/**
 * Where a token is. The composer takes whole documents only: `wrap` puts a token into a copy of its document in which each
 * list and map around it has this one entry, and `depth` says how many of them are around it.
 */
type Place = { path: string; depth: number; wrap(inner: CST.Token): CST.Document };
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
    // A long entry is alone in its part.
    const [entry] = part.items;
    const value = entry?.value ?? undefined;
    const read =
      entry === undefined || value === undefined || !isLong(weights, value)
        ? composeAtOnce(withItems(token, part.items), place, reading, part.first)
        : yield* composeEntry(token, { at: part.first, entry, value }, place, tools);
    reading.join(read, place.path, whole);
  }
  return Array.isArray(whole) ? whole : Object.fromEntries(whole);
}

/** `first`: the number of the first item, if the token is a part of a list. */
function composeAtOnce(token: CST.Token, { path, depth, wrap }: Place, reading: Reading, first?: number) {
  return reading.plain(within(contents([wrap(token)], reading), depth), path, first);
}

type LongEntry = { at: number; entry: Item; value: CST.Token };

/** A list or map with this entry alone, whose long value is composed in parts; null after a fault. */
function* composeEntry(
  token: Collection,
  { at, entry, value }: LongEntry,
  place: Place,
  tools: Tools,
): Generator<unknown, unknown> {
  const isInList = isSequence(token);
  if (isInList && entry.sep !== undefined) {
    tools.reading.fault(value.offset, "Write this entry of the list in braces.");
    return null;
  }
  // The key without its value, for its place and its faults.
  const { value: _, ...bare } = entry;
  const names = composeAtOnce(withItems(token, [bare]), place, tools.reading, at);
  const name = isInList ? String(at) : (Object.keys(Object(names))[0] ?? "");
  const inside: Place = {
    path: place.path === "" ? name : `${place.path}.${name}`,
    depth: place.depth + 1,
    wrap: (inner) => place.wrap(withItems(token, [{ ...entry, value: inner }])),
  };
  const read = yield* compose(value, inside, tools);
  return isInList ? [read] : Object.fromEntries([[name, read]]);
}

function isSequence(token: Collection): boolean {
  return token.type === "block-seq" || (token.type === "flow-collection" && token.start.source === "[");
}

type Part = { first: number; items: Item[] };

/** The items in parts that take about a millisecond each. A long item is a part of its own. */
function* partsOf(token: Collection, { reading, weights }: Tools): Generator<Part> {
  let part: Part = { first: 0, items: [] };
  let weight = 0;
  for (const [at, item] of token.items.entries()) {
    const own = weights.get(item) ?? 0;
    if (part.items.length > 0 && weight + own > maxPart) {
      yield part;
      part = { first: at, items: [] };
      weight = 0;
    }
    if (token.type === "flow-collection") checkSeparators(token, at, reading);
    part.items.push(part.items.length === 0 ? withoutComma(item) : item);
    weight += own;
  }
  yield part;
}

/** The composer checks for duplicates within a part only. */
function checkSeparators({ items }: CST.FlowCollection, at: number, reading: Reading): void {
  const { start = [], key, sep, value } = items[at] ?? {};
  const offset = start[0]?.offset ?? key?.offset ?? value?.offset ?? 0;
  const isEmpty = !key && sep === undefined && value === undefined;
  if (isEmpty) {
    // The last entry holds what stands before the closing bracket.
    if (at < items.length - 1) reading.fault(offset, "Unexpected empty item.");
  } else if (at > 0 && !start.some(({ type }) => type === "comma"))
    reading.fault(offset, "Missing , between items.");
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
  // The items are of this collection.
  const part = { ...token, items } as Collection;
  return token.type === "flow-collection" ? part : { ...part, offset };
}

/** The node inside of `depth` lists and maps that have one item each. */
function within(node: unknown, depth: number): unknown {
  let inner = node;
  for (let level = 0; level < depth; level++) {
    if (isSeq(inner)) [inner] = inner.items;
    else if (isMap(inner)) inner = inner.items[0]?.value;
  }
  return inner;
}

/** A key may be a number or null. */
function wordOf(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** Composes the tokens, notes the faults, and returns the contents of the last document. */
function contents(tokens: Iterable<CST.Token>, reading: Reading): unknown {
  // The composer compares each key with all others: `plain` looks for keys that are there twice.
  const composer = new Composer({ version: "1.2", uniqueKeys: false, keepSourceTokens: false });
  let found: unknown = null;
  for (const document of composer.compose(tokens)) {
    found = document.contents;
    for (const { pos, message } of [...document.errors, ...document.warnings]) {
      reading.fault(pos[0], sentenceOf(message));
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
