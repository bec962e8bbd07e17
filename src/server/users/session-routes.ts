// Handlers of src/api/sessions.ts.

import type {
  browserSessionApi,
  memberSessionsApi,
  ownSessionsApi,
  tokenPairsApi,
  userSessionsApi,
} from "../../api/sessions.ts";
import { formatTime } from "../../base/quantities.ts";
import { given } from "../../base/given.ts";
import { AppError } from "../../base/errors.ts";
import { emailKey } from "../../base/text.ts";
import { actorOf } from "../audit/record.ts";
import type { Handlers } from "../http/attach.ts";
import { cookiesOf, makeSessionCookie, readCookie, sessionCookie } from "../http/cookies.ts";
import { listReply } from "../http/lists.ts";
import { requireOwnPage, requireSecurePage } from "../http/own-page.ts";
import { noContent } from "../http/reply.ts";
import type { Call, Caller } from "../http/route.ts";
import { signOutPage } from "../oidc/providers.ts";
import type { Services } from "../services.ts";
import { browserSessions } from "../store/tables/sessions.ts";
import { longestMs } from "../../api/sessions.ts";
import { provenAtSignIn } from "./factors/second-factor.ts";
import { callingUser, sessionIdOf, startSession } from "./sessions/browser-sessions.ts";
import { fromOf } from "./sessions/families.ts";
import { proveNodes } from "./sessions/session-nodes.ts";
import {
  endMemberSessions,
  endSession,
  endUserSessions,
  listSessions,
  userOfMember,
} from "./sessions/user-sessions.ts";
import { userById } from "./users.ts";
import { cookieOfDevice, originOf, signIn, signInForTokens } from "./sign-in/sign-in.ts";

export const tokenPairHandlers = (services: Services): Handlers<typeof tokenPairsApi> => ({
  create: (call, input) => signInForTokens(services, input, originOf(call)),
  refresh: async (call, { refresh }) => ({ body: await services.sessions.refresh(refresh, fromOf(call)) }),
  async revoke(_call, { refresh }) {
    await services.sessions.revoke(refresh);
  },
});

export const browserSessionHandlers = (services: Services): Handlers<typeof browserSessionApi> => ({
  async create(call, input) {
    const { request, address } = call;
    requireOwnPage(request, services.publicUrl);
    requireSecurePage(request);
    const proven = await signIn(services, input, originOf(call));
    const factorAt = await provenAtSignIn(services, proven, input.otp, address);
    const email = emailKey(input.email);
    return startedReply(services, call, { ...proven, email, factorAt });
  },
  async delete(call) {
    const caller = callingUser(call);
    const sessionId = sessionIdOf(caller);
    if (sessionId === undefined)
      throw new AppError("not_found", "This request has a token, no session of a browser.");
    const providerId = (await browserSessions.find(services.db, { id: sessionId }))?.providerId ?? null;
    await endSession(services, caller.userId, sessionId);
    const cookies = [makeSessionCookie("", 0)];
    const url = providerId === null ? undefined : await signOutPage(services, providerId);
    return { ...noContent, cookies, ...(url === undefined ? {} : { headers: { "X-Sign-Out-Page": url } }) };
  },
});

/** A user who has proven everything. */
type SignedIn = {
  userId: number;
  email: string;
  isStaff: boolean;
  /** When the second factor was proven, ms; null: the user has none, or signed in by a provider. */
  factorAt: number | null;
  /** What the password matched. */
  passwordHash?: string;
  /** The id of a known device. */
  device?: string;
  /** The provider by which the user signed in; null: another way. */
  providerId?: number | null;
};

/** Begins the session of the user, and replies with its cookie. */
export async function startedReply(
  services: Services,
  { request, address }: Pick<Call, "request" | "address">,
  { userId, email, isStaff, factorAt, passwordHash, device, providerId = null }: SignedIn,
) {
  const former = readCookie(cookiesOf(request), sessionCookie);
  const from = { address, request, former, factorAt, providerId };
  const { token, endsAt } = await startSession(services, { userId, passwordHash }, from);
  return {
    status: 201 as const,
    body: { id: userId, email, is_staff: isStaff, expires_at: formatTime(endsAt) },
    cookies: [
      makeSessionCookie(token, longestMs / 1000),
      await cookieOfDevice(services, { userId, ...given({ device }) }),
    ],
  };
}

export const ownSessionHandlers = (services: Services): Handlers<typeof ownSessionsApi> => ({
  async list(call, input) {
    const { userId, signIn: current } = callingUser(call);
    return listReply(call, services.publicUrl, await listSessions(services, { userId, current }, input));
  },
  async delete(call) {
    await endSession(services, callingUser(call).userId, call.id());
  },
  proveNodes: async (call, input) => ({
    body: { proven: await proveNodes(services, callingUser(call), input) },
  }),
});

/** The sign-in of the request, if the caller is this user. */
const ownSignIn = (caller: Caller, userId: number) =>
  caller.kind === "person" && caller.userId === userId ? caller.signIn : undefined;

export const memberSessionHandlers = (services: Services): Handlers<typeof memberSessionsApi> => ({
  async list(call, input) {
    const { org, caller } = call;
    const { userId } = await userOfMember(services.db, org, call.id());
    const page = await listSessions(services, { userId, current: ownSignIn(caller, userId), org }, input);
    return listReply(call, services.publicUrl, page);
  },
  async deleteAll(call) {
    const by = { role: call.org.role, actor: actorOf(call) };
    await endMemberSessions(services, call.org, call.id(), by);
  },
  async delete(call) {
    const by = { role: call.org.role, actor: actorOf(call) };
    await endMemberSessions(services, call.org, call.id(), by, call.id("session"));
  },
});

export const userSessionHandlers = (services: Services): Handlers<typeof userSessionsApi> => ({
  async list(call, input) {
    const { id: userId } = await userById(services.db, call.id());
    const current = ownSignIn(call.caller, userId);
    return listReply(call, services.publicUrl, await listSessions(services, { userId, current }, input));
  },
  async deleteAll(call) {
    await endUserSessions(services, call.id(), actorOf(call));
  },
  async delete(call) {
    await endUserSessions(services, call.id(), actorOf(call), call.id("session"));
  },
});
