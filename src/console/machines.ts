// Machines as lists keep them.

import type { Node } from "../protocol.ts";
import { naturalKey } from "./ui/order.ts";

/** A machine of a list, as little of it as lists show: there may be ten thousand. Times are ms since 1970. */
export type Machine = Pick<
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
> & {
  seenAt: number | null;
  /** When its certificate ends. */
  endsAt: number | null;
  /** It has not applied its newest configuration. */
  isBehind: boolean;
  ownerId: number | null;
  /** Orders by name. */
  nameKey: string;
  /** What a search looks at, in lower case. */
  words: string;
};

export function machineOf(node: Node): Machine {
  const { name, ip_address, groups } = node;
  return {
    id: node.id,
    name,
    state: node.state,
    online: node.online,
    ip_address,
    groups: shared(groups),
    subnets: shared(node.subnets),
    is_lighthouse: node.is_lighthouse,
    is_relay: node.is_relay,
    overlay_version: sharedText(node.overlay_version),
    agent_version: sharedText(node.agent_version),
    platform: sharedText(node.platform),
    seenAt: timeOf(node.last_checkin_at),
    endsAt: timeOf(node.certificate?.not_after ?? null),
    isBehind: node.state === "active" && node.applied_config_version !== node.config_version,
    ownerId: node.owner_id ?? null,
    nameKey: naturalKey(name),
    words: [name, ip_address, ...groups].join("\n").toLowerCase(),
  };
}

const timeOf = (text: string | null) => (text === null ? null : Date.parse(text));

const maxShared = 5000;
const lists = new Map<string, string[]>();
const texts = new Map<string, string>();

/** Most machines have the groups, and the versions, of others: each is kept once. */
function shared(list: string[]): string[] {
  return once(lists, list.join("\n"), list);
}

function sharedText(text: string | null): string | null {
  return text === null ? null : once(texts, text, text);
}

function once<T>(known: Map<string, T>, key: string, value: T): T {
  const found = known.get(key);
  if (found !== undefined) return found;
  if (known.size >= maxShared) known.clear();
  known.set(key, value);
  return value;
}
