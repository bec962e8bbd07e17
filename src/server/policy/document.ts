// Reads YAML (and JSON, which is YAML too) into plain values, with the line and column of each. In slices: a policy of 500
// rules takes tens of milliseconds, and other requests must not wait for it.

import { Composer, isAlias, isMap, isScalar, isSeq, LineCounter, Lexer, Parser, type CST } from "yaml";

/** A fault at a place of the text. */
export type Fault = { line: number; column: number; message: string };

export type PlainDocument = {
  value: unknown;
  faults: Fault[];
  /** Where the value of a path begins, as `rules.3.ports`; the nearest parent's if the path has none. */
  placeOf(path: string): { line: number; column: number };
};

const maxFaults = 20;
/** Entries that are composed at once: about a millisecond. */
const batch = 20;

export function* readDocument(text: string): Generator<unknown, PlainDocument> {
  const lines = new LineCounter();
  const reading = new Reading(lines);
  const tokens: CST.Token[] = [];
  lines.addNewLine(0);
  const parser = new Parser(lines.addNewLine);
  let count = 0;
  for (const lexeme of new Lexer().lex(text)) {
    for (const token of parser.next(lexeme)) tokens.push(token);
    if (++count % 50 === 0) yield;
  }
  for (const token of parser.end()) tokens.push(token);
  yield;
  const value = yield* compose(tokens, reading);
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

function positionOf(lines: LineCounter, offset: number): { line: number; column: number } {
  const { line, col } = lines.linePos(offset);
  return { line: Math.max(1, line), column: Math.max(1, col) };
}

class Reading {
  readonly faults: Fault[] = [];
  readonly offsets = new Map<string, number>();
  readonly #lines: LineCounter;

  constructor(lines: LineCounter) {
    this.#lines = lines;
  }

  fault(offset: number, message: string): void {
    this.faults.push({ ...positionOf(this.#lines, offset), message });
  }

  /** The plain value of a node. `first`: the number of its first item. Notes the places below `path`. */
  plain(node: unknown, path: string, first = 0): unknown {
    if (!isSeq(node) && !isMap(node) && !isScalar(node)) {
      if (isAlias(node))
        this.fault(node.range?.[0] ?? 0, "Aliases are not supported: write the value again.");
      return null;
    }
    const offset = node.range?.[0] ?? 0;
    if (!this.offsets.has(path)) this.offsets.set(path, offset);
    if (node.anchor !== undefined || node.tag?.startsWith("!") === true) {
      this.fault(offset, "Anchors and tags are not supported.");
    }
    if (isScalar(node)) return node.value;
    if (isSeq(node)) return node.items.map((item, at) => this.plain(item, `${path}.${first + at}`));
    const entries: [string, unknown][] = [];
    for (const { key, value } of node.items) {
      const name = isScalar(key) ? wordOf(key.value) : "";
      const inner = path === "" ? name : `${path}.${name}`;
      if (isScalar(key) && key.range) this.offsets.set(inner, key.range[0]);
      // Valibot drops these without an error.
      if (name in Object.prototype || name === "prototype") this.fault(offset, `${name} cannot be a key.`);
      entries.push([name, this.plain(value, inner)]);
    }
    // Makes own keys, also of `__proto__`.
    return Object.fromEntries(entries);
  }
}

/** Composes the entries of the document's map one by one, and long lists and maps among them in parts. */
function* compose(tokens: readonly CST.Token[], reading: Reading): Generator<unknown, unknown> {
  const documents = tokens.filter((token) => token.type === "document");
  const [only, second] = documents;
  if (second !== undefined) reading.fault(second.offset, "Expected one document: delete what follows.");
  if (only?.value?.type !== "block-map") return reading.plain(contents(tokens, reading), "");
  const top = only.value;
  reading.offsets.set("", top.offset);
  for (const token of tokens) if (token.type !== "document") contents([token], reading);
  const values = new Map<string, unknown>();
  for (const item of top.items) {
    const parts = partsOf(item.value);
    for (const [at, part] of parts.entries()) {
      // Without `value`, an item without one stays as it is.
      const one = (part === undefined ? item : { ...item, value: part }) as (typeof top.items)[number];
      const offset = item.key?.offset ?? top.offset;
      const map = contents([{ ...only, value: { ...top, offset, items: [one] } }], reading);
      const [pair] = isMap(map) ? map.items : [];
      const key = isScalar(pair?.key) ? pair.key : undefined;
      const name = wordOf(key?.value);
      if (name in Object.prototype) reading.fault(key?.range?.[0] ?? 0, `${name} cannot be a key.`);
      if (at === 0 && values.has(name)) reading.fault(key?.range?.[0] ?? 0, `The key ${name} is here twice.`);
      if (at === 0 && key?.range) reading.offsets.set(name, key.range[0]);
      const value = reading.plain(pair?.value, name, at * batch);
      values.set(name, at === 0 ? value : joined(values.get(name), value, name, reading));
      yield;
    }
  }
  return Object.fromEntries(values);
}

/** A key may be a number or null. */
function wordOf(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}

function partsOf(value: CST.Token | null | undefined): (CST.Token | undefined)[] {
  if (value?.type !== "block-seq" && value?.type !== "block-map") return [undefined];
  const parts: CST.Token[] = [];
  for (let at = 0; at < value.items.length; at += batch) {
    const items = value.items.slice(at, at + batch);
    const [first] = items;
    const offset = first?.start[0]?.offset ?? first?.key?.offset ?? value.offset;
    parts.push({ ...value, offset, items } as typeof value);
  }
  return parts;
}

function joined(before: unknown, more: unknown, path: string, reading: Reading): unknown {
  if (Array.isArray(before) && Array.isArray(more)) return [...before, ...more];
  const [known, added] = [Object(before), Object(more)];
  for (const key of Object.keys(added)) {
    if (Object.hasOwn(known, key)) {
      reading.fault(reading.offsets.get(`${path}.${key}`) ?? 0, `The key ${key} is here twice.`);
    }
  }
  return Object.fromEntries([...Object.entries(known), ...Object.entries(added)]);
}

function contents(tokens: Iterable<CST.Token>, reading: Reading): unknown {
  const composer = new Composer({ version: "1.2", uniqueKeys: true, keepSourceTokens: false });
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
  return /[.!?]$/.test(text) ? text : `${text}.`;
}
