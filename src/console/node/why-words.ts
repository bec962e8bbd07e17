// Why a node does not reach a peer, as far as the control plane knows. Pure.

import type { Node } from "../../protocol/node.ts";
import { spaced } from "../access/class-words.ts";
import { configurationOf } from "../nodes/states.ts";

/** What is known, the first obstacle last. Empty until it is read. */
export function whyWords(
  node: Node,
  other: Node | undefined,
  permitted: readonly string[] | undefined,
): string {
  if (other === undefined || permitted === undefined) return "";
  const { name } = other;
  if (other.state !== "active")
    return `${name} is ${other.state === "revoked" ? "revoked" : "not registered"}.`;
  if (permitted.length === 0) return `No rule allows it to reach ${name}.`;
  const allowed = `The rules allow ${permitted.includes("any") ? "everything" : spaced(permitted.join(", "))}`;
  if (!other.online) return `${allowed}, but ${name} is away: see whether its machine runs.`;
  const behind = [node, other].filter((each) => configurationOf(each).isBehind).map((each) => each.name);
  if (behind.length > 0)
    return `${allowed}, and both are online, but ${behind.join(" and ")} ${behind.length === 1 ? "has" : "have"} not applied the newest rules.`;
  return `${allowed}, and both are online with the newest rules: something between them probably drops UDP. On either machine, agent doctor says more.`;
}
