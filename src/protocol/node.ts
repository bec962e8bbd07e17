// A node, as the control plane describes it.

import * as v from "valibot";
import { address, Certificate, DataPlaneReport, Mode, received, time, listOf } from "./values.ts";

export const Node = v.object({
  id: v.number(),
  name: received(255),
  ip_address: address,
  ip_address6: v.nullable(address),
  subnets: listOf(address, 4096),
  state: v.picklist(["pending", "active", "revoked"]),
  online: v.boolean(),
  mode: v.nullable(Mode),
  is_lighthouse: v.boolean(),
  is_relay: v.boolean(),
  is_name_server: v.optional(v.boolean()),
  /** The groups whose nodes may use it as an exit. Former servers do not send it. */
  exit_groups: v.optional(listOf(received(255), 4096)),
  public_ip: v.nullable(received(255)),
  external_port: v.nullable(v.number()),
  groups: listOf(received(255), 4096),
  config_overrides: v.pipe(v.record(received(255), v.unknown()), v.maxEntries(1000)),
  certificate: v.nullable(Certificate),
  config_version: v.number(),
  applied_config_version: v.nullable(v.number()),
  /**
   * Since when, or longer, the node has been online without applying a newer configuration; null for less than ten minutes,
   * because nodes need seconds. Former servers, and answers to changes, do not have it.
   */
  not_applied_since: v.optional(v.nullable(time)),
  /**
   * The gravest kind of what the node found wrong at its last check-in (src/protocol/finding-kinds.ts). Former servers do not send it.
   */
  finding: v.optional(v.nullable(received(64))),
  agent_version: v.nullable(received(255)),
  overlay_version: v.nullable(received(255)),
  /** Null: not reported, for example by former agents. Former servers do not send it. */
  data_plane: v.optional(v.nullable(DataPlaneReport)),
  /**
   * What rollouts may change on it: `agent` and `engine` if root of its machine permits them, `settings` if it can try them.
   * Empty: nothing, or not reported. Former servers do not send it.
   */
  may_update: v.optional(listOf(received(16), 100)),
  platform: v.nullable(received(255)),
  last_checkin_at: v.nullable(time),
  created_at: time,
  revoked_at: v.nullable(time),
  /** For a revoked node: the actor, `person/3`, and the given reason. Former servers send neither. */
  revoked_by: v.optional(received(255)),
  revoke_reason: v.optional(received(1000)),
  /** The user whose node it is (null: the organization's), and its groups while it is. Former servers send neither. */
  owner_id: v.optional(v.nullable(v.number())),
  owner_groups: v.optional(listOf(received(255), 4096)),
  /** It ends when it leaves or is silent. Former servers do not send it. */
  ephemeral: v.optional(v.boolean()),
  /** It is a phone: it never checks in, and learns of changes by an import only. Former servers do not send it. */
  phone: v.optional(
    v.nullable(
      v.object({
        system: v.picklist(["android", "ios"]),
        imported_at: time,
        /** When it should be imported again. Null: at once, because its site file is out of date. */
        import_by: v.nullable(time),
      }),
    ),
  ),
});
export type Node = v.InferOutput<typeof Node>;
