// Routes for signing in by a provider of identities, and for the identities of the signed-in user.

import * as v from "valibot";
import { AppError } from "../../base/errors.ts";
import { actorOf } from "../audit/record.ts";
import { cookiesOf, flowCookie, hostCookie, readCookie, sessionCookie } from "../http/cookies.ts";
import { requireOwnPage, requireSecurePage } from "../http/own-page.ts";
import { noContent } from "../http/reply.ts";
import {
  body,
  id,
  nothing,
  query,
  route,
  type AskedRequest,
  type Call,
  type Reply,
  type Route,
} from "../http/route.ts";
import { beginFlow, flowMs, type Flow } from "../oidc/flow.ts";
import { Identity, listIdentities, unlinkIdentity } from "../oidc/identities.ts";
import { findProvider, installation, redirectUri, type Scope } from "../oidc/providers.ts";
import { choices } from "../oidc/choices.ts";
import { finishSignIn } from "../oidc/sign-in.ts";
import { findSession, sessionIdOf } from "../users/sessions/browser-sessions.ts";
import type { Services } from "../services.ts";
import { isStaff } from "../store/tables/users.ts";
import { startedReply } from "../users/session-routes.ts";
import { FirstFactor } from "../../api/factors.ts";
import { requirePasswordForFirst } from "../users/factor-routes.ts";
import { callingUser } from "../users/sessions/browser-sessions.ts";
import { foreignText } from "../../base/text.ts";

const root = "/console/";
const Begin = v.strictObject({
  provider: v.pipe(v.number(), v.integer(), v.minValue(1)),
  /** The page of the console that opens afterwards. */
  return_to: v.optional(foreignText(2000), root),
});
const Begun = v.object({ url: v.pipe(v.string(), v.description("Where the browser goes now")) });
const begun = {
  description: "The address of the provider's page",
  schema: Begun,
  headers: { "Set-Cookie": "The secrets of this sign-in, sealed: only this browser can finish it" },
};
const Choice = v.object({ id: v.number(), name: v.string() });
const Choosing = v.strictObject({
  organization: v.optional(foreignText(63)),
  domain: v.optional(v.pipe(foreignText(253), v.toLowerCase())),
});
const own = "/api/user/identities/";

export function oidcRoutes(services: Services): Route[] {
  return [...signInRoutes(services), ...identityRoutes(services)];
}

function signInRoutes(services: Services): Route[] {
  const { db, publicUrl } = services;
  return [
    route({
      method: "GET",
      path: "/api/session/providers/",
      access: "public",
      name: "session_providers_list",
      summary:
        "The providers of identities by which users sign in; with `organization` or `domain` also those of that organization, or of organizations that verified the domain",
      takes: query(Choosing),
      answers: { 200: { description: "Providers", schema: v.array(Choice) } },
      handle: async (_call, asked) => ({ body: await choices(db, asked) }),
    }),
    route({
      method: "POST",
      path: "/api/session/oidc/",
      access: "public",
      name: "session_oidc_create",
      fresh: false,
      summary:
        "Begin a sign-in by a provider of identities (OpenID Connect), for pages of this control plane",
      takes: body(Begin),
      answers: { 200: begun },
      errors: [
        "cross_site",
        "tls_required",
        "conflict",
        "not_found",
        "provider_unavailable",
        "untrusted_answer",
      ],
      handle: ({ request }, { provider, return_to }) => {
        requireOwnPage(request, publicUrl);
        return begin(services, request, { provider: { id: provider }, returnTo: return_to, link: null });
      },
    }),
    route({
      method: "GET",
      path: `/api/session/oidc/${id}/callback/`,
      access: "public",
      name: "session_oidc_callback",
      summary:
        "Where a provider of identities leads the browser back to. Only the browser that began can use it, once",
      takes: nothing,
      answers: {
        303: {
          description: "Signed in, or `refused` in the query of the address has the error's code",
          headers: { Location: "A page of the console", "Set-Cookie": "The session" },
        },
      },
      errors: ["throttled"],
      handle: (call) => comeBack(services, call),
    }),
  ];
}

