// Which nodes a list shows: by state, by group, by owner, and by words. The address has all of it. Pure.

import type { AliasWords } from "../node/aliases.ts";
import type { ListedNode } from "./listed-nodes.ts";
import { isImportDue, vulnerabilitiesOf } from "./states.ts";
import { isHub } from "../../protocol/routing/roles.ts";

/** How many of its paths are relayed, and broken, by node. */
type PathCounts = ReadonlyMap<number, { relayed: number; broken: number }>;

const weekMs = 7 * 86_400_000;

/** Filters by their word in the address. "waiting" and "revoked" are other lists of the control plane. */
export const shows = [
  ["", "All"],
  ["needs", "Needs you"],
  ["waiting", "Waiting"],
  ["relayed", "Relayed"],
  ["away", "Away"],
  ["revoked", "Revoked"],
  ["online", "Online"],
  ["week", "Away for a week"],
  ["cloned", "Keys that two machines use"],
  ["hubs", "Lighthouses and relays away"],
  ["behind", "Configuration not the newest"],
  ["late", "Configuration late by ten minutes"],
  ["vulnerable", "Engine with known vulnerabilities"],
  ["overdue", "Certificate not renewed"],
  ["broken", "Broken paths"],
  ["lighthouse", "Lighthouses"],
  ["relay", "Relays"],
  ["phones", "Phones"],
  ["due", "Phones to import again"],
  ["pending", "Not registered"],
] as const;
/** Filters that are always in sight; the others are in a menu. */
export const chips = shows.slice(0, 6);

/** `now`: ms since 1970. */
type Test = (node: ListedNode, now: number, paths: PathCounts) => boolean;

/** Phones never check in. */
const isAway = ({ state, online, phone }: ListedNode) => state === "active" && !online && phone == null;

/** By the word of the filter: whether it shows a node. */
const tests: Readonly<Record<string, Test>> = {
  needs: (...given) => needs.some((each) => tests[each]?.(...given) === true),
  online: ({ state, online }) => state === "active" && online,
  away: isAway,
  week: (node, now) => isAway(node) && (node.seenAt ?? 0) <= now - weekMs,
  cloned: ({ isCloned, online }) => online && isCloned === true,
  hubs: (node) => isAway(node) && isHub(node),
  behind: ({ isBehind }) => isBehind,
  late: ({ isLate, online }) => isLate && online,
  overdue: (node) => node.isOverdue === true,
  vulnerable: (node) => node.state === "active" && vulnerabilitiesOf(node) !== "",
  broken: ({ id, online }, _now, paths) => online && (paths.get(id)?.broken ?? 0) > 0,
  relayed: ({ id, online }, _now, paths) => online && (paths.get(id)?.relayed ?? 0) > 0,
  lighthouse: ({ is_lighthouse }) => is_lighthouse,
  relay: ({ is_relay }) => is_relay,
  phones: ({ phone }) => phone != null,
  due: ({ state, phone }, now) => state === "active" && isImportDue(phone, now),
  pending: ({ state }) => state === "pending",
};
/** The filters that make up "Needs you". Overview counts the same. */
const needs = ["cloned", "hubs", "broken", "late", "overdue", "vulnerable"];

/** How many each chip leaves. */
export const countShown = (
  nodes: readonly ListedNode[],
  show: string,
  now: number,
  paths: PathCounts,
): number => filtered(nodes, { show, group: "", owner: "", words: [] }, now, paths).length;

/** `words` in lower case. `owner`: the number of a user, or "". */
export type NodeFilter = { show: string; group: string; owner: string; words: readonly string[] };

/** The file name of an export. It contains the filter, but neither owner nor search, which may be private. */
export function exportName(slug: string, { show, group, owner, words }: NodeFilter): string {
  const part = owner !== "" || words.length > 0 ? "filtered" : "";
  const parts = [slug, "nodes", show, group, part].filter(Boolean);
  return `${parts.join("-").replaceAll(/[^\w.-]+/g, "_")}.csv`;
}

/** The nodes that fit all parts of the filter. `now`: ms since 1970. `aliases`: searchable words by node. */
export function filtered(
  nodes: readonly ListedNode[],
  { show, group, owner, words }: NodeFilter,
  now: number,
  paths: PathCounts = new Map(),
  aliases: AliasWords = new Map(),
): readonly ListedNode[] {
  const fits = Object.hasOwn(tests, show) ? tests[show] : undefined;
  if (fits === undefined && group === "" && owner === "" && words.length === 0) return nodes;
  return nodes.filter(
    (node) =>
      (fits === undefined || fits(node, now, paths)) &&
      (group === "" || node.groups.includes(group)) &&
      (owner === "" || `${node.ownerId}` === owner) &&
      words.every((word) => node.words.includes(word) || aliases.get(node.id)?.includes(word) === true),
  );
}

export type Selection = ReadonlySet<number | string>;

/** The selected nodes that are shown: actions never apply to hidden ones. */
export function selectedIn(selected: Selection, shown: readonly ListedNode[]): readonly ListedNode[] {
  return selected.size === 0 ? [] : shown.filter(({ id }) => selected.has(id));
}

/** The groups of the nodes, sorted. Equal lists are one object (listed-nodes.ts), so each is looked at once. */
export function groupsOf(nodes: readonly ListedNode[]): readonly string[] {
  const lists = new Set(nodes.map(({ groups }) => groups));
  return [...new Set([...lists].flat())].sort();
}
