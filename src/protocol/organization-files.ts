// Two JSON files of an organization's directory on a machine.

import * as v from "valibot";
import { address, Mode, NodeName, OrderKey, Port, Slug, text, time, listOf } from "./values.ts";
import { foreignText } from "../base/text.ts";

export const maxExits = 64;

export const mostTcpWays = 64;
/** As many nodes as a seal may have. */
const mostSealedNames = 2000;
/** `at` of a TcpWay by the control plane's own listener. */
export const atPlane = "plane";
/** `at`: host and port of a TCP listener, or `atPlane`. `port`: the UDP port of the engine there. */
export const TcpWay = v.object({ at: text(270), port: Port });
export type TcpWay = v.InferOutput<typeof TcpWay>;

/** node-config.json. */
export const NodeConfig = v.object({
  schema: v.literal(1),
  node_id: v.number(),
  name: NodeName,
  org_slug: Slug,
  ip_address: address,
  ip_address6: v.optional(v.nullable(address)),
  network: address,
  mode: Mode,
  is_lighthouse: v.boolean(),
  is_relay: v.boolean(),
  config_version: v.number(),
  order_key: v.optional(OrderKey),
  registered_at: time,
  /** The node ends when it stops: it tells the control plane. */
  ephemeral: v.optional(v.boolean()),
  /** The exits that the policy lets this node use. Former servers and agents know neither this field nor the next. */
  exits: v.optional(
    listOf(v.object({ name: NodeName, ip_address: address, ip_address6: v.nullable(address) }), maxExits),
  ),
  /** The node is an exit for others. */
  is_exit: v.optional(v.boolean()),
  /** The organization wants to know which flows there are. Former agents ignore it. */
  flows: v.optional(v.boolean()),
  /** False: no router is asked to map a port. Former agents ask none, former servers do not say it. */
  port_mapping: v.optional(v.boolean()),
  /** How lighthouses and relays are reached where UDP is blocked, by overlay address. Former agents ignore it. */
  tcp: v.fallback(v.optional(v.pipe(v.record(address, TcpWay), v.maxEntries(mostTcpWays))), undefined),
  /**
   * Written by a node in a sealed network, from the seal in force: the addresses of the sealed nodes. The first is the one for this
   * node, the others are for nodes outside of that network.
   */
  sealed_names: v.optional(v.pipe(v.record(NodeName, listOf(address, 3)), v.maxEntries(mostSealedNames))),
});
export type NodeConfig = v.InferOutput<typeof NodeConfig>;

/** credentials.json. */
export const Credentials = v.object({
  api_base: v.pipe(foreignText(2048), v.url()),
  org_slug: Slug,
  node_id: v.number(),
  api_token: text(128),
  /** The `seq` of the Move (orders.ts) to a control plane with a public certificate, which ended the trust in api-ca.crt. */
  moved: v.optional(v.number()),
});
export type Credentials = v.InferOutput<typeof Credentials>;