async function begin(
  services: Services,
  request: AskedRequest,
  wanted: Pick<Flow, "returnTo" | "link"> & { provider: { id: number } & Partial<Scope> },
): Promise<Reply> {
  const { db, publicUrl, exchange } = services;
  requireSecurePage(request);
  const { origin } = new URL(publicUrl);
  if (request.headers.get("origin") !== origin)
    throw new AppError("conflict", `Sign-in by a provider of identities works at ${origin} only.`, {
      hint: `Open ${origin}${root}.`,
    });
  const provider = await findProvider(db, wanted.provider);
  const { flow, cookie } = beginFlow(services, {
    ...wanted,
    provider: provider.id,
    returnTo: consolePath(wanted.returnTo, origin),
  });
  const url = await exchange.authorizationUrl(provider, redirectUri(publicUrl, provider.id), flow);
  return { body: { url }, cookies: [hostCookie(flowCookie, cookie, flowMs / 1000)] };
}

/** A path of the console on this very host; anything else becomes the start page. */
function consolePath(text: string, origin: string): string {
  const url = URL.canParse(text, origin) ? new URL(text, origin) : undefined;
  return url?.origin === origin && url.pathname.startsWith(root) ? url.pathname + url.search : root;
}

/** What the sign-in page explains. Anything else is answered as everywhere. */
const shown: ReadonlySet<string> = new Set([
  "address_in_use",
  "conflict",
  "invalid_credentials",
  "not_found",
  "organization_full",
  "provider_unavailable",
  "sign_in_expired",
  "sign_in_refused",
  "untrusted_answer",
]);

async function comeBack(services: Services, call: Call): Promise<Reply> {
  const { db, system } = services;
  const { request, address } = call;
  const cookies = cookiesOf(request);
  const session = readCookie(cookies, sessionCookie);
  const answer = {
    provider: call.id(),
    parameters: new URLSearchParams(call.parameters()),
    cookie: readCookie(cookies, flowCookie),
    signedIn:
      session === undefined ? undefined : await findSession(db, session, { now: system.now(), address }),
    address,
  };
  const clear = hostCookie(flowCookie, "", 0);
  const to = (path: string, more: readonly string[] = []): Reply => ({
    status: 303,
    headers: { Location: path },
    cookies: [clear, ...more],
  });
  try {
    const { returnTo, user } = await finishSignIn(services, answer);
    if (user === undefined) return to(returnTo);
    const { id: userId, email } = user;
    const proven = { factorAt: null, providerId: answer.provider };
    const person = { userId, email, isStaff: isStaff(user), ...proven };
    return to(returnTo, (await startedReply(services, call, person)).cookies);
  } catch (error) {
    if (!(error instanceof AppError) || !shown.has(error.code)) throw error;
    return to(`${root}?refused=${error.code}`);
  }
}

function identityRoutes(services: Services): Route[] {
  const { db } = services;
  return [
    route({
      method: "GET",
      path: own,
      access: "person",
      name: "user_identities_list",
      summary: "The user's identities at providers",
      takes: nothing,
      answers: { 200: { description: "Identities", schema: v.array(Identity) } },
      handle: async (call) => ({ body: await listIdentities(db, callingUser(call).userId) }),
    }),
    route({
      method: "POST",
      path: own,
      access: "person",
      fresh: true,
      name: "user_identities_create",
      summary: "Begin to link an identity: the browser goes to the provider, and comes back with it",
      takes: body(v.strictObject({ ...Begin.entries, ...FirstFactor.entries })),
      answers: { 200: begun },
      errors: [
        "conflict",
        "invalid_credentials",
        "not_found",
        "provider_unavailable",
        "tls_required",
        "untrusted_answer",
      ],
      async handle(call, { provider, return_to, current_password }) {
        const caller = callingUser(call);
        const session = sessionIdOf(caller);
        if (session === undefined)
          throw new AppError("permission_denied", "Identities are linked in a browser that is signed in.");
        await requirePasswordForFirst(services, call, current_password);
        const link = { userId: caller.userId, session };
        // Whoever runs an organization's provider could sign in as the user, everywhere.
        const linkable = { id: provider, ...installation };
        return begin(services, call.request, { provider: linkable, returnTo: return_to, link });
      },
    }),
    route({
      method: "DELETE",
      path: `${own}${id}/`,
      access: "person",
      fresh: true,
      name: "user_identities_destroy",
      summary: "Unlink an identity. Sessions that began with it end, and the roles and groups that it gave",
      takes: nothing,
      answers: { 204: { description: "Unlinked" } },
      errors: ["not_found", "conflict"],
      async handle(call) {
        await unlinkIdentity(services, callingUser(call), call.id(), actorOf(call));
        return noContent;
      },
    }),
  ];
}
