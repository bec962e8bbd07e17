// Users: the signed-in one, how the first user and invited ones begin, new passwords by e-mail, and the list for staff. No
// endpoint sets the password of another user: with it, staff could act as an owner of any organization.

import * as v from "valibot";
import { foreignText } from "../base/text.ts";
import { declare } from "../protocol/settings.ts";
import { endpoint } from "./endpoint.ts";
import { AccessReport } from "./left-access.ts";
import { Email, initially, ListQuery, maxCodeLength, since, Text, Time } from "./values.ts";

export const minPasswordLength = 8;
export const maxPasswordLength = 1024;

/** A password that is compared with the stored one. */
export const Password = foreignText(maxPasswordLength);
export const NewPassword = v.pipe(
  foreignText(maxPasswordLength, `A password can have at most ${maxPasswordLength} characters.`),
  v.minLength(minPasswordLength, `A password needs at least ${minPasswordLength} characters.`),
);

/** The secret in the link of an invitation, of a new password or of the setup. */
const secret = foreignText(64);
const PasswordChange = v.strictObject({ current_password: Password, new_password: NewPassword });
/** For an invitation or a new password. `otp`: a code of the second factor, for an existing user that has one. */
const NewPasswordRequest = v.strictObject({
  secret,
  password: NewPassword,
  otp: v.optional(foreignText(maxCodeLength)),
});
const InvitationSecret = v.strictObject({ secret });
const SetupRequest = v.strictObject({ secret, email: Email, password: NewPassword });
/** What staff choose for a new user, and nobody can change later. */
export const userSettings = declare({
  is_staff: {
    takes: v.boolean(),
    flag: "staff",
    help: "Can create users and organizations, see all of them, and open the API documentation",
    section: "User",
    label: "Staff: manages users and organizations, and reads all of them",
    initial: false,
    stays: true,
  },
});
/** What else ends when a user is disabled, or a member removed. */
export const leaverSettings = declare({
  revoke_tokens: {
    takes: v.boolean(),
    flag: "revoke-tokens",
    help: "Also revoke their registration and service tokens, and delete their webhooks",
    section: "Leaver",
    label:
      "Also revoke their tokens, and delete their webhooks. With both, also machines that came by these tokens",
    initial: false,
  },
  revoke_nodes: {
    takes: v.boolean(),
    flag: "revoke-nodes",
    help: "Also revoke the nodes that belong to them, and with --revoke-tokens those that came by these tokens",
    section: "Leaver",
    label: "Also revoke the machines that belong to them",
    initial: false,
  },
});
const UserRequest = v.strictObject({ email: Email, password: NewPassword, ...initially(userSettings) });
const UserPatch = v.strictObject({ is_active: v.boolean(), ...initially(leaverSettings) });

export const Me = v.object({ id: v.number(), email: Text, is_staff: v.boolean() });
export const User = v.object({
  ...Me.entries,
  is_active: v.boolean(),
  created_at: Time,
  last_login_at: v.nullable(Time),
});
export type User = v.InferOutput<typeof User>;
const Joined = v.object({ email: Text, org_slug: Text });
export type Joined = v.InferOutput<typeof Joined>;
const UserWithAccess = v.object({ ...User.entries, ...AccessReport.entries });

export const ownUserApi = {
  retrieve: endpoint({
    name: "user_retrieve",
    method: "GET",
    path: "/api/user/",
    access: "person",
    summary: "The signed-in user",
    answers: {
      200: {
        description: "The user",
        /** `server_version`: of the server that sends this answer. */
        schema: v.object({ ...Me.entries, server_version: since("0.2.0", Text) }),
      },
    },
  }),
  changePassword: endpoint({
    name: "user_password_create",
    method: "POST",
    path: "/api/user/password/",
    access: "person",
    fresh: true,
    summary: "Change the password. All sessions end and must sign in again",
    body: PasswordChange,
    answers: { 204: { description: "Changed" } },
    errors: ["invalid_credentials"],
  }),
};

