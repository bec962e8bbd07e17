// What pages say about machines.

import type { Node } from "../protocol/node.ts";

/** The states that are drawn, see `State` in ui/parts.ts. */
export type StateName = "online" | "limited" | "attention" | "away" | "revoked";

/** The state of a machine: its shape and its word. */
export function stateOf({ state, online, phone }: Standing): [StateName, string] {
  if (state === "revoked") return ["revoked", "revoked"];
  if (state === "pending") return ["limited", "not registered"];
  if (phone != null) return isImportDue(phone) ? ["limited", "phone, import it again"] : ["away", "phone"];
  return online ? ["online", "online"] : ["away", "away"];
}

type Standing = Pick<Node, "state" | "online" | "phone">;

/** Whether the site file of a phone is out of date, or its certificate would have been renewed by now. */
export const isImportDue = (phone: Node["phone"], now = Date.now()): boolean =>
  phone != null && (phone.import_by === null || Date.parse(phone.import_by) <= now);

/** Whether what it reports is current. */
export const isPresent = ({ state, online }: Standing): boolean => state === "active" && online;

/** The configuration that a machine has; `isBehind`: not the newest. */
export function configurationOf({
  applied_config_version: applied,
  config_version: newest,
  ...node
}: Standing & Pick<Node, "applied_config_version" | "config_version">): { words: string; isBehind: boolean } {
  if (node.state === "revoked") return { words: "none: it is revoked", isBehind: false };
  if (node.state === "pending") return { words: "none: it is not registered", isBehind: false };
  if (node.phone != null) return { words: "as of its import", isBehind: false };
  const since = node.online ? "" : " when it was last here";
  if (applied === newest) return { words: `${newest}, applied${since}`, isBehind: false };
  const had = `${node.online ? "has" : "had"} applied ${applied === null ? "none" : `version ${applied}`}${since}`;
  return {
    words: `${had}, the newest is ${newest}`,
    isBehind: true,
  };
}

/**
 * What is known of a machine that has not applied its newest configuration. `since`: when it was first sent files that it
 * has not applied, in words; null if it has applied all that it was sent.
 */
export function behindWords(
  node: Pick<Node, "online">,
  { applied, newest, since }: { applied: number | null; newest: number; since: string | null },
): { words: string; isFault: boolean } {
  const has = `It has applied ${applied === null ? "none" : `version ${applied}`}, the newest is ${newest}.`;
  if (!node.online) return { words: `${has} It takes the newest when it is back.`, isFault: false };
  if (since === null)
    return {
      words: `${has} It has not fetched a newer one. That takes seconds: if this stays, look at the machine.`,
      isFault: false,
    };
  return {
    words: `${has} It was first sent a newer one ${since}, and has not applied it. That takes seconds: look at the machine.`,
    isFault: true,
  };
}

/** Why a machine has no paths to show. */
export function noPathsOf(node: Standing): string {
  if (node.state === "revoked") return "It has none: it is revoked.";
  if (node.state === "pending") return "It has none: it is not registered.";
  if (node.phone != null) return "A phone reports none.";
  if (!node.online) return "It is away, and had reported none before.";
  return "It has reported none: it has no tunnel, its engine is older than 1.12, or reports are switched off.";
}
