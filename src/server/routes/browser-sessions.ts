// Routes for the sessions of browsers: sign-in and sign-out.

import { given } from "../../base/given.ts";
import * as v from "valibot";
import { AppError } from "../../base/errors.ts";
import { formatTime } from "../../base/duration.ts";
import { TokenRequest } from "../../protocol/sign-in.ts";
import { cookiesOf, makeSessionCookie, readCookie, sessionCookie } from "../http/cookies.ts";
import { requireOwnPage, requireSecurePage } from "../http/own-page.ts";
import { created, noContent } from "../http/reply.ts";
import { body, nothing, route, type Call, type Reply, type Route } from "../http/route.ts";
import { sessionIdOf, startSession } from "../users/sessions/browser-sessions.ts";
import { endSession } from "../users/sessions/user-sessions.ts";
import { provenAtSignIn } from "../users/factors/second-factor.ts";
import { cookieOfDevice, signIn } from "../users/sign-in/sign-in.ts";
import type { Services } from "../services.ts";
import { signOutPage } from "../oidc/providers.ts";
import { browserSessions, longestMs } from "../store/tables/sessions.ts";
import { Me, originOf, callingUser } from "./people.ts";
import { emailKey } from "../../base/text.ts";

/** The answer of every sign-in with a browser. */
export const Started = {
  description: "The user, and when the session ends at the latest",
  schema: v.object({ ...Me.entries, expires_at: v.string() }),
  headers: { "Set-Cookie": "The session, and a cookie by which the device is known" },
};

export function browserRoutes(services: Services): Route[] {
  const { publicUrl } = services;
  const path = "/api/session/";
  return [
    route({
      method: "POST",
      path,
      access: "public",
      guesses: true,
      name: "session_create",
      fresh: false,
      summary:
        "Sign in with a browser. Only for pages of this control plane: `Origin` must be its own, `Sec-Fetch-Site` same-origin",
      takes: body(TokenRequest),
      answers: {
        201: Started,
      },
      errors: ["invalid_credentials", "second_factor_required", "invalid_code", "cross_site", "tls_required"],
      async handle(call, input) {
        const { request, address } = call;
        requireOwnPage(request, publicUrl);
        requireSecurePage(request);
        const proven = await signIn(services, input, originOf(call));
        const factorAt = await provenAtSignIn(services, proven, input.otp, address);
        const email = emailKey(input.email);
        return startedReply(services, call, { ...proven, email, factorAt });
      },
    }),
    route({
      method: "DELETE",
      path,
      access: "person",
      name: "session_destroy",
      fresh: false,
      summary: "Sign this browser out",
      takes: nothing,
      answers: {
        204: {
          description: "Signed out",
          headers: {
            "Set-Cookie": "Removes the session's cookie",
            "X-Sign-Out-Page?": "Where the browser signs out of the provider of identities too",
          },
        },
      },
      errors: ["not_found"],
      async handle(call) {
        const caller = callingUser(call);
        const sessionId = sessionIdOf(caller);
        if (sessionId === undefined)
          throw new AppError("not_found", "This request has a token, no session of a browser.");
        const providerId = (await browserSessions.find(services.db, { id: sessionId }))?.providerId ?? null;
        await endSession(services, caller.userId, sessionId);
        const cookies = [makeSessionCookie("", 0)];
        const url = providerId === null ? undefined : await signOutPage(services, providerId);
        return {
          ...noContent,
          cookies,
          ...(url === undefined ? {} : { headers: { "X-Sign-Out-Page": url } }),
        };
      },
    }),
  ];
}

type Person = { userId: number; email: string; isStaff: boolean; factorAt: number | null };

/** Begins the session of a user who has proven everything. */
export async function startedReply(
  services: Services,
  { request, address }: Call,
  {
    userId,
    email,
    isStaff,
    ...proven
  }: Person & {
    passwordHash?: string;
    device?: string;
    providerId?: number;
  },
): Promise<Reply> {
  const former = readCookie(cookiesOf(request), sessionCookie);
  const { factorAt, passwordHash, device, providerId = null } = proven;
  const from = { address, request, former, factorAt, providerId };
  const { token, endsAt } = await startSession(services, { userId, passwordHash }, from);
  const me = { id: userId, email, is_staff: isStaff };
  return {
    ...created({ ...me, expires_at: formatTime(endsAt) }),
    cookies: [
      makeSessionCookie(token, longestMs / 1000),
      await cookieOfDevice(services, { userId, ...given({ device }) }),
    ],
  };
}
