// The configuration of a node, as it downloads it.

import * as v from "valibot";
import { Node } from "./node.ts";
import { jws, OrderKey, received, text } from "./values.ts";

export const maxEtagLength = 255;

/**
 * The maximum number of entries in a blocklist. They take 7.3 MB of config.yml, of which an agent reads 8 MiB (`yamlLimits` in
 * src/base/yaml.ts). Engines can take more: with 200,000 entries, 1.6.1 reloads in 2.3 s and needs 180 MB; 1.11 and 1.12 reload in
 * 0.6 s.
 */
export const blocklistLimit = 100_000;

/** Server and node warn from this number of entries on. */
export const blocklistWarning = blocklistLimit / 2;

/** The files that the control plane sends. */
export const ConfigFiles = v.object({
  /** More than `yamlLimits` allow: whoever reads the YAML refuses a larger one, and says why. */
  "config.yml": text(16_777_216),
  "ca.crt": text(1_048_576),
  "host.crt": text(262_144),
  /** Absent if the registration had no CSR. */
  "node.crt": v.optional(text(262_144)),
  "node-config.json": text(65_536),
});
export type ConfigFiles = v.InferOutput<typeof ConfigFiles>;

export const DownloadAnswer = v.object({
  config_version: v.number(),
  /** Equals the ETag header. A registration answers with the same files but without this header. */
  etag: v.optional(received(maxEtagLength)),
  node: Node,
  order_key: OrderKey,
  /** If the order key has changed: a JWS of the new key, signed with the previous one. */
  order_key_proof: v.optional(jws),
  /** SignedSeals. Unknown here: seals that cannot be parsed must not keep a revocation from the node. */
  seals: v.optional(v.unknown()),
  files: ConfigFiles,
});
export type DownloadAnswer = v.InferOutput<typeof DownloadAnswer>;
