// The policy file: its schema, and reading it with the line and column of each fault. resolve.ts turns names into ids.

import { maxEmailLength } from "../../api/values.ts";
import * as v from "valibot";
import { maxFileRules, maxPolicyBytes } from "../../api/policy.ts";
import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import { strictRecord, withoutList } from "../../base/strict-record.ts";
import { NodeName } from "../../protocol/values.ts";
import { parseNetwork } from "../../base/ip.ts";
import { maxFaults, readDocument, type Fault, type PlainDocument } from "./document.ts";
import { Ports, Protocol, selfSentence } from "../../api/rules.ts";
import { GroupName } from "../../api/values.ts";
import { comparedText, foreignText } from "../../base/text.ts";

const nodeWord = /^node:[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/;
const memberWord = /^(node:[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?|user:[^\s@]+@[^\s@]+|idp:\S(.{0,248}\S)?)$/;
const someNodes =
  "any|group:[A-Za-z0-9][A-Za-z0-9_.:-]{0,62}|node:[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?|user:[^\\s@]+@[^\\s@]+|idp:\\S(.{0,248}\\S)?";
const side = new RegExp(`^(${someNodes})$`);
const peer = new RegExp(`^(self|${someNodes}|[0-9A-Fa-f.:]+/\\d{1,3})$`);

const later: readonly [RegExp, string][] = [
  [/^user:/, "Enter a member as user:EMAIL: the nodes that the member owns."],
  [/^self$/, selfSentence],
  [/^provider:/, "Enter a group of an identity provider as idp:GROUP."],
  [/^idp:/, "Enter idp:GROUP, with at most 250 letters and no space around it."],
];

const refusal = (expected: string) => (issue: v.BaseIssue<unknown>) => {
  const given = String(issue.input);
  return later.find(([pattern]) => pattern.test(given))?.[1] ?? `Expected ${expected}.`;
};

const maxWord = "user:".length + maxEmailLength;

const NodeWord = v.pipe(foreignText(100), v.regex(nodeWord, refusal("node:NAME")));
const MemberWord = v.pipe(
  comparedText(maxWord),
  v.regex(memberWord, refusal("node:NAME, user:EMAIL or idp:GROUP")),
);
const Side = v.pipe(
  comparedText(maxWord),
  v.regex(side, refusal("any, group:NAME, node:NAME, user:EMAIL or idp:GROUP")),
);
const PeerSide = v.pipe(
  comparedText(maxWord),
  v.regex(
    peer,
    refusal("any, self, group:NAME, node:NAME, user:EMAIL, idp:GROUP or a network such as 192.168.5.0/24"),
  ),
  v.check(
    (text) => !isNetworkWord(text) || parseNetwork(text) !== undefined,
    "Enter a network such as 192.168.5.0/24, host bits zero.",
  ),
);
const PortText = v.union(
  [
    v.pipe(
      v.number(),
      v.integer(),
      v.minValue(1, "Enter ports from 1 to 65535."),
      v.maxValue(65_535, "Enter ports from 1 to 65535."),
    ),
    Ports,
  ],
  "Enter any, a port or a range such as 8000-8010.",
);
const Description = foreignText(255);

const RuleEntry = v.pipe(
  v.strictObject({
    direction: v.optional(v.picklist(["inbound", "outbound"]), "inbound"),
    protocol: v.optional(Protocol, "any"),
    ports: v.optional(PortText, "any"),
    peer: PeerSide,
    target: Side,
    description: v.optional(Description),
  }),
  v.check((rule) => rule.protocol !== "icmp" || rule.ports === "any", "ICMP has no ports: remove `ports`."),
);

const Flow = v.pipe(
  v.strictObject({
    from: Side,
    to: Side,
    protocol: v.optional(Protocol, "any"),
    port: v.optional(PortText, "any"),
  }),
  v.check((flow) => flow.protocol !== "icmp" || flow.port === "any", "ICMP has no ports: remove `port`."),
);

const TestEntry = v.pipe(
  v.strictObject({ accept: v.optional(Flow), deny: v.optional(Flow) }),
  v.check((test) => (test.accept === undefined) !== (test.deny === undefined), "Expected accept or deny."),
);

const aliasText = "An alias begins with a letter: a to z, then letters, digits and -.";

const AliasEntry = v.strictObject({
  name: v.pipe(foreignText(63), v.regex(/^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$/, aliasText)),
  node: NodeWord,
  /** An address behind the node. Absent: the node's own addresses. */
  address: v.optional(foreignText(45)),
});

const GroupEntry = v.nullable(
  withoutList(
    v.strictObject({
      description: v.optional(v.pipe(foreignText(500), v.trim())),
      /** The nodes, and the users or groups of providers whose nodes are in the group by this file. Absent: the file leaves them alone. */
      members: v.optional(v.pipe(v.array(MemberWord), v.maxLength(10_000))),
    }),
  ),
);

/** Maximum entries of each list. */
const most = { groups: 2000, rules: maxFileRules, routes: 2000, relays: 1000, aliases: 1000, tests: 500 };
const Route = v.strictObject({ network: PeerSide, via: NodeWord });

/** A key that is absent is left alone by `apply`, also with `--prune`. */
export const PolicyFile = v.strictObject({
  groups: v.optional(v.pipe(strictRecord(GroupName, GroupEntry), v.maxEntries(most.groups))),
  rules: v.optional(v.pipe(v.array(RuleEntry), v.maxLength(most.rules))),
  routes: v.optional(v.pipe(v.array(Route), v.maxLength(most.routes))),
  relays: v.optional(v.pipe(v.array(NodeWord), v.maxLength(most.relays))),
  aliases: v.optional(v.pipe(v.array(AliasEntry), v.maxLength(most.aliases))),
  tests: v.optional(v.pipe(v.array(TestEntry), v.maxLength(most.tests))),
});
export type PolicyFile = v.InferOutput<typeof PolicyFile>;

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
  // UTF-8 is decoded with U+FFFD in place of what is none.
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

/** HuJSON with comments and tabs is no valid YAML, and gets faults. */
function isForeign(text: string, { value, faults }: Pick<PlainDocument, "value" | "faults">): boolean {
  if (faults.length > 0) return /^\s*(\/[/*]|\{)/.test(text) && /"(acls|grants|tagOwners)"\s*:/i.test(text);
  // The keys of a long text are all its letters: that blocks the loop.
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

const partSize = 50;

/** Validates in parts: the schema creates an issue for each wrong item before it counts the items. */
function* validate(value: object, placeOf: ParsedPolicy["placeOf"]): Generator<unknown, PolicyFile> {
  const found: Fault[] = [];
  const file = new Map<string, unknown>();
  for (const [key, content] of Object.entries(value)) {
    const limit = Object.entries(most).find(([name]) => name === key)?.[1];
    const size = limit === undefined ? 1 : sizeOf(content);
    if (limit !== undefined && size > limit) {
      found.push({
        ...placeOf(key),
        message: `${key}: Expected at most ${limit} entries, and there are ${size}.`,
      });
      continue;
    }
    const outputs: unknown[] = [];
    for (let first = 0; first === 0 || first < size; first += partSize) {
      const part = limit === undefined ? null : partOf(content, first);
      // Creating many issues takes long, so only the first one of a long part is reported.
      const abortEarly = JSON.stringify(part).length > maxPartText;
      const result = v.safeParse(PolicyFile, Object.fromEntries([[key, part]]), { abortEarly });
      yield;
      for (const issue of result.issues ?? []) found.push(faultOf(issue, first, placeOf));
      if (found.length >= maxFaults) throw faulty(found.slice(0, maxFaults));
      if (result.success) outputs.push(...Object.values(result.output));
    }
    file.set(key, Array.isArray(content) ? outputs.flat() : Object.assign({}, ...outputs));
  }
  if (found.length > 0) throw faulty(found);
  // The schema has seen each part.
  return Object.fromEntries(file) as PolicyFile;
}

const maxPartText = 20_000;

function sizeOf(content: unknown): number {
  if (typeof content !== "object" || content === null) return 1;
  return Array.isArray(content) ? content.length : Object.keys(content).length;
}

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
  return { ...placeOf(path), message: `${path === "" ? "" : `${path}: `}${sentenceOf(issue, path)}` };
}

function sentenceOf(issue: v.BaseIssue<unknown>, path: string): string {
  if (path === "users") return "Users are not supported yet.";
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

const words = new Map([
  ["string", "text"],
  ["array", "a list"],
  ["strict_object", "keys with values"],
  ["custom", "keys with values"],
]);

/** The faults as an error: each with its place. */
export function faulty(faults: readonly Fault[]): AppError {
  const sorted = faults.toSorted((a, b) => a.line - b.line || a.column - b.column);
  const sentences = sorted.map(({ line, column, message }) => `Line ${line}, column ${column}: ${message}`);
  const [first = ""] = sentences;
  const more = sentences.length > 1 ? ` (and ${sentences.length - 1} more)` : "";
  return new AppError("validation_failed", `The policy is not valid. ${first}${more}`, {
    errors: { policy: sentences },
  });
}

/**
 * Every word except `any` and networks has a prefix. E-mail addresses and groups of providers may contain a slash.
 */
export const isNetworkWord = (word: string) => word.includes("/") && !/^(user|idp):/.test(word);

/** The name in `node:NAME`. */
export function nodeNameOf(word: string): v.InferOutput<typeof NodeName> {
  return word.slice("node:".length);
}
