// The fields of the dialog that changes a node, and the request: only the fields that the user changed. Others may
// change the same node meanwhile. Pure.

import type { Node } from "../../protocol/node.ts";
import { networksIn, partsOf } from "../words/field-parts.ts";

export type Key =
  | "name"
  | "groups"
  | "subnets"
  | "exit_groups"
  | "public_ip"
  | "is_lighthouse"
  | "is_relay"
  | "is_name_server";
type Editable = Pick<Node, Key>;
/** Values of the fields: lists are texts. */
export type Typed = { [key in Key]: key extends `is_${string}` ? boolean : string };
export type Changes = Partial<Pick<Node, Exclude<Key, "is_name_server">> & { is_name_server: boolean }>;

const parts = { groups: partsOf, subnets: networksIn, exit_groups: partsOf };
const isList = (key: string): key is keyof typeof parts => key in parts;

/** The texts that the fields show for a node. */
export function typedOf(node: Editable): Typed {
  return {
    name: node.name,
    groups: node.groups.join(", "),
    subnets: node.subnets.join(", "),
    exit_groups: (node.exit_groups ?? []).join(", "),
    public_ip: node.public_ip ?? "",
    is_lighthouse: node.is_lighthouse,
    is_relay: node.is_relay,
    is_name_server: node.is_name_server === true,
  };
}

/** As PATCH takes it. `before`: the node whose texts the fields had. */
export function changesOf(before: Editable, typed: Typed): Changes {
  const old = typedOf(before);
  const publicIp = typed.public_ip.trim();
  const desired: Changes = {
    ...typed,
    groups: parts.groups(typed.groups),
    subnets: parts.subnets(typed.subnets),
    exit_groups: parts.exit_groups(typed.exit_groups),
    public_ip: publicIp === "" ? null : publicIp,
  };
  const isSame = (key: Key) =>
    String(desired[key] ?? "") === String((isList(key) ? before[key] : old[key]) ?? "");
  return Object.fromEntries(Object.entries(desired).filter(([key]) => !isSame(key as Key)));
}

/** The fields that changed on the control plane meanwhile. */
export function changedKeys(before: Editable, now: Editable): Key[] {
  const [old, next] = [typedOf(before), typedOf(now)];
  return (Object.keys(old) as Key[]).filter((key) => old[key] !== next[key]);
}

/**
 * The fields for the present node. Untouched ones follow it; the user's additions and removals of a list are
 * applied to the present list.
 */
export function rebased(typed: Typed, before: Editable, now: Editable): Typed {
  const [old, next] = [typedOf(before), typedOf(now)];
  const merged = (key: Key) => {
    if (typed[key] === old[key]) return next[key];
    if (!isList(key)) return typed[key];
    const [was, mine] = [before[key] ?? [], parts[key](typed[key])];
    const kept = (now[key] ?? []).filter((each) => mine.includes(each) || !was.includes(each));
    return [...new Set([...kept, ...mine.filter((each) => !was.includes(each))])].join(", ");
  };
  return Object.fromEntries(Object.keys(old).map((key) => [key, merged(key as Key)])) as Typed;
}
