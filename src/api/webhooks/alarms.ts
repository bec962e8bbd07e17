// Alarms: what is wrong now, found in one place, whether a webhook tells it or not.

import * as v from "valibot";
import { endpoint } from "../endpoint.ts";
import { oldBackupDays, Text, Time, word } from "../values.ts";

type Rule = {
  /** What its value counts; a `switch` is 1 for on. */
  unit: "minutes" | "days" | "refusals" | "switch";
  /** The value, unless the organization chose another one (alarm-rules.ts). Null: off. */
  initial: number | null;
  /** What raises the alarm, for pages and documents. */
  words: string;
};

/** Every kind of alarm, with its rule. The initial values suit a small company. */
export const alarmRules = {
  lighthouse: { unit: "minutes", initial: 3, words: "A lighthouse has been away for this time" },
  relay: { unit: "minutes", initial: 3, words: "A relay has been away for this time" },
  router: {
    unit: "minutes",
    initial: 3,
    words: "A router to another network, or to the internet (exit), has been away for this time",
  },
  node: { unit: "minutes", initial: 15, words: "Another server (server mode) has been away for this time" },
  desktop: {
    unit: "minutes",
    initial: null,
    words: "A laptop or desktop (desktop mode) has been away for this time",
  },
  path: {
    unit: "minutes",
    initial: 5,
    words: "Two nodes are online, but have not reached each other for this time",
  },
  certificate: { unit: "switch", initial: 1, words: "A node is online, but has not renewed its certificate" },
  ca: { unit: "days", initial: 60, words: "A CA ends within this time, and has no successor" },
  backup: {
    unit: "days",
    initial: oldBackupDays,
    words: "The last backup of the control plane is older than this",
  },
  server: {
    unit: "switch",
    initial: 1,
    words: "The control plane has a problem of its own: disk, clock, database or TLS certificate",
  },
  update: {
    unit: "switch",
    initial: 1,
    words: "A rollout stopped because a node does not work with it, or paused by itself",
  },
  policy: { unit: "switch", initial: 1, words: "A test of the policy fails" },
  sign_ins: { unit: "refusals", initial: 20, words: "This many sign-ins were refused within 10 minutes" },
} as const satisfies Record<string, Rule>;
export type AlarmKind = keyof typeof alarmRules;
export const alarmKinds = Object.keys(alarmRules) as AlarmKind[];

export const Alarm = v.object({
  id: v.number(),
  kind: word(alarmKinds),
  /** The cause, in a sentence. */
  title: Text,
  /** Who cannot reach what, and what that cuts. */
  text: Text,
  urgent: v.boolean(),
  /** The cause came and went several times within three hours. It is notified again only after 15 minutes without the cause. */
  flapping: v.boolean(),
  /** The ids of the nodes that it is about now. */
  nodes: v.array(v.number()),
  /** Since when the cause is there. */
  since: Time,
  raised_at: Time,
  /** Null: it is open. */
  ended_at: v.nullable(Time),
});
export type Alarm = v.InferOutput<typeof Alarm>;

const AlarmTest = v.object({
  /** How many webhooks get it. */
  webhooks: v.number(),
});

export const alarmsApi = {
  list: endpoint({
    name: "alarms_list",
    method: "GET",
    path: "/api/org/{slug}/alarms/",
    access: "member",
    scope: "nodes",
    summary:
      "Alarms: the open ones, and the newest that ended, at most 100; open ones first, then the newest",
    answers: { 200: { description: "Alarms", schema: v.array(Alarm) } },
  }),
  retrieve: endpoint({
    name: "alarms_retrieve",
    method: "GET",
    path: "/api/org/{slug}/alarms/{id}/",
    access: "member",
    scope: "nodes",
    summary: "One alarm",
    answers: { 200: { description: "The alarm", schema: Alarm } },
  }),
  test: endpoint({
    name: "alarms_test",
    method: "POST",
    path: "/api/org/{slug}/alarms/test/",
    access: "admin",
    scope: "webhooks",
    summary:
      "Send a test alarm to every webhook that gets alarms, also in quiet hours. GET webhooks/{id}/deliveries/ tells what became of it",
    grows: true,
    fresh: false,
    body: v.strictObject({}),
    answers: { 202: { description: "How many webhooks get it", schema: AlarmTest } },
  }),
};
