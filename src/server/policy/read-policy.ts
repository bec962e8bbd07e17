// Reads a policy file, with the line and column of each fault. At each `yield` other requests may run (http/heavy-work.ts).

import * as v from "valibot";
import { maxPolicyBytes } from "../../api/policy.ts";
import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import { maxFaults, readDocument, type Fault, type PlainDocument } from "./yaml-document.ts";
import { listLimits, PolicyFile } from "./policy-file.ts";

export type ParsedPolicy = { file: PolicyFile; placeOf: PlainDocument["placeOf"] };

/** Throws payload_too_large. */
export function requireShort(text: string): void {
  const bytes = Buffer.byteLength(text);
  if (bytes <= maxPolicyBytes) return;
  throw new AppError(
    "payload_too_large",
    `The policy has ${Math.ceil(bytes / 1024)} KiB; the maximum is ${maxPolicyBytes / 1024} KiB.`,
    {
      hint: "Let rules name groups or networks instead of many single nodes, and let registration tokens give groups.",
    },
  );
}

/** Throws validation_failed. */
export function requireText(text: string): void {
  // The decoder replaces invalid UTF-8 by U+FFFD.
  const at = text.search(/[\0\uFFFD]/);
  if (at < 0) return;
  const line = text.slice(0, at).split("\n").length;
  const [fault, hint] =
    text[at] === "\0"
      ? ["has a null character", "Delete it. If there are many, the file is UTF-16: save it as UTF-8."]
      : ["is not text in UTF-8", "Save the file as UTF-8 with an editor, or write the letter again."];
  throw new AppError("validation_failed", `The policy is not valid. Line ${line} ${fault}.`, { hint });
}

/** Finds conflict markers of a merge: YAML's own messages about them do not help. */
function conflictsIn(text: string): Fault[] | undefined {
  const [mark] = text.matchAll(/^(<{7}|={7}|>{7})( |\r?$)/gm);
  if (mark === undefined) return undefined;
  const line = text.slice(0, mark.index).split("\n").length;
  return [
    { line, column: 1, message: "Git left a merge conflict here: keep one side, and delete the marks." },
  ];
}

