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
/** A change of the node, as the API takes it. */
export type Changes = Partial<Pick<Node, Exclude<Key, "is_name_server">> & { is_name_server: boolean }>;

/** The fields that hold a list, each with what makes a list of its text. */
const listIn = { groups: partsOf, subnets: networksIn, exit_groups: partsOf };
const isList = (key: string): key is keyof typeof listIn => key in listIn;

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

/** The body of PATCH: the fields that differ. `before`: the node whose texts the fields had at first. */
export function changesOf(before: Editable, typed: Typed): Changes {
  const typedBefore = typedOf(before);
  const publicIp = typed.public_ip.trim();
  const desired: Changes = {
    ...typed,
    groups: listIn.groups(typed.groups),
    subnets: listIn.subnets(typed.subnets),
    exit_groups: listIn.exit_groups(typed.exit_groups),
    public_ip: publicIp === "" ? null : publicIp,
  };
  // Lists are compared as lists: a text with other blanks or commas is no change.
  const isSame = (key: Key) =>
    String(desired[key] ?? "") === String((isList(key) ? before[key] : typedBefore[key]) ?? "");
  return Object.fromEntries(Object.entries(desired).filter(([key]) => !isSame(key as Key)));
}

/** The fields that changed on the control plane meanwhile. */
export function changedKeys(before: Editable, now: Editable): Key[] {
  const typedBefore = typedOf(before);
  const typedNow = typedOf(now);
  return (Object.keys(typedBefore) as Key[]).filter((key) => typedBefore[key] !== typedNow[key]);
}

/**
 * The texts of the fields after others changed the node from `before` to `now`. Untouched fields follow it; the user's
 * additions and removals of a list are applied to the list of now.
 */
export function rebased(typed: Typed, before: Editable, now: Editable): Typed {
  const typedBefore = typedOf(before);
  const typedNow = typedOf(now);
  const merged = (key: Key) => {
    if (typed[key] === typedBefore[key]) return typedNow[key];
    if (!isList(key)) return typed[key];
    const listBefore = before[key] ?? [];
    const mine = listIn[key](typed[key]);
    const kept = (now[key] ?? []).filter((each) => mine.includes(each) || !listBefore.includes(each));
    return [...new Set([...kept, ...mine.filter((each) => !listBefore.includes(each))])].join(", ");
  };
  return Object.fromEntries(Object.keys(typedBefore).map((key) => [key, merged(key as Key)])) as Typed;
}
