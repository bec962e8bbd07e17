// What a user, or the holder of a token, can still use after the user or the token has ended.

import * as v from "valibot";
import { Switch, Text, word } from "./values.ts";

const AccessItem = v.object({
  org_slug: Text,
  /** `registration`: a registration that is not complete; `id` is the id of its node. */
  kind: word(["invitation", "node", "registration", "registration_token", "service_token", "webhook"]),
  id: v.number(),
  name: v.nullable(Text),
});
export type AccessItem = v.InferOutput<typeof AccessItem>;
/** What a user or the holder of a token created: what still works, and what was revoked with the user or token. */
export const AccessReport = v.object({
  /** The first 1000. The totals count all. */
  access_left: v.array(AccessItem),
  access_left_total: v.number(),
  access_revoked: v.array(AccessItem),
  access_revoked_total: v.number(),
});
export type AccessReport = v.InferOutput<typeof AccessReport>;

/** The query of deletions that may revoke nodes. `report`: answer 200 with a body instead of 204. */
export const DeletionQuery = v.strictObject({ revoke_nodes: Switch, report: Switch });
/** The query of deletions of tokens, which may have made webhooks as well. */
export const TokenDeletion = v.strictObject({ ...DeletionQuery.entries, revoke_webhooks: Switch });
export type TokenDeletion = v.InferOutput<typeof TokenDeletion>;
export const tokenDeleted = {
  200: {
    description: "Revoked, with ?report=true: what was created with the token, and which of it was revoked",
    schema: AccessReport,
  },
  204: { description: "Revoked" },
} as const;
