// What goes through the nodes of an organization in steps: the rotation of its CAs, and updates in rings.

import * as v from "valibot";
import { NodeName, text } from "../protocol/values.ts";
import { UpdateVersion } from "../protocol/updates/order.ts";
import { foreignText } from "../base/text.ts";
import { endpoint } from "./endpoint.ts";
import { GroupName, ListQuery, since, Text, Time, word } from "./values.ts";

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
      state: word(["next", "active", "former"]),
      /** In the bundle that nodes get now. */
      trusted: v.boolean(),
      /** Its key is on the machines of signers. */
      offline: since("0.2.0", v.boolean()),
      not_before: Time,
      not_after: Time,
    }),
  ),
  rotation: v.object({
    phase: word(["none", "trust", "issue", "retire"]),
    paused: v.boolean(),
    /** The steps lead back to the former CAs. It cannot be rolled back once more. */
    rolling_back: since("0.2.0", v.boolean()),
    waiting_for: v.array(v.number()),
    waiting_for_names: v.array(Text),
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

const Pem = (max: number) => v.pipe(foreignText(max), v.regex(/^-----BEGIN NEBULA CERTIFICATE/));
/** Two certificates of each of 500 nodes. */
const maxPems = 2_097_152;

/** A node that needs a certificate of an offline CA: all that a signer puts into it. */
const Sealable = v.object({
  name: NodeName,
  host_public_key: foreignText(1024),
  groups: v.array(text(255)),
  addresses: v.array(text(45)),
  versions: v.array(
    v.object({
      version: v.picklist([1, 2]),
      networks: v.array(text(64)),
      unsafe_networks: v.array(text(64)),
    }),
  ),
  /** lighthouse, relay, router, exit, or a group. */
  why: v.array(Text),
  /** The end of its certificate by an offline CA; null: it has none. */
  certified_until: v.nullable(Time),
  /** The offline CA of that certificate. */
  issuer: v.nullable(Text),
  /** That certificate has all that the node has. */
  is_whole: v.boolean(),
  agent_version: v.nullable(Text),
  engine_version: v.nullable(Text),
});
export type Sealable = v.InferOutput<typeof Sealable>;

export const sealsApi = {
  sealable: endpoint({
    name: "seals_sealable_create",
    method: "POST",
    path: "/api/org/{slug}/seals/sealable/",
    access: "admin",
    scope: "policy",
    reads: true,
    summary:
      "The nodes that need certificates of an offline CA: lighthouses, relays, routers, exits, and members of groups",
    body: v.strictObject({ groups: v.pipe(v.array(text(255)), v.maxLength(1000)) }),
    answers: {
      200: {
        description: "The nodes, and how many nodes run each version of the agent",
        schema: v.object({
          nodes: v.array(Sealable),
          agents: v.array(v.object({ agent: Text, n: v.number() })),
          /** How many nodes run each version of the engine. */
          engines: since("0.2.0", v.array(v.object({ engine: Text, n: v.number() }))),
        }),
      },
    },
  }),
  addAuthority: endpoint({
    name: "seals_ca_create",
    method: "POST",
    path: "/api/org/{slug}/seals/ca/",
    // Whoever has its key gives rights that no removal from the organization ends.
    access: "owner",
    summary: "Add an offline CA, which all nodes trust beside the CA of the control plane",
    grows: true,
    fresh: true,
    body: v.strictObject({ certificate: Pem(8192) }),
    answers: { 201: { description: "It is added", schema: v.object({ fingerprint: Text }) } },
    errors: ["conflict", "bad_request"],
  }),
  addCertificates: endpoint({
    name: "seals_certificates_create",
    method: "POST",
    path: "/api/org/{slug}/seals/certificates/",
    access: "admin",
    scope: "policy",
    summary:
      "Store certificates that an offline CA has signed. Their nodes get them in place of those of the control plane",
    grows: true,
    fresh: true,
    maxBody: maxPems + 65_536,
    body: v.strictObject({ certificates: Pem(maxPems) }),
    answers: {
      201: { description: "The nodes that get new ones", schema: v.object({ nodes: v.array(Text) }) },
    },
    errors: ["conflict", "bad_request"],
  }),
};

export const days = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"] as const;

const hour = v.pipe(v.number(), v.integer(), v.minValue(0), v.maxValue(24));
/** When nodes may be updated, in their own time. `until` before `from`: over midnight. Without any: always. */
export const RolloutHours = v.pipe(
  v.array(
    v.strictObject({
      /** Empty: each day. */
      days: v.pipe(v.array(v.picklist(days)), v.maxLength(7)),
      from: hour,
      until: hour,
    }),
  ),
  v.maxLength(14),
);
export type RolloutHours = v.InferOutput<typeof RolloutHours>;

/** How long a ring is watched, in seconds, unless the request says otherwise. */
export const usualWatchS = 1800;

const RolloutRequest = v.strictObject({
  agent: v.optional(UpdateVersion),
  engine: v.optional(UpdateVersion),
  /** Groups of nodes; empty: all nodes. */
  groups: v.optional(v.pipe(v.array(GroupName), v.maxLength(64)), []),
  hours: v.optional(RolloutHours, []),
  watch_s: v.optional(v.pipe(v.number(), v.integer(), v.minValue(10), v.maxValue(86_400)), usualWatchS),
});
export type RolloutRequest = v.InferOutput<typeof RolloutRequest>;

export const rolloutActions = ["pause", "resume", "abort"] as const;
const RolloutAction = v.strictObject({ action: v.picklist(rolloutActions) });

const Counts = v.object({
  waiting: v.number(),
  updating: v.number(),
  passed: v.number(),
  left_out: v.number(),
});

export const rolloutStates = ["running", "paused", "returning", "stopped", "passed"] as const;

export const Rollout = v.object({
  id: v.number(),
  agent: v.nullable(Text),
  engine: v.nullable(Text),
  groups: v.array(Text),
  hours: RolloutHours,
  watch_s: v.number(),
  /** returning: a ring is taken back. */
  state: word(rolloutStates),
  /** 0: its nodes are being chosen, which takes a large organization some seconds. */
  ring: v.number(),
  rings: v.array(Counts),
  /** Outside of the hours of all nodes that the ring waits for: when those of the first one begin. */
  waits_until: since("0.2.0", v.nullable(Time)),
  /** Why it stopped or pauses; empty: it did not. */
  reason: Text,
  /** The node that stopped it, the probe that failed, and the line of a log, which is empty for members. */
  failed_node: v.nullable(Text),
  probe: Text,
  log: Text,
  created_at: Time,
  ended_at: v.nullable(Time),
});
export type Rollout = v.InferOutput<typeof Rollout>;

export const rolloutNodeStates = [
  "waiting",
  "told",
  "applied",
  "passed",
  "failed",
  "returning",
  "returned",
  "refused",
  "skipped",
] as const;

export const RolloutNode = v.object({
  node: v.number(),
  node_name: Text,
  ring: v.number(),
  state: word(rolloutNodeStates),
  since: Time,
  reason: Text,
  probe: Text,
  log: Text,
});

export type RolloutNode = v.InferOutput<typeof RolloutNode>;

const shown = { 200: { description: "The rollout", schema: Rollout } };

export const rolloutsApi = {
  list: endpoint({
    name: "rollouts_list",
    method: "GET",
    path: "/api/org/{slug}/rollouts/",
    access: "member",
    summary: "Updates in rings, the newest first",
    query: ListQuery,
    answers: { 200: { description: "Rollouts", schema: v.array(Rollout) } },
  }),
  create: endpoint({
    name: "rollouts_create",
    method: "POST",
    path: "/api/org/{slug}/rollouts/",
    access: "admin",
    usersOnly: true,
    summary:
      "Update nodes in rings: one node, 5 %, 25 %, all. Only nodes whose root permits it (`--allow-updates`), and never to a lower version",
    fresh: true,
    grows: true,
    body: RolloutRequest,
    answers: { 201: { description: "The rollout", schema: Rollout } },
    errors: ["conflict"],
  }),
  retrieve: endpoint({
    name: "rollouts_retrieve",
    method: "GET",
    path: "/api/org/{slug}/rollouts/{id}/",
    access: "member",
    summary: "One update in rings",
    answers: shown,
  }),
  nodes: endpoint({
    name: "rollouts_nodes",
    method: "GET",
    path: "/api/org/{slug}/rollouts/{id}/nodes/",
    access: "member",
    summary: "The nodes of an update in rings, those first that failed",
    query: ListQuery,
    answers: { 200: { description: "Nodes", schema: v.array(RolloutNode) } },
  }),
  steer: endpoint({
    name: "rollouts_steer",
    method: "POST",
    path: "/api/org/{slug}/rollouts/{id}/steer/",
    access: "admin",
    usersOnly: true,
    summary: "Pause an update in rings, resume it, or abort it: then the present ring goes back",
    fresh: true,
    body: RolloutAction,
    answers: shown,
    errors: ["conflict"],
  }),
};
