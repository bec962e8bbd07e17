// An event in the words of the pages: a sentence, and the changes. Pure.

import type { Rule as StoredRule } from "../../api/rules.ts";
import { sentenceOf, toRule } from "../access/rules.ts";
import { changesOf, type Change } from "./event-changes.ts";
import type { Things } from "./event-filter.ts";
import { isObject } from "../../base/is-object.ts";
import type { Names } from "./actor.ts";
import { eventKinds, eventNouns, type Event as AuditEvent } from "../../api/events.ts";
import { columnOf, itemText, wordOf, type Settings } from "../../protocol/settings.ts";
import { ruleChangeOf, unlistedIn } from "./rule-change.ts";

/** `words`: of groups of providers. `settings`: by type of event, the settings whose changes such an event holds. */
export type Known = {
  names: Names;
  things: Things;
  words: ReadonlyMap<string, string>;
  settings?: Readonly<Record<string, Settings>> | undefined;
};

/** Each type of event, and each family of them: "node.*". */
export const eventNames: readonly string[] = [
  ...new Set(Object.keys(eventKinds).flatMap((type) => [type.replace(/\..*/, ".*"), type])),
];

const nameOf = (details: AuditEvent["after"]) =>
  typeof details?.["name"] === "string" ? details["name"] : undefined;

const nodeName = (id: number | null, things: Things): string => things.get(`node/${id}`) ?? `node ${id}`;

function whoOf({ actor: { kind, id } }: AuditEvent, { names, things }: Known): string {
  if (kind === "person") return names.get(id ?? 0) ?? `User ${id}`;
  if (kind === "service") return `Token ${things.get(`service_token/${id}`) ?? id}`;
  if (kind === "node") return nodeName(id, things);
  return { operator: "The operator", server: "The control plane", nobody: "Somebody" }[kind] ?? kind;
}

/** A page that was loaded before an update of the control plane does not know new types. */
const wordsOf = (type: string) =>
  (eventKinds as Readonly<Record<string, { words: string }>>)[type]?.words ?? `${type}: &`;

/**
 * The event as a sentence, in parts: every second one is a text from outside. `by`: the actor; "" if the sentence names it. In the
 * words of `eventKinds`, @ is the actor, # what the event is about, % its former name, and & what it is about, with "the" and noun.
 */
