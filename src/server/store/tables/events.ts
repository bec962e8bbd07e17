// The audit log and the webhooks that follow it.

import * as v from "valibot";
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
  type TableRow,
} from "../table.ts";

/** Append-only; each row's hash covers the one before it. `actor`, `before` and `after` are JSON as it is hashed. */
export const events = table(
  "events",
  {
    id: serial,
    orgId: integerOrNull("REFERENCES organizations (id)"),
    at: integer(),
    type: text(),
    actor: text(),
    subject: text(),
    before: textOrNull(),
    after: textOrNull(),
    hash: text(),
  },
  { indexes: ["CREATE INDEX events_org ON events (org_id, id)"] },
);
export type EventRow = TableRow<typeof events>;

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
  /** As memberships.invitedBy. */
  createdBy: since(7, textOrNull()),
});
export type WebhookRow = TableRow<typeof webhooks>;

export const deliveries = table(
  "deliveries",
  {
    id: serial,
    webhookId: integer("REFERENCES webhooks (id)"),
    eventId: integer("REFERENCES events (id)"),
    attempts: integerWithDefault("DEFAULT 0"),
    /** Null: over. */
    nextAt: integerOrNull(),
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
export type DeliveryRow = TableRow<typeof deliveries>;
