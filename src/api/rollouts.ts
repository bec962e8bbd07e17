// Rollouts: updates, or changes of engine settings, that go through the nodes of an organization in rings.

import { GroupName, wholeWithin, listOf } from "../protocol/values.ts";
import * as v from "valibot";
import { ConfigOverrides } from "../engine/allowed-settings.ts";
import { settingsWord, updatable, UpdateVersion } from "../protocol/updates/order.ts";
import { endpoint } from "./endpoint.ts";
import { overridesSetting } from "./organizations.ts";
import { ListQuery, since, Text, Time, word } from "./values.ts";

/** What a rollout can change. A node says which of these it may (`may_update`). */
export const rolledOut = [...updatable, settingsWord] as const;

export const days = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"] as const;

const hour = wholeWithin(0, 24);
/** When nodes may be updated, in each node's own time. `until` before `from`: over midnight. An empty list: always. */
export const RolloutHours = listOf(
  v.strictObject({
    /** Empty: each day. */
    days: listOf(v.picklist(days), 7),
    from: hour,
    until: hour,
  }),
  14,
);
export type RolloutHours = v.InferOutput<typeof RolloutHours>;

/** How long a ring is watched, in seconds, unless the request says otherwise. */
export const usualWatchS = 1800;

const RolloutRequest = v.strictObject({
  agent: v.optional(UpdateVersion),
  engine: v.optional(UpdateVersion),
  /** All overrides that the organization is to have. Not with versions or groups: they go to all nodes. */
  settings: v.optional(ConfigOverrides),
  /** Groups of nodes; empty: all nodes. */
  groups: v.optional(listOf(GroupName, 64), []),
  hours: v.optional(RolloutHours, []),
  watch_s: v.optional(wholeWithin(10, 86_400), usualWatchS),
});
export type RolloutRequest = v.InferOutput<typeof RolloutRequest>;

export const rolloutActions = ["pause", "resume", "abort"] as const;
const RolloutAction = v.strictObject({ action: v.picklist(rolloutActions) });

/** Nodes of one ring. `left_out`: failed, went back, refused or were skipped. */
const RingCounts = v.object({
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
  settings: since("0.2.0", v.nullable(overridesSetting.sends)),
  groups: v.array(Text),
  hours: RolloutHours,
  watch_s: v.number(),
  /** `returning`: the nodes of a ring go back to what they ran before. */
  state: word(rolloutStates),
  /** The current ring, from 1. 0: its nodes are being chosen, which takes some seconds in a large organization. */
  ring: v.number(),
  rings: v.array(RingCounts),
  /** When the first waiting node comes into its hours, if the ring waits for hours only; else null. */
  waits_until: since("0.2.0", v.nullable(Time)),
  /** Why it stopped or pauses; empty: it did not. */
  reason: Text,
  /** The node that stopped or paused it, the probe that failed there, and a line of its log, which is empty for members. */
  failed_node: v.nullable(Text),
  probe: Text,
  log: Text,
  created_at: Time,
  ended_at: v.nullable(Time),
});
export type Rollout = v.InferOutput<typeof Rollout>;

/**
 * `waiting` and `skipped`: it was ordered nothing. `told`, `returning`: it was ordered to change, or to go back. The others: as it
 * reported (`UpdateReport`).
 */
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
  /** Why it failed, refused or was skipped, the probe that failed, and a line of its log; each may be empty. */
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
      "Update nodes in rings, or change their settings: one node, 5 %, 25 %, all. Versions: only nodes whose root permits it (`--allow-updates`), and never a lower one",
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
    summary: "Pause an update in rings, resume it, or abort it: then the current ring goes back",
    fresh: true,
    body: RolloutAction,
    answers: shown,
    errors: ["conflict"],
  }),
};