const joined = { 200: { description: "The user and the organization", schema: Joined } } as const;

/** How users get their accounts: by an invitation, or as the first user of a control plane. */
export const joiningApi = {
  accept: endpoint({
    name: "join_create",
    method: "POST",
    path: "/api/join/",
    access: "public",
    fresh: false,
    summary: "Accept an invitation, with a new password or with the password of an existing user",
    body: NewPasswordRequest,
    answers: joined,
    errors: ["not_found", "invalid_credentials", "second_factor_required", "invalid_code"],
  }),
  find: endpoint({
    name: "join_find",
    method: "POST",
    path: "/api/join/find/",
    access: "public",
    fresh: false,
    summary: "The address and the organization of an open invitation",
    body: InvitationSecret,
    answers: { 200: { description: "Whom the invitation is for, and where it leads", schema: Joined } },
    errors: ["not_found"],
  }),
  acceptAsUser: endpoint({
    name: "user_join_create",
    method: "POST",
    path: "/api/user/join/",
    access: "person",
    fresh: false,
    summary: "Accept an invitation as the signed-in user, whose address it has to name",
    body: InvitationSecret,
    answers: joined,
    errors: ["not_found"],
  }),
  setup: endpoint({
    name: "setup_create",
    method: "POST",
    path: "/api/setup/",
    access: "public",
    fresh: false,
    summary: "Create the first user, with the secret from the link that the server printed",
    body: SetupRequest,
    answers: { 201: { description: "The user, who is staff", schema: User } },
    errors: ["not_found"],
  }),
};

export const passwordResetApi = {
  request: endpoint({
    name: "password_reset_create",
    method: "POST",
    path: "/api/password_reset/",
    access: "public",
    fresh: false,
    summary: "Send a link for a new password by e-mail, if there is a user of this address",
    body: v.strictObject({ email: Email }),
    answers: { 204: { description: "Sent, if there is such a user" } },
    errors: ["conflict"],
  }),
  confirm: endpoint({
    name: "password_reset_confirm_create",
    method: "POST",
    path: "/api/password_reset/confirm/",
    access: "public",
    fresh: false,
    summary: "Set the new password, with the secret of the link. All sessions end; second factors stay",
    body: NewPasswordRequest,
    answers: { 204: { description: "Set" } },
    errors: ["not_found", "invalid_credentials"],
  }),
  page: endpoint({
    name: "reset_retrieve",
    method: "GET",
    path: "/reset/",
    access: "public",
    summary: "The page that the link for a new password opens",
    answers: { 200: { description: "A page", type: "text/html" } },
  }),
};

/** For staff. Members of organizations are in members.ts. */
export const usersApi = {
  list: endpoint({
    name: "users_list",
    method: "GET",
    path: "/api/users/",
    access: "staff",
    summary: "All users of this control plane",
    query: ListQuery,
    answers: { 200: { description: "Users", schema: v.array(User) } },
  }),
  create: endpoint({
    name: "users_create",
    method: "POST",
    path: "/api/users/",
    access: "staff",
    fresh: true,
    summary: "Create a user. Organizations add the user without an invitation",
    body: UserRequest,
    answers: { 201: { description: "The user", schema: User } },
    errors: ["conflict"],
  }),
  retrieve: endpoint({
    name: "users_retrieve",
    method: "GET",
    path: "/api/users/{id}/",
    access: "staff",
    summary: "One user, with what the user can use: nodes, tokens, webhooks",
    answers: { 200: { description: "The user", schema: UserWithAccess } },
  }),
  update: endpoint({
    name: "users_partial_update",
    method: "PATCH",
    path: "/api/users/{id}/",
    access: "staff",
    fresh: true,
    summary:
      "Disable a user, which ends the sessions, or enable the user again. Tokens and nodes stay unless revoke_tokens and revoke_nodes are true; both also revoke nodes that came by these tokens; the answer lists them",
    body: UserPatch,
    answers: {
      200: { description: "The user, with what the user can still use", schema: UserWithAccess },
    },
    errors: ["conflict"],
  }),
};
