// Routes for people: sign-in and sign-out, the own user, invitations.

import * as v from "valibot";
import { brand } from "../../brand.ts";
import { buildInfo } from "../../build-info.ts";
import { AppError } from "../../base/errors.ts";
import { paths } from "../../protocol/paths.ts";
import { TokenPair, TokenRequest } from "../../protocol/sign-in.ts";
import { actorOf } from "../audit/record.ts";
import { sessionIdOf, type UserCaller } from "../users/sessions/browser-sessions.ts";
import { makeFirstAccount } from "../users/first-account.ts";
import { acceptAsUser, acceptInvitation, showInvitation } from "../users/members.ts";
import { NewPassword, setPassword, User } from "../users/users.ts";
import { Email } from "../../api/values.ts";
import { deviceOf, type From } from "../users/sessions/families.ts";
import { signIn, signInForTokens, type Origin } from "../users/sign-in/sign-in.ts";
import { cookiesOf } from "../http/cookies.ts";
import { created, noContent } from "../http/reply.ts";
import { body, nothing, route, type Call, type Route } from "../http/route.ts";
import type { Services } from "../services.ts";
import { foreignText } from "../../base/text.ts";

const token = v.pipe(foreignText(4096), v.minLength(1));
const RefreshRequest = v.strictObject({ refresh: token });
const PasswordRequest = v.strictObject({
  current_password: foreignText(1024),
  new_password: NewPassword,
});
const JoinRequest = v.strictObject({ secret: foreignText(64), password: NewPassword });
const SetupRequest = v.strictObject({
  secret: foreignText(64),
  email: Email,
  password: NewPassword,
});
const Joined = v.object({ email: v.string(), org_slug: v.string() });
export const Me = v.object({
  id: v.number(),
  email: v.string(),
  is_staff: v.boolean(),
});
/** `server_version`: of the server that sends this answer. */
const MeHere = v.object({ ...Me.entries, server_version: v.string() });

export function peopleRoutes(services: Services): Route[] {
  return [...sessionRoutes(services), ...userRoutes(services), ...joiningRoutes(services)];
}

function sessionRoutes(services: Services): Route[] {
  const { sessions } = services;
  return [
    route({
      method: "POST",
      path: paths.token,
      access: "public",
      guesses: true,
      name: "token_create",
      fresh: false,
      summary: "Sign in with e-mail and password, and with `otp` if the answer was `second_factor_required`",
      takes: body(TokenRequest),
      answers: {
        200: {
          description: "A pair of tokens",
          schema: TokenPair,
          headers: {
            "Set-Cookie":
              "By it the device is known at the next sign-in; it gives no rights, and is optional",
          },
        },
      },
      errors: ["invalid_credentials", "second_factor_required", "invalid_code", "throttled"],
      handle: (call, input) => signInForTokens(services, input, originOf(call)),
    }),
    route({
      method: "POST",
      path: paths.tokenRefresh,
      access: "public",
      name: "token_refresh_create",
      fresh: false,
      summary: "Exchange a refresh token for a new pair. The old refresh token stops working",
      takes: body(RefreshRequest),
      answers: { 200: { description: "A pair of tokens", schema: TokenPair } },
      errors: ["token_not_valid"],
      handle: async (call, { refresh }) => ({ body: await sessions.refresh(refresh, fromOf(call)) }),
    }),
    route({
      method: "POST",
      path: paths.tokenRevoke,
      access: "public",
      name: "token_revoke_create",
      fresh: false,
      summary: "Sign out: all refresh tokens of this sign-in stop working",
      takes: body(RefreshRequest),
      answers: { 204: { description: "Signed out" } },
      errors: ["token_not_valid"],
      async handle(_call, { refresh }) {
        await sessions.revoke(refresh);
        return noContent;
      },
    }),
  ];
}

