// The CAs of an organization, and their rotation.

import * as v from "valibot";
import { endpoint } from "../endpoint.ts";
import { since, Text, Time, word } from "../values.ts";

export const rotationActions = ["pause", "resume", "rollback"] as const;

const RotationRequest = v.strictObject({
  action: v.picklist(["start", ...rotationActions]),
  now: v.optional(
    v.pipe(
      v.boolean(),
      v.description(
        "Do not wait for tunnels: the former CAs leave as soon as all online nodes have confirmed their new " +
          "certificates. Tunnels that still use a former CA are torn down and can lose packets for some seconds. With " +
          "`start` it also applies to a rotation that is under way.",
      ),
    ),
  ),
  limited: v.optional(
    v.pipe(
      v.boolean(),
      v.description(
        "With `start`: the new overlay CA certifies IPv4 addresses of the organization alone, and no networks behind nodes, " +
          "which an offline CA then certifies. Later rotations keep the limit.",
      ),
    ),
  ),
});
export type RotationRequest = v.InferOutput<typeof RotationRequest>;

export const Authorities = v.object({
  cas: v.array(
    v.object({
      fingerprint: Text,
      kind: word(["overlay", "x509"]),
      /** `active`: it signs. `next`: it will, once nodes trust it. `former`: it signs no more. */
      state: word(["next", "active", "former"]),
      /** It is in the bundle of CAs that nodes get now. */
      trusted: v.boolean(),
      /** Its key is on the machines of signers. */
      offline: since("0.2.0", v.boolean()),
      not_before: Time,
      not_after: Time,
    }),
  ),
  rotation: v.object({
    /** `trust`: nodes come to trust the new CAs. `issue`: they get certificates of these. `retire`: they stop trusting the former. */
    phase: word(["none", "trust", "issue", "retire"]),
    paused: v.boolean(),
    /** The rotation goes back to the former CAs. It cannot be rolled back a second time. */
    rolling_back: since("0.2.0", v.boolean()),
    /** The ids and names of the nodes that have to confirm before the next step. */
    waiting_for: v.array(v.number()),
    waiting_for_names: v.array(Text),
    /** Nodes enforce a seal that lacks the new CA. The rotation goes on when signers have signed a seal with it. */
    awaits_signers: since("0.2.0", v.boolean()),
    /** When the next step follows. Null while nodes have to confirm first. */
    next_step_at: since("0.2.0", v.nullable(Time)),
    /** The server starts a rotation by itself when less than two lifetimes of a node's certificate are left. */
    auto: v.boolean(),
  }),
  /** Blocked certificates of trusted CAs: 0 after a finished rotation. */
  blocklist: since("0.2.0", v.object({ entries: v.number(), limit: v.number() })),
});
export type Authorities = v.InferOutput<typeof Authorities>;

const answers = { 200: { description: "CAs and rotation", schema: Authorities } };

export const authoritiesApi = {
  retrieve: endpoint({
    name: "ca_retrieve",
    method: "GET",
    path: "/api/org/{slug}/ca/",
    access: "member",
    summary: "The organization's CAs and the state of their rotation",
    answers,
  }),
  rotate: endpoint({
    name: "ca_rotate",
    method: "POST",
    path: "/api/org/{slug}/ca/rotate/",
    access: "admin",
    summary: "Replace the CAs while all tunnels stay up, or change a running rotation",
    fresh: true,
    body: RotationRequest,
    answers,
    errors: ["conflict"],
  }),
};
