// Reads the YAML of hand-made configurations into values that know their lines, as the engine reads it: scalars keep the
// text of the file, because the engine makes texts of most values, and keys may come from anchors and merges (<<).

import { isAlias, isMap, isScalar, isSeq, LineCounter, parseDocument, type Document, type Pair } from "yaml";
import { AppError } from "../../base/errors.ts";
import { isStorable } from "../../base/text.ts";

export type Leaf = { line: number; kind: "leaf"; isNull: boolean; text: string };
export type List = { line: number; kind: "list"; items: Placed[] };
export type Mapping = { line: number; kind: "map"; entries: ReadonlyMap<string, Placed> };
export type Placed = Leaf | List | Mapping;

const maxDepth = 32;
const tooDeep = "it is nested too deep";
/** Aliases may repeat a part of the file very often. */
const maxNodes = 200_000;

/** Throws bad_configuration with the line. */
export function readPlacedYaml(text: string, file: string): Placed {
  const lines = new LineCounter();
  const faultAt = (line: number, why: string): AppError =>
    new AppError("bad_configuration", `Cannot read ${file}:${line}: ${why}`, {
      hint: "Correct the file, or remove it from the directory if no engine reads it.",
    });
  const document = parse(text, lines, faultAt);
  const [fault] = document.errors;
  if (fault !== undefined) {
    // The parser's own limit: its words are those of a failed program.
    if (fault.code === "RESOURCE_EXHAUSTION") throw faultAt(1, tooDeep);
    const [why = ""] = fault.message.split("\n");
    throw faultAt(lines.linePos(fault.pos[0]).line, why.replace(/ at line \d+, column \d+:?$/, ""));
  }
  return new Reader(lines, faultAt).read(document.contents, 1, 0);
}

function parse(text: string, lines: LineCounter, faultAt: (line: number, why: string) => AppError): Document {
  try {
    return parseDocument(text, { lineCounter: lines, logLevel: "silent", schema: "core" });
  } catch (error) {
    if (error instanceof RangeError) throw faultAt(1, tooDeep);
    throw error;
  }
}

class Reader {
  /** Filled in the order of the file: an alias means the anchor before it. */
  readonly #anchors = new Map<string, unknown>();
  readonly #lines: LineCounter;
  readonly #faultAt: (line: number, why: string) => AppError;
  #nodes = 0;

  constructor(lines: LineCounter, faultAt: (line: number, why: string) => AppError) {
    this.#lines = lines;
    this.#faultAt = faultAt;
  }

  /** `near`: the line to name for a node without a place of its own. `depth`: how many lists and maps are around the node. */
  read(node: unknown, near: number, depth: number): Placed {
    const line = this.#lineOf(node) ?? near;
    if (depth > maxDepth) throw this.#faultAt(line, tooDeep);
    if (++this.#nodes > maxNodes) throw this.#faultAt(line, `it has over ${maxNodes} values`);
    if (isAlias(node)) {
      const target = this.#anchors.get(node.source);
      if (target === undefined) throw this.#faultAt(line, `there is no anchor "${node.source}"`);
      return { ...this.read(target, line, depth + 1), line };
    }
    if ((isSeq(node) || isMap(node) || isScalar(node)) && node.anchor !== undefined)
      this.#anchors.set(node.anchor, node);
    if (isSeq(node))
      return { kind: "list", line, items: node.items.map((item) => this.read(item, line, depth + 1)) };
    if (isMap(node)) return { kind: "map", line, entries: this.#entries(node.items, line, depth) };
    if (isScalar(node)) {
      const isNull = node.value === null;
      // `source` has all digits of a number.
      const text = typeof node.value === "string" ? node.value : (node.source ?? String(node.value));
      if (!isStorable(text)) throw this.#faultAt(line, "a text has a null character or a lone surrogate");
      return { kind: "leaf", line, isNull, text: isNull ? "" : text };
    }
    return { kind: "leaf", line, isNull: true, text: "" };
  }

  #entries(pairs: readonly Pair[], near: number, depth: number): Map<string, Placed> {
    const own = new Map<string, Placed>();
    /** From `<<`: own keys come before them. */
    const merged = new Map<string, Placed>();
    for (const { key, value } of pairs) {
      const line = this.#lineOf(key) ?? near;
      const name = this.read(key, line, depth + 1);
      if (name.kind !== "leaf") throw this.#faultAt(line, "a key is a list or a map");
      // An entry has the line of its key, also if its value begins below.
      const placed = { ...this.read(value, line, depth + 1), line };
      if (name.text !== "<<") own.set(name.text, placed);
      else
        for (const each of placed.kind === "list" ? placed.items : [placed])
          if (each.kind === "map") for (const [inner, item] of each.entries) merged.getOrInsert(inner, item);
    }
    for (const [name, item] of merged) own.getOrInsert(name, item);
    return own;
  }

  #lineOf(node: unknown): number | undefined {
    const range = isScalar(node) || isMap(node) || isSeq(node) || isAlias(node) ? node.range : undefined;
    return range === undefined || range === null ? undefined : this.#lines.linePos(range[0]).line;
  }
}