function userRoutes(services: Services): Route[] {
  return [
    route({
      method: "GET",
      path: "/api/user/",
      access: "person",
      name: "user_retrieve",
      summary: "The signed-in user",
      takes: nothing,
      answers: { 200: { description: "The user", schema: MeHere } },
      handle(call) {
        const { userId, email, isStaff } = callingUser(call);
        return {
          body: { id: userId, email, is_staff: isStaff, server_version: buildInfo.version },
        };
      },
    }),
    route({
      method: "POST",
      path: "/api/user/password/",
      access: "person",
      fresh: true,
      name: "user_password_create",
      summary: "Change the password. All sessions end and must sign in again",
      takes: body(PasswordRequest),
      answers: { 204: { description: "Changed" } },
      errors: ["invalid_credentials", "throttled"],
      async handle(call, input) {
        const { userId, email } = callingUser(call);
        const credentials = { email, password: input.current_password };
        const proven = await signIn(services, credentials, originOf(call));
        await setPassword(services, userId, input.new_password, actorOf(call), proven);
        return noContent;
      },
    }),
  ];
}

function joiningRoutes(services: Services): Route[] {
  return [
    route({
      method: "POST",
      path: "/api/join/",
      access: "public",
      name: "join_create",
      fresh: false,
      summary: "Accept an invitation, with a new password or with the password of an existing user",
      takes: body(JoinRequest),
      answers: { 200: { description: "The user and the organization", schema: Joined } },
      errors: ["not_found", "invalid_credentials", "throttled"],
      handle: async (call, input) => ({ body: await acceptInvitation(services, input, originOf(call)) }),
    }),
    route({
      method: "POST",
      path: "/api/join/find/",
      access: "public",
      name: "join_find",
      fresh: false,
      summary: "The address and the organization of an open invitation",
      takes: body(v.strictObject({ secret: JoinRequest.entries.secret })),
      answers: { 200: { description: "Whom the invitation is for, and where it leads", schema: Joined } },
      errors: ["not_found", "throttled"],
      handle: async (call, { secret }) => ({ body: await showInvitation(services, secret, call.address) }),
    }),
    route({
      method: "POST",
      path: "/api/user/join/",
      access: "person",
      name: "user_join_create",
      fresh: false,
      summary: "Accept an invitation as the signed-in user, whose address it has to name",
      takes: body(v.strictObject({ secret: JoinRequest.entries.secret })),
      answers: { 200: { description: "The user and the organization", schema: Joined } },
      errors: ["not_found", "throttled"],
      handle: async (call, { secret }) => ({
        body: await acceptAsUser(services, secret, callingUser(call), call.address),
      }),
    }),
    route({
      method: "POST",
      path: "/api/setup/",
      access: "public",
      name: "setup_create",
      fresh: false,
      summary: "Create the first user, with the secret from the link that the server printed",
      takes: body(SetupRequest),
      answers: { 201: { description: "The user, who is staff", schema: User } },
      errors: ["not_found", "throttled"],
      handle: async (call, input) => created(await makeFirstAccount(services, input, call.address)),
    }),
  ];
}

/** Where a session begins or is used. */
export const fromOf = ({ address, request }: Pick<Call, "address" | "request">): From => ({
  address,
  device: deviceOf(request),
});

export function originOf({ address, request }: Pick<Call, "address" | "request">): Origin {
  return { ...fromOf({ address, request }), cookies: cookiesOf(request) };
}

export function callingUser({ caller }: Call) {
  if (caller.kind === "person") return caller;
  throw new AppError("permission_denied", "Only a signed-in user may call this.", {
    hint: `It concerns your own sign-in: use \`${brand.executable} login\` first, or a browser.`,
  });
}

/** A stolen token must not add machines or make further tokens: it would live on in them. `sentence` refuses it. */
export function browserOf(call: Call, sentence: string): UserCaller {
  const caller = callingUser(call);
  if (sessionIdOf(caller) !== undefined) return caller;
  throw new AppError("permission_denied", sentence);
}
