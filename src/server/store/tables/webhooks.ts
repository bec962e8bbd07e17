// Webhooks, which follow the audit log.

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
} from "../table.ts";
import * as v from "valibot";

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
