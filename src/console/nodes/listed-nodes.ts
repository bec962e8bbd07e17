// Nodes as lists keep them, and how contacts, silence and events change them. Pure.

import { onlineMs } from "../../api/values.ts";
import { shownGroups } from "../../protocol/shown-groups.ts";
import type { Event as AuditEvent } from "../../api/events.ts";
import { isObject } from "../../base/is-object.ts";
import type { Node } from "../../protocol/node.ts";
import { isOverdue, renewalOf } from "./states.ts";
import { naturalKey } from "../ui/lists/order.ts";

/** A node of a list, as little of it as lists show: there may be ten thousand. Times are ms since 1970. */
export type ListedNode = Pick<
  Node,
  | "id"
  | "name"
  | "state"
  | "online"
  | "ip_address"
  | "groups"
  | "subnets"
  | "is_lighthouse"
  | "is_relay"
  | "overlay_version"
  | "agent_version"
  | "platform"
  | "phone"
> & {
  seenAt: number | null;
  /** When its certificate ends. */
  endsAt: number | null;
  /** About when it is renewed. */
  renewsAt: number | null;
  /** It is deleted when it falls silent; its certificate lives for an hour or so. */
  isEphemeral?: true;
  revokedAt: number | null;
  /** Whether it has not applied its newest configuration. */
  isBehind: boolean;
  /** Whether two machines use its keys. */
  isCloned?: true;
  /** Whether its certificate should have been renewed. */
  isOverdue?: true;
  /** Whether it has lacked a configuration for longer than is usual. */
  isLate: boolean;
  /** The configuration version that it has applied. */
  applied: number | null;
  ownerId: number | null;
  /** Orders by name: see naturalKey. */
  nameKey: string;
  /** The texts that the search looks at, in lower case. */
  words: string;
};

/** A node as lists keep it: 10,000 of them fit in memory. */
export function listedOf(node: Node): ListedNode {
  const { name, ip_address } = node;
  const groups = shared(shownGroups(node));
  return {
    id: node.id,
    name,
    state: node.state,
    online: node.online,
    ip_address,
    groups,
    subnets: shared(node.subnets),
    is_lighthouse: node.is_lighthouse,
    is_relay: node.is_relay,
    overlay_version: sharedText(node.overlay_version),
    agent_version: sharedText(node.agent_version),
    platform: sharedText(node.platform),
    seenAt: timeOf(node.last_checkin_at),
    endsAt: timeOf(node.certificate?.not_after ?? null),
    renewsAt: node.certificate === null ? null : renewalOf(node.certificate),
    ...(node.ephemeral === true ? { isEphemeral: true } : {}),
    revokedAt: timeOf(node.revoked_at),
    phone: node.phone ?? null,
    isBehind:
      node.state === "active" && node.phone == null && node.applied_config_version !== node.config_version,
    ...(node.finding === "cloned" ? { isCloned: true } : {}),
    ...(isOverdue(node) ? { isOverdue: true } : {}),
    isLate: node.not_applied_since != null,
    applied: node.applied_config_version,
    ownerId: node.owner_id ?? null,
    nameKey: naturalKey(name),
    words: [name, ip_address, ...groups, node.overlay_version, node.platform].join("\n").toLowerCase(),
  };
}

/** A node was in contact with the control plane: its id, when (ms), and the configuration that it has applied. */
export type Contact = readonly [id: number, at: number, applied: number | null];

/**
 * The nodes after contacts; `changed`: ids of those that have applied another configuration, so that they have to be read again.
 * `nodes` is the same array if no contact is new.
 */
export function afterContacts(
  nodes: readonly ListedNode[],
  contacts: readonly Contact[],
): { nodes: readonly ListedNode[]; changed: readonly number[] } {
  const byId = new Map(contacts.map((contact) => [contact[0], contact]));
  const changed: number[] = [];
  let hasNew = false;
  const next = nodes.map((node) => {
    const [, at = 0, applied = null] = byId.get(node.id) ?? [];
    if (node.state !== "active" || at <= (node.seenAt ?? 0)) return node;
    if (applied !== null && applied !== node.applied) changed.push(node.id);
    hasNew = true;
    return { ...node, online: true, seenAt: at };
  });
  return { nodes: hasNew ? next : nodes, changed };
}

/** The nodes, of which those that were silent for too long are offline. `now`: by the control plane's clock, ms since 1970. */
export function withoutSilent(nodes: readonly ListedNode[], now: number): readonly ListedNode[] {
  const isSilent = ({ online, seenAt }: ListedNode) => online && seenAt !== null && seenAt <= now - onlineMs;
  if (!nodes.some(isSilent)) return nodes;
  return nodes.map((node) => (isSilent(node) ? { ...node, online: false } : node));
}

/** Events of these types change no node. */
const typesWithoutNodes =
  /^(user|session|token|webhook|registration|member|rule|security|policy|events|ca)\b/;

/** The nodes that an event changed. Undefined: it does not say which, so perhaps all. */
export function changedBy({
  type,
  subject,
  after,
}: Pick<AuditEvent, "type" | "subject" | "after">): readonly number[] | undefined {
  const id = /^node\/(\d+)$/.exec(subject)?.[1];
  if (id !== undefined) return [Number(id)];
  if (type !== "policy.applied" && type !== "policy.reverted")
    return typesWithoutNodes.test(type) ? [] : undefined;
  const { nodes, counts } = after ?? {};
  const ids = Array.isArray(nodes) ? nodes.filter(isObject).map((node) => Number(node["id"])) : [];
  // The event's list is cut at 500, its count is not: only a whole list says which nodes changed.
  return isObject(counts) && counts["nodes"] === ids.length ? ids : undefined;
}

const timeOf = (text: string | null) => (text === null ? null : Date.parse(text));

const maxShared = 5000;
const lists = new Map<string, string[]>();
const texts = new Map<string, string>();

/** The list that an earlier node had, if it is equal: most nodes have the same groups and versions as others. */
function shared(list: string[]): string[] {
  return firstOf(lists, list.join("\n"), list);
}

function sharedText(text: string | null): string | null {
  return text === null ? null : firstOf(texts, text, text);
}

/** The first value with this key. Forgets all when there are too many: then equal values are no longer the same object. */
function firstOf<T>(known: Map<string, T>, key: string, value: T): T {
  const found = known.get(key);
  if (found !== undefined) return found;
  if (known.size >= maxShared) known.clear();
  known.set(key, value);
  return value;
}
