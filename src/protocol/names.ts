// Names inside check-ins, and hosts.json, where a node keeps them.

import * as v from "valibot";
import { ClassName, NamesForPeers } from "./names-for-peers.ts";
import { NodeName, received, recordId, wholeNumber, listOf } from "./values.ts";
import { foreignText } from "../base/text.ts";

/** The maximum number of nodes in hosts.json, and of aliases. */
export const maxNames = 50_000;

/** A domain of at least two labels, in lower case. With the label of a node before it, it is still a DNS name. */
export const NameSuffix = v.pipe(
  foreignText(189),
  v.regex(
    /^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?$/,
    "Enter a domain of two labels or more, in lower case, such as corp.example.",
  ),
);

/** A node with its overlay addresses, as its peers know it. `class`: in `NamesForPeers`; only name servers get it. */
export const NamedNode = v.object({
  id: recordId,
  name: NodeName,
  ip: v.pipe(foreignText(15), v.ipv4()),
  ip6: v.optional(v.pipe(foreignText(45), v.ipv6())),
  class: v.optional(ClassName),
});
export type NamedNode = v.InferOutput<typeof NamedNode>;

/** Another name of a node. With `address`, the name of that address, which the node routes. */
export const NameAlias = v.object({
  id: recordId,
  name: NodeName,
  node_id: recordId,
  address: v.optional(v.pipe(foreignText(45), v.ip())),
});
export type NameAlias = v.InferOutput<typeof NameAlias>;

/** The source of a node's list of names: the version of the names, and which of them the node may see. */
export const NamesPosition = v.object({ version: wholeNumber, view: received(64) });
export type NamesPosition = v.InferOutput<typeof NamesPosition>;

/**
 * The domain of the organization's choice that names also end in, beside `SLUG.internal`; "" for none. Not checked here: it must not
 * fail a check-in, or hide the names.
 */
const suffix = v.optional(received(255));

export const NamesRequest = v.object({
  ...NamesPosition.entries,
  /** The node has read only a part of the whole list. */
  part: v.optional(v.boolean()),
  /** The suffix that the node knows. Absent: send none. Former servers ignore this field and the next. */
  suffix,
  /** The digest of the node's `NamesForPeers`, "" for none. Absent: send none, even to a name server. */
  peers: v.optional(received(64)),
});
export type NamesRequest = v.InferOutput<typeof NamesRequest>;

/** Maximum nodes and aliases in one answer. */
const maxNamesInAnswer = 5000;

const upToMaximum = <const S extends v.GenericSchema>(schema: S) =>
  v.optional(listOf(schema, maxNamesInAnswer), []);

/** Changes of the names since the position in the request. */
export const NamesAnswer = v.object({
  ...NamesPosition.entries,
  /** The answer replaces the node's whole list. */
  whole: v.optional(v.boolean(), false),
  /** There are further changes: ask again with this position. */
  more: v.optional(v.boolean(), false),
  nodes: upToMaximum(NamedNode),
  aliases: upToMaximum(NameAlias),
  /** Ids. The aliases of a removed node are removed with it. */
  removed_nodes: upToMaximum(recordId),
  removed_aliases: upToMaximum(recordId),
  /** Both only if they differ from the request's. */
  suffix,
  peers: v.optional(NamesForPeers),
});
export type NamesAnswer = v.InferOutput<typeof NamesAnswer>;

/** hosts.json: the names that this node may see. */
export const HostsFile = v.object({
  schema: v.literal(1),
  ...NamesPosition.entries,
  nodes: listOf(NamedNode, maxNames),
  aliases: listOf(NameAlias, maxNames),
  suffix,
  peers: v.optional(NamesForPeers),
});
export type HostsFile = v.InferOutput<typeof HostsFile>;
