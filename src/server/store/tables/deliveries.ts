// Deliveries of events to webhooks.

import { integer, integerOrNull, integerWithDefault, serial, table, textOrNull } from "../table.ts";

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
