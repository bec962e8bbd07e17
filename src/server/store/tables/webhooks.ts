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
