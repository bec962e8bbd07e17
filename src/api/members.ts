// Members of an organization, and open invitations.

import * as v from "valibot";
import { endpoint, roles } from "./endpoint.ts";
import { AccessReport, DeletionQuery } from "./left-access.ts";
import { Email, ListQuery, since, Switch, Text, Time, word } from "./values.ts";

/** For so many hours an invitation may be accepted. */
export const invitationHours = 72;

const MemberRequest = v.strictObject({ email: Email, role: v.optional(v.picklist(roles), "member") });
const MemberPatch = v.strictObject({
  role: v.picklist(roles),
  /**
   * The id of the user who becomes owner. Needed for a user whom an invitation of someone else created: the address proves nothing
   * (server/users/ownership.ts).
   */
  owner_id: v.optional(v.pipe(v.number(), v.integer(), v.minValue(1))),
});
const MemberDeletion = v.strictObject({ ...DeletionQuery.entries, revoke_tokens: Switch });

export const Member = v.object({
  id: v.number(),
  email: Text,
  role: word(roles),
  state: word(["active", "invited"]),
  created_at: Time,
  expires_at: v.nullable(Time),
  /** The number of the user in events; null while invited. */
  user_id: since("0.2.0", v.nullable(v.number())),
});
export type Member = v.InferOutput<typeof Member>;
/** In the list. `node_count`: nodes that are theirs, without revoked ones. */
export const ListedMember = v.object({
  ...Member.entries,
  node_count: since("0.2.0", v.number()),
  /** The user is disabled in the whole control plane, and can sign in nowhere. */
  is_disabled: since("0.2.0", v.boolean()),
  /** By which the user proves a second factor; null while invited, and for callers who are not administrators. */
  second_factors: since("0.2.0", v.nullable(v.array(word(["totp", "passkey"])))),
  /** The last request of the user, in any organization; null while invited, before the first one, and for such callers. */
  last_seen_at: since("0.2.0", v.nullable(Time)),
});
export type ListedMember = v.InferOutput<typeof ListedMember>;
/** `link` is shown once. The inviter passes it on, unless it was sent by e-mail. */
export const NewMember = v.object({
  ...Member.entries,
  link: v.optional(Text),
  is_emailed: v.optional(v.boolean()),
});
export type NewMember = v.InferOutput<typeof NewMember>;

const headers = {
  "X-Tokens-Left?":
    "Tokens that they created and that still work, as paths below the organization; at most 100, the event has all",
};

export const membersApi = {
  list: endpoint({
    name: "members_list",
    method: "GET",
    path: "/api/org/{slug}/members/",
    access: "member",
    usersOnly: true,
    summary: "Members and open invitations",
    query: ListQuery,
    answers: { 200: { description: "Members", schema: v.array(ListedMember) } },
  }),
  retrieve: endpoint({
    name: "members_retrieve",
    method: "GET",
    path: "/api/org/{slug}/members/{id}/",
    access: "member",
    usersOnly: true,
    summary: "One member",
    answers: { 200: { description: "The member", schema: Member } },
  }),
  create: endpoint({
    name: "members_create",
    method: "POST",
    path: "/api/org/{slug}/members/",
    access: "admin",
    usersOnly: true,
    summary:
      "Add a user that the operator created, or invite an address: by e-mail where an SMTP server is configured, else the answer has a link. Staff and members of other organizations are invited too",
    grows: true,
    fresh: true,
    body: MemberRequest,
    answers: { 201: { description: "The member, or the invitation with its link", schema: NewMember } },
    errors: ["conflict"],
  }),
  update: endpoint({
    name: "members_partial_update",
    method: "PATCH",
    path: "/api/org/{slug}/members/{id}/",
    access: "admin",
    usersOnly: true,
    summary:
      "Change a member's role. Invitations that a former administrator sent expire; tokens, nodes and webhooks stay, and the answer lists them",
    fresh: true,
    body: MemberPatch,
    answers: {
      200: {
        description: "The member, with what a former administrator can still use",
        schema: v.object({ ...Member.entries, ...AccessReport.entries }),
        headers,
      },
    },
    errors: ["conflict", "owner_unconfirmed"],
  }),
  delete: endpoint({
    name: "members_destroy",
    method: "DELETE",
    path: "/api/org/{slug}/members/{id}/",
    access: "admin",
    usersOnly: true,
    summary:
      "Remove a member. Invitations that they sent expire. Nodes that belong to them stay unless ?revoke_nodes=true, or unless the organization revokes the nodes of users who leave; tokens and webhooks that they created stay unless ?revoke_tokens=true. Both also revoke the organization's nodes that came by these tokens",
    fresh: true,
    query: MemberDeletion,
    answers: {
      200: {
        description: "Removed, with ?report=true: what the user could use, and which of it was revoked",
        schema: AccessReport,
        headers,
      },
      204: { description: "Removed", headers },
    },
    errors: ["conflict"],
  }),
};
