// The sides of rules as users type them, and networks behind nodes. Pure.

import type { Router } from "../../protocol/networks-behind.ts";

/** Shown where a rule or a node names networks behind nodes. */
export const gatewayWords =
  "What reaches a node reaches all networks behind it. A rule opens one network alone if its To is that network.";

/** The node in front of an IPv4 address, or of a network. */
export function routerTo<T extends Router>(text: string, nodes: readonly T[]): T | undefined {
  /** "10.0.0.0/8" and "10.0.0.0": the 32 bits of the address as text. */
  const bitsOf = (address: string) =>
    address.replaceAll(/(\d+)(\.|\/.*|$)/g, (_, part) => Number(part).toString(2).padStart(8, "0"));
  const isIn = (network: string) =>
    /^(\d+\.){3}\d+(\/|$)/.test(text) &&
    bitsOf(text).startsWith(bitsOf(network).slice(0, Number(network.split("/")[1])));
  return nodes.find(({ subnets }) => subnets.some(isIn));
}

/** The target of a rule, as rules write it: a network alone gets the prefix of a network behind nodes. */
export const targetOf = (word: string): string =>
  /^[\d.a-f:]+\/\d{1,3}$/i.test(word) ? `network:${word.toLowerCase()}` : word;

/** The peer of a rule, as rules write it: without that prefix. A change of the direction makes the target the peer, prefix included. */
export const peerOf = (word: string): string => word.replace(/^network:/, "");

/**
 * The side that was typed, as rules write it: `web` is the group or the node of this name, "all nodes" is `any`. A name that
 * is neither is a group that is to be created.
 */
export function toSide(typed: string, groups: readonly string[], nodes: readonly string[]): string {
  const text = typed.trim();
  if (/^(any|all|all (nodes|machines))$/i.test(text)) return "any";
  if (text === "" || text.includes("/") || /^(group|node|user|idp):/.test(text)) return text;
  return !groups.includes(text) && nodes.includes(text) ? `node:${text}` : `group:${text}`;
}

export type Sides = Record<"groups" | "words" | "emails" | "nodes", readonly string[]>;
const maxOffered = 50;

/** The first sides that contain what was typed. `words`: of groups of providers. `mayBeSelf`: the side is the rule's peer. */
export function sidesFor(
  typed: string,
  { groups, words, emails, nodes }: Sides,
  mayBeSelf: boolean,
): string[] {
  const all = [
    "any",
    ...(mayBeSelf ? ["self"] : []),
    ...groups.map((name) => `group:${name}`),
    ...words,
    ...emails.map((email) => `user:${email}`),
    ...nodes.map((name) => `node:${name}`),
  ];
  return all.filter((each) => each.includes(typed)).slice(0, maxOffered);
}