export function eventSentence(event: AuditEvent, known: Known): { parts: readonly string[]; by: string } {
  const { type, subject, before, after } = event;
  const [kind = "", rest = ""] = subject.split(/\/(.*)/s);
  // An organization is known by its slug, in every event.
  const name =
    kind === "organization"
      ? undefined
      : (nameOf(after) ??
        nameOf(before) ??
        (kind === "user" ? known.names.get(Number(rest)) : known.things.get(subject)));
  const noun = (eventNouns as Readonly<Record<string, string>>)[kind] ?? kind;
  const isNumber = name === undefined && /^\d+$/.test(rest);
  const isRenamed = type === "node.updated" && nameOf(before) !== undefined && nameOf(after) !== undefined;
  const phrase = isRenamed ? "@ renamed the node % to #" : wordsOf(type);
  const subjectPhrase = isNumber ? "#" : `the ${noun}${rest === "" ? "" : " #"}`;
  const who = whoOf(event, known);
  const texts: Record<string, string> = {
    "@": who,
    "#": name ?? (isNumber ? `${noun} ${rest}` : rest),
    "%": nameOf(before) ?? "",
  };
  return {
    parts: phrase
      .replace("&", subjectPhrase)
      .split(/([@#%])/)
      .map((part) => texts[part] ?? part),
    by: phrase.includes("@") ? "" : who,
  };
}

/** The same as one text, for searches and files. */
export function eventText(event: AuditEvent, known: Known): string {
  const { parts, by } = eventSentence(event, known);
  return parts.join("") + (by === "" ? "" : ` (${by})`);
}

/** Fields that the sentence contains, or that mean nothing to users. */
const ruleFields = ["counts", "rule_ids", "rules_created", "rules_deleted", "rules_described"];
const hiddenFields = new Set(["fingerprint", "key_sha256", "noted_rows", ...ruleFields]);

/** The changes, with names instead of numbers, and rules as the page Access shows them. */
export function readableChanges(event: AuditEvent, known: Known): readonly Change[] {
  const { type, before, after } = event;
  const rules = ruleChangeOf(event);
  // Events of former versions have no numbers of rules.
  const say = (rule: StoredRule) =>
    (rule.id > 0 ? `${rule.id}: ` : "") +
    sentenceOf(toRule(rule, nodeNames(known.things), known.names, known.words)) +
    (rule.description === "" ? "" : ` (${rule.description})`);
  const ofRules = {
    field: "rules",
    removed: (rules?.removed ?? []).map(say),
    added: (rules?.added ?? []).map(say),
  };
  if (rules !== undefined && type.startsWith("rule.")) return [ofRules];
  // Without what a revoked node had: its name would look like one that was removed.
  const was = readable(type, type === "node.revoked" ? null : before, known);
  const is = readable(type, after, known);
  // A name that did not change is in the sentence already.
  if (was?.["name"] === undefined || is?.["name"] === undefined) {
    delete was?.["name"];
    delete is?.["name"];
  }
  const changes = changesOf({ before: was, after: is });
  // Only the policy's version: configurations of nodes have versions, too.
  const fields: Readonly<Record<string, string>> = {
    tests: "tests in all",
    ...(type.startsWith("policy.") && { version: "policy version" }),
  };
  const renamed = changes.map((change) => ({ ...change, field: fields[change.field] ?? change.field }));
  const unlisted = unlistedIn(after).map((words) => ({ field: "and more", removed: [], added: [words] }));
  return [...(rules === undefined ? [] : [ofRules]), ...unlisted, ...renamed];
}

function readable(
  type: string,
  details: AuditEvent["before"],
  { names, things, settings }: Known,
): AuditEvent["before"] {
  if (details === null) return null;
  const entries = Object.entries(details).flatMap(([key, value]): [string, unknown][] => {
    if (hiddenFields.has(key)) return [];
    const setting = Object.entries(settings?.[type] ?? {}).find(
      ([field]) => field === key || columnOf(field) === key,
    )?.[1];
    if (setting !== undefined)
      return [
        [
          setting.flag,
          Array.isArray(value) ? value.map((item) => itemText(setting, item)) : wordOf(setting, value),
        ],
      ];
    if (key === "owner_id")
      return [["owner", typeof value === "number" ? (names.get(value) ?? `user ${value}`) : value]];
    if ((key === "node_id" || key === "node") && typeof value === "number")
      return [["node", nodeName(value, things)]];
    if (key === "nodes" && Array.isArray(value)) return [["nodes", value.map(nodeWords)]];
    return [[key, value]];
  });
  return Object.fromEntries(entries);
}

/** "web-1: groups add shop" */
function nodeWords(node: unknown): unknown {
  if (!isObject(node)) return node;
  const { id, name, ...more } = node;
  const changes = changesOf({ before: null, after: more }).map(
    ({ field, added }) => `${field} ${added.join(", ")}`,
  );
  return [typeof name === "string" ? name : `node ${String(id)}`, ...changes].join(": ");
}

const nodeNames = (things: Things): ReadonlyMap<number, string> =>
  new Map(
    [...things].flatMap(([subject, name]) =>
      subject.startsWith("node/") ? [[Number(subject.slice(5)), name] as const] : [],
    ),
  );

/** The nodes that the events name by their number alone. */
export function unnamed(events: readonly AuditEvent[], things: Things): readonly number[] {
  const ids = events.flatMap((event) => {
    const { subject, actor, after } = event;
    const { added = [], removed = [] } = ruleChangeOf(event) ?? {};
    const sides = [...added, ...removed].flatMap(({ peer, target }) => [peer, target]);
    return [
      /^node\/(\d+)$/.exec(subject)?.[1],
      actor.kind === "node" ? actor.id : undefined,
      after?.["node_id"],
      after?.["node"],
      ...sides.map((side) => ("node" in side ? side.node : undefined)),
    ].flatMap((id) => (id === undefined || id === null || Number.isNaN(Number(id)) ? [] : [Number(id)]));
  });
  return [...new Set(ids)].filter((id) => !things.has(`node/${id}`));
}
