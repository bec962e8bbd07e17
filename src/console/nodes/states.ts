// The state of a node in words, as all pages name it: online, its configuration, its certificate, its engine. Pure.

import { advisoriesFor, type Advisory } from "../../engine/features.ts";
import type { Node } from "../../protocol/node.ts";
import { findingOf, findingWords } from "../../protocol/finding-kinds.ts";
import { isRed } from "../needs/need-kinds.ts";
import { ago } from "../words/ago.ts";
import { plural } from "../words/numbers.ts";

/** The states that are drawn, see `State` in ui/parts.tsx. */
export type StateName = "waiting" | "online" | "relayed" | "limited" | "attention" | "away" | "revoked";

/**
 * What is known of a node. `isLate`: it has lacked a configuration for longer than is usual. `broken`: how many peers do not
 * answer it. `cut`: how many paths have no other way than a relay that is away (useCut). A field that is absent is no fault.
 */
type Known = Standing &
  Partial<Pick<Node, "finding" | "is_lighthouse" | "is_relay" | "overlay_version">> & {
    isLate?: boolean | undefined;
    broken?: number | undefined;
    cut?: number | undefined;
    isOverdue?: boolean | undefined;
  };

/** The state of a node: its shape and its word. First the states of nodes that report nothing now, then the gravest that holds. */
export function stateOf(node: Known): [StateName, string] {
  const { state, online, phone, broken = 0 } = node;
  if (state === "revoked") return ["revoked", "revoked"];
  if (state === "pending") return ["waiting", "not registered"];
  if (phone != null) return isImportDue(phone) ? ["limited", "phone, import it again"] : ["away", "phone"];
  if (!online && node.is_lighthouse === true) return ["attention", "lighthouse away"];
  if (!online && node.is_relay === true)
    return [isRed("relay", node.cut) ? "attention" : "limited", "relay away"];
  if (!online) return ["away", "away"];
  const kind = findingOf(node.finding);
  if (kind !== undefined) return ["attention", findingWords[kind]];
  if (broken > 0) return ["attention", "broken path"];
  if (node.isLate === true) return ["limited", "old configuration"];
  if (node.isOverdue === true) return ["limited", "certificate not renewed"];
  if (vulnerabilitiesOf({ overlay_version: node.overlay_version ?? null }) !== "")
    return ["limited", "old engine"];
  return ["online", "online"];
}

const weekMs = 7 * 86_400_000;

/** About when a node renews its certificate: a third of its life is left. The control plane spreads it a little. */
export function renewalOf({ not_before, not_after }: NonNullable<Node["certificate"]>): number {
  const end = Date.parse(not_after);
  return end - (end - Date.parse(not_before)) / 3;
}

/**
 * Whether its certificate should have been renewed: it ends within a week, and less than a quarter of its life is left. The
 * control plane counts the same (src/server/nodes/attention.ts).
 */
export function isOverdue({ state, certificate, phone, ephemeral }: Node, now = Date.now()): boolean {
  if (state !== "active" || certificate === null || phone != null || ephemeral === true) return false;
  const [begin, end] = [certificate.not_before, certificate.not_after].map(Date.parse) as [number, number];
  return end < now + weekMs && (end - now) * 4 < end - begin;
}

/** Whether a node takes part at all, and how. */
type Standing = Pick<Node, "state" | "online" | "phone">;

/** Whether renewal is offered. A phone never checks in: its user imports a new file. */
export const mayRenew = ({ state, phone }: Pick<Node, "state" | "phone">): boolean =>
  state === "active" && phone == null;

/** Whether the site file of a phone is out of date, or its certificate would have been renewed by now. */
export const isImportDue = (phone: Node["phone"], now = Date.now()): boolean =>
  phone != null && (phone.import_by === null || Date.parse(phone.import_by) <= now);

/**
 * Why the list of nodes has more than Overview and Map count; "" if it has not. `all`: without revoked ones. `counted`: those that
 * check in.
 */
export const countWords = (all: number, counted: number): string =>
  all <= counted
    ? ""
    : `${plural(counted, "node")} with an agent, and ${all - counted} without (phones, or not registered)`;

/** Whether what a node reported last still holds: it is online. */
export const isPresent = ({ state, online }: Standing): boolean => state === "active" && online;

/** The configuration that a node has, in words that follow "It"; `isBehind`: not the newest. */
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
  const which = applied === null ? "none" : `configuration ${applied}`;
  const words = `${node.online ? "has" : "had"} applied ${which}${since}; the newest is ${newest}`;
  return { words, isBehind: true };
}

/**
 * Sentences about a node that has not applied its newest configuration. `isSent`: it has fetched a newer one. `isFault`: it is
 * online and should have applied it by now.
 */
export function behindWords(
  node: Standing & Pick<Node, "applied_config_version" | "config_version" | "not_applied_since">,
  { isSent, now }: { isSent: boolean; now: number },
): { words: string; isFault: boolean } {
  const has = `It ${configurationOf(node).words}.`;
  if (!node.online) return { words: `${has} It takes the newest when it is back.`, isFault: false };
  // The control plane tells the time only after ten minutes.
  const since = node.not_applied_since ?? null;
  if (since === null)
    return {
      words: `${has} Usually that takes seconds; if it lasts ten minutes, this says so.`,
      isFault: false,
    };
  const sinceThen = ago(Date.parse(since), now);
  const had = isSent
    ? `It fetched a newer one ${sinceThen}, and has not applied it`
    : `It could have fetched a newer one ${sinceThen}, and has not`;
  return {
    words: `${has} ${had}. What was changed since is not in force on it.`,
    isFault: true,
  };
}

/** The command that updates the engine of a machine. */
export const updateEngine = "sudo agent overlay update";

/** The known vulnerabilities of the engine that runs; "" for none, or an unknown version: "Update to 1.10.3 or newer: CVE-2026-25793 (fixed in 1.10.3)". */
export function vulnerabilitiesOf({ overlay_version: version }: Pick<Node, "overlay_version">): string {
  if (version === null) return "";
  const known = vulnerabilities.get(version);
  if (known !== undefined) return known;
  const all = advisoriesFor(version);
  const words =
    all.length === 0
      ? ""
      : `Update to ${safeAfter(all)} or newer: ${all.map(({ id, fixed_in }) => `${id} (fixed in ${fixed_in})`).join(", ")}`;
  // Nodes choose the text of their version.
  if (vulnerabilities.size >= maxVersions) vulnerabilities.clear();
  vulnerabilities.set(version, words);
  return words;
}

/** The version that mends all of them: an update that mends one may leave another. */
const safeAfter = (all: readonly Advisory[]) =>
  all.map(({ fixed_in }) => fixed_in).findLast((each) => advisoriesFor(each).length === 0);

/** By version: a list of ten thousand nodes asks for each. */
const vulnerabilities = new Map<string, string>();
const maxVersions = 100;

/** Why a node has no paths to show. */
export function noPathsOf(node: Standing): string {
  if (node.state === "revoked") return "It has none: it is revoked.";
  if (node.state === "pending") return "It has none: it is not registered.";
  if (node.phone != null) return "A phone reports none.";
  if (!node.online) return "It is away, and had reported none before.";
  return "It has reported none: no tunnel, an engine older than 1.12, or reports are switched off.";
}
