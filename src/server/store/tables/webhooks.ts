// Webhooks, which follow the audit log, and the alarms.

import {
  integer,
  integerOrNull,
  integerWithDefault,
  json,
  serial,
  since,
  table,
  text,
  textOrNull,
  truth,
  wordWithDefault,
  type TableRow,
} from "../table.ts";
import * as v from "valibot";
import { webhookFormats } from "../../../api/webhooks/delivery-formats.ts";

export const webhooks = table("webhooks", {
  id: serial,
  orgId: integer("REFERENCES organizations (id)"),
  url: text(),
  /** Types of events, `node.*` or `*`. */
  events: json(v.array(v.string())),
  secretSealed: text(),
  createdAt: integer(),
  deletedAt: integerOrNull(),
  /** Events up to this one have become deliveries. */
  seenEventId: since(2, integerWithDefault("DEFAULT 0")),
  /** Who created it: `person/7`, `service/3` or `operator/`; null for rows of older versions. */
  createdBy: since(7, textOrNull()),
  format: since(61, wordWithDefault(webhookFormats, "json")),
  /** As src/api/webhooks/webhooks.ts has them: `22:00-07:00 Europe/Berlin`. */
  quietHours: since(61, textOrNull()),
});
export type WebhookRow = TableRow<typeof webhooks>;

/** Deliveries of events to webhooks. */
export const deliveries = table(
  "deliveries",
  {
    id: serial,
    webhookId: integer("REFERENCES webhooks (id)"),
    eventId: integer("REFERENCES events (id)"),
    attempts: integerWithDefault("DEFAULT 0"),
    /** Null: delivered or given up. */
    nextAt: integerOrNull(),
    /** The result of the last attempt: the HTTP status of the answer, or null, and why it failed. */
    status: integerOrNull(),
    message: textOrNull(),
    deliveredAt: integerOrNull(),
    createdAt: integer(),
  },
  {
    indexes: [
      "CREATE INDEX deliveries_due ON deliveries (next_at) WHERE next_at IS NOT NULL",
      "CREATE INDEX deliveries_webhook ON deliveries (webhook_id, id)",
    ],
  },
);

const Keys = v.array(v.string());

/** What was or is wrong. An alarm is about a few things, each with a key: the id of a node, or the text of a policy test. */
export const alarms = table(
  "alarms",
  {
    id: serial,
    orgId: integer("REFERENCES organizations (id)"),
    /** A word of `alarmRules`. A newer release on this database may have more. */
    kind: text(),
    /** The keys of what it is named after: it ends when they are well. */
    heads: json(Keys),
    /** The keys of what has the same cause. */
    rest: json(Keys),
    title: text(),
    text: text(),
    isUrgent: truth(0),
    /** Its cause came several times within three hours (open-alarms.ts): it ends only after a longer time without it. */
    isFlapping: truth(0),
    /** Since when the cause is there, ms. */
    since: integer(),
    raisedAt: integer(),
    /** Since when the heads are well, ms; null: they are not. */
    wellFrom: integerOrNull(),
    endedAt: integerOrNull(),
  },
  {
    indexes: [
      "CREATE INDEX alarms_open ON alarms (org_id) WHERE ended_at IS NULL",
      "CREATE INDEX alarms_org ON alarms (org_id, raised_at)",
    ],
  },
);
export type AlarmRow = TableRow<typeof alarms>;