/** Whether it is a policy of Tailscale or headscale. Theirs may have comments and tabs, which are faults in YAML. */
function isForeign(text: string, { value, faults }: Pick<PlainDocument, "value" | "faults">): boolean {
  if (faults.length > 0) return /^\s*(\/[/*]|\{)/.test(text) && /"(acls|grants|tagOwners)"\s*:/i.test(text);
  // Of a text, `Object.keys` would name each character: with a long one, other requests would wait.
  if (typeof value !== "object" || value === null) return false;
  return Object.keys(value).some((key) => /^(acls|grants|tagowners)$/i.test(key));
}

/** Throws validation_failed with each fault's line and column. */
export function* parsePolicy(text: string): Generator<unknown, ParsedPolicy> {
  requireShort(text);
  const { value, faults, placeOf } = yield* readDocument(text);
  if (isForeign(text, { value, faults })) {
    throw new AppError("validation_failed", "This is a policy of Tailscale or headscale.", {
      hint: `Make a policy file of it: \`${brand.executable} admin policy import --from tailscale FILE >policy.yaml\``,
    });
  }
  if (faults.length > 0) throw faulty(conflictsIn(text) ?? faults);
  if (value === null) {
    const message = "The policy is empty. Expected groups, rules, routes, relays, aliases or tests.";
    throw faulty([{ line: 1, column: 1, message }]);
  }
  if (typeof value !== "object" || Array.isArray(value)) {
    throw faulty([{ ...placeOf(""), message: "Expected keys such as groups and rules." }]);
  }
  return { file: yield* validate(value, placeOf), placeOf };
}

/** Entries of a list that are validated at once. */
const partSize = 50;

/**
 * Validates lists and maps in parts, since the schema creates an issue for each wrong item before it counts the items. Throws
 * validation_failed.
 */
function* validate(value: object, placeOf: ParsedPolicy["placeOf"]): Generator<unknown, PolicyFile> {
  const faults: Fault[] = [];
  const file = new Map<string, unknown>();
  for (const [key, content] of Object.entries(value)) {
    const fault = keyFaultOf(key, content);
    if (fault === undefined) file.set(key, yield* validateEntries(key, content, { placeOf, faults }));
    else faults.push({ ...placeOf(key), message: `${key}: ${fault}` });
    if (faults.length >= maxFaults) throw faulty(faults.slice(0, maxFaults));
  }
  if (faults.length > 0) throw faulty(faults);
  // The schema has seen each part.
  return Object.fromEntries(file) as PolicyFile;
}

/** Why the list or map below a top-level key is refused without a look at its entries; undefined: it is not. */
function keyFaultOf(key: string, content: unknown): string | undefined {
  if (key === "users") return "Users are not supported yet.";
  const limit = Object.entries(listLimits).find(([name]) => name === key)?.[1];
  if (limit === undefined) return "This key is unknown.";
  const size = sizeOf(content);
  return size > limit ? `Expected at most ${limit} entries, and there are ${size}.` : undefined;
}

type Validation = { placeOf: ParsedPolicy["placeOf"]; faults: Fault[] };

/** The entries as the schema returns them. Adds what is wrong to `faults`, and stops once these are enough. */
function* validateEntries(
  key: string,
  content: unknown,
  { placeOf, faults }: Validation,
): Generator<unknown, unknown> {
  const outputs: unknown[] = [];
  const size = sizeOf(content);
  let first = 0;
  // An empty list is one part, too.
  do {
    const part = partOf(content, first);
    // Creating many issues takes long, so only the first one of a long part is reported.
    const abortEarly = JSON.stringify(part).length > maxPartText;
    const result = v.safeParse(PolicyFile, Object.fromEntries([[key, part]]), { abortEarly });
    yield;
    for (const issue of result.issues ?? []) faults.push(faultOf(issue, first, placeOf));
    if (result.success) outputs.push(...Object.values(result.output));
    first += partSize;
  } while (first < size && faults.length < maxFaults);
  return Array.isArray(content) ? outputs.flat() : Object.assign({}, ...outputs);
}

/** Characters of a long part. */
const maxPartText = 20_000;

/** The entries of a list or map; 1 for anything else. */
function sizeOf(content: unknown): number {
  if (typeof content !== "object" || content === null) return 1;
  return Array.isArray(content) ? content.length : Object.keys(content).length;
}

/** The part of a list or map that begins with the entry `first`; anything else is one part. */
function partOf(content: unknown, first: number): unknown {
  if (Array.isArray(content)) return content.slice(first, first + partSize);
  if (typeof content !== "object" || content === null) return content;
  return Object.fromEntries(Object.entries(content).slice(first, first + partSize));
}

/** `first`: the number of the part's first entry. */
function faultOf(issue: v.BaseIssue<unknown>, first: number, placeOf: ParsedPolicy["placeOf"]): Fault {
  const keys = (issue.path ?? []).map(({ key }, at) =>
    at === 1 && typeof key === "number" ? first + key : key,
  );
  const path = keys.join(".");
  return { ...placeOf(path), message: `${path === "" ? "" : `${path}: `}${sentenceOf(issue)}` };
}

function sentenceOf(issue: v.BaseIssue<unknown>): string {
  if (issue.kind === "validation" || issue.type === "union") return issue.message;
  if (issue.expected === "never") return "This key is unknown.";
  if (issue.received === "undefined") return "This key is required.";
  if (issue.type === "picklist") return `Expected ${alternatives(issue.expected ?? "")}.`;
  return `Expected ${words.get(issue.type) ?? issue.expected ?? "another value"}.`;
}

/** `("any" | "tcp" | "udp")` as a sentence says it. */
function alternatives(expected: string): string {
  const found = expected.replaceAll(/[()"]/g, "").split(" | ");
  return found.length < 2 ? found.join() : `${found.slice(0, -1).join(", ")} or ${found.at(-1)}`;
}

/** What the schema expected, by its type. */
const words = new Map([
  ["string", "text"],
  ["array", "a list"],
  ["strict_object", "keys with values"],
  ["custom", "keys with values"],
]);

/** The error about these faults: the first sentence in its message, and all in `errors`. */
export function faulty(faults: readonly Fault[]): AppError {
  const sorted = faults.toSorted((a, b) => a.line - b.line || a.column - b.column);
  const sentences = sorted.map(({ line, column, message }) => `Line ${line}, column ${column}: ${message}`);
  const [first = ""] = sentences;
  const more = sentences.length > 1 ? ` (and ${sentences.length - 1} more)` : "";
  return new AppError("validation_failed", `The policy is not valid. ${first}${more}`, {
    errors: { policy: sentences },
  });
}
