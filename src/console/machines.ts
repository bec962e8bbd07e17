// Machines as lists keep them.

import { onlineMs } from "../api/values.ts";
import { shownGroups } from "../protocol/shown-groups.ts";
import type { Node } from "../protocol/node.ts";
import { isOverdue } from "./nodes.ts";
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
  | "phone"
> & {
  seenAt: number | null;
  /** When its certificate ends. */
  endsAt: number | null;
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
  /** Orders by name. */
  nameKey: string;
  /** The searched texts, in lower case. */
  words: string;
};

export function machineOf(node: Node): Machine {
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

/** A machine was in contact with the control plane: its id, when (ms), and the configuration that it has applied. */
export type Contact = readonly [id: number, at: number, applied: number | null];

/** The machines after contacts, and which of them have applied another configuration. The same list if none is new. */
export function afterContacts(
  machines: readonly Machine[],
  contacts: readonly Contact[],
): { machines: readonly Machine[]; changed: readonly number[] } {
  const byId = new Map(contacts.map((contact) => [contact[0], contact]));
  const changed: number[] = [];
  let isNew = false;
  const next = machines.map((machine) => {
    const [, at = 0, applied = null] = byId.get(machine.id) ?? [];
    if (machine.state !== "active" || at <= (machine.seenAt ?? 0)) return machine;
    if (applied !== null && applied !== machine.applied) changed.push(machine.id);
    isNew = true;
    return { ...machine, online: true, seenAt: at };
  });
  return { machines: isNew ? next : machines, changed };
}

/** The machines without those that were silent for too long. `now`: of the control plane. */
export function withoutSilent(machines: readonly Machine[], now: number): readonly Machine[] {
  const isSilent = ({ online, seenAt }: Machine) => online && seenAt !== null && seenAt <= now - onlineMs;
  if (!machines.some(isSilent)) return machines;
  return machines.map((machine) => (isSilent(machine) ? { ...machine, online: false } : machine));
}

const timeOf = (text: string | null) => (text === null ? null : Date.parse(text));

const maxShared = 5000;
const lists = new Map<string, string[]>();
const texts = new Map<string, string>();

/** Shares equal values: most machines have the same groups and versions as others. */
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
