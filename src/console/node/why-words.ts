// Why a node does not reach a peer, as far as the control plane knows. Pure.

import type { Alarm } from "../../api/webhooks/alarms.ts";
import type { Node } from "../../protocol/node.ts";
import { spaced } from "../access/class-words.ts";
import { configurationOf, isOverdue, stateOf } from "../nodes/states.ts";

const doctor = "sudo agent doctor";

/** What a node's page knows beside the node, see stateOf. */
type Beside = Pick<Parameters<typeof stateOf>[0], "broken" | "cut">;

/** The state of a node on its page. */
export const stateOnPage = (node: Node, beside: Beside = {}) =>
  stateOf({ ...node, ...beside, isLate: node.not_applied_since != null, isOverdue: isOverdue(node) });

/** How a problem is drawn: red only if the state is red, as in the list of nodes. */
export const whyKind = (node: Node, beside?: Beside) =>
  stateOnPage(node, beside)[0] === "attention" ? "bad" : "info";

/**
 * Since when two nodes, by their names, do not reach each other (RFC 3339), by the open alarm that says so. Reports of paths do
 * not have it: their time is the one of the last change. Undefined: no alarm says it, or more than one does.
 */
export function outageStart(
  alarms: readonly Pick<Alarm, "kind" | "title" | "text" | "since" | "ended_at">[],
  ends: readonly string[],
): string | undefined {
  // An alarm about one of them may be about its other peers. A sentence has a node, and those that it does not reach.
  const isAboutBoth = (sentence: string) => {
    const [, one = "", others = ""] = /^(\S+) and (.+) do not reach each other$/.exec(sentence) ?? [];
    const names = others.split(/, | and /);
    return ends.includes(one) && ends.every((each) => each === one || names.includes(each));
  };
  const about = alarms.filter(
    ({ kind, title, text, ended_at }) =>
      kind === "path" && ended_at === null && [title, ...text.split("\n")].some(isAboutBoth),
  );
  return about.length === 1 ? about[0]?.since : undefined;
}

/**
 * What is known: the first obstacle, and the command that helps there. `other`: the peer's node. `permitted`: the traffic that
 * the rules allow to it. No words until both are read.
 */
export function whyWords(
  node: Node,
  other: Node | undefined,
  permitted: readonly string[] | undefined,
): { words: string; command?: string } {
  if (other === undefined || permitted === undefined) return { words: "" };
  const { name } = other;
  if (other.state !== "active")
    return { words: `${name} is ${other.state === "revoked" ? "revoked" : "not registered"}.` };
  if (permitted.length === 0) return { words: `No rule allows it to reach ${name}.` };
  const allowed = `The rules allow ${permitted.includes("any") ? "everything" : spaced(permitted.join(", "))}`;
  if (!other.online)
    return {
      words: `${allowed}, but ${name} is away: see whether its machine runs. There:`,
      command: doctor,
    };
  const behind = [node, other].filter((each) => configurationOf(each).isBehind);
  if (behind.length > 0) {
    const who = behind.map((each) => each.name).join(" and ");
    const has = behind.length === 1 ? "has" : "have";
    return {
      words: `${allowed}, and both are online, but ${who} ${has} not applied the newest rules. On ${who}:`,
      command: "sudo agent sync-config",
    };
  }
  return {
    words: `${allowed}, and both are online with the newest rules: something between them probably drops UDP. On either machine, this says more:`,
    command: doctor,
  };
}
