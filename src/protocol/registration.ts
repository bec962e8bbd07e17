// Registration of a node. Requests are strict: an unknown field is refused.

import * as v from "valibot";
import { DownloadAnswer } from "./download.ts";
import { Node } from "./node.ts";
import { Mode, NodeName, Port, PublicAddress, received, text, wholeWithin } from "./values.ts";

/**
 * A former server refuses unknown fields. An agent may send a field that is added here only after the server has
 * announced that it accepts it, in an answer before the registration. No field needed that so far.
 */
export const RegisterRequest = v.strictObject({
  name: NodeName,
  /** The public half of host.key, PEM. */
  host_public_key: text(512),
  /** A request for an X.509 certificate, PEM (PKCS #10). Without it the node gets none. */
  node_csr: v.optional(text(4096)),
  ip_address: v.optional(text(45)),
  mode: v.optional(Mode),
  is_lighthouse: v.optional(v.boolean()),
  is_relay: v.optional(v.boolean()),
  public_ip: v.optional(PublicAddress),
  external_port: v.optional(Port),
  listen_port: v.optional(wholeWithin(0, 65_535)),
  platform: v.optional(text(64)),
  version: v.optional(text(64)),
  overlay_version: v.optional(text(64)),
  registration_token: v.optional(text(128)),
});
export type RegisterRequest = v.InferOutput<typeof RegisterRequest>;

/** 202: an administrator has to approve the machine. It repeats the same request after `retry_after` seconds. */
export const RegisterWaiting = v.object({
  state: v.literal("waiting"),
  retry_after: wholeWithin(1, 3600),
});
export type RegisterWaiting = v.InferOutput<typeof RegisterWaiting>;

export const RegisterAnswer = v.object({
  node: Node,
  api_token: text(128),
  config: DownloadAnswer,
  /** Rights of the token that the registration did not use: `lighthouse`. */
  unused_right: v.optional(received(64)),
});
export type RegisterAnswer = v.InferOutput<typeof RegisterAnswer>;
