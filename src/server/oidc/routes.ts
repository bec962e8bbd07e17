// Handlers of src/api/providers/.

import type { domainsApi } from "../../api/providers/domains.ts";
import type {
  organizationProvidersApi,
  OrganizationProviderPatch,
  providersApi,
} from "../../api/providers/providers.ts";
import { consoleRoot, type identitiesApi, type providerSignInApi } from "../../api/providers/sign-in.ts";
import { AppError } from "../../base/errors.ts";
import { given } from "../../base/given.ts";
import { actorOf } from "../audit/record.ts";
import type { CallOf, Handlers, ReplyOf } from "../http/attach.ts";
import { cookiesOf, flowCookie, hostCookie, readCookie, sessionCookie } from "../http/cookies.ts";
import { requireOwnPage, requireSecurePage } from "../http/own-page.ts";
import type { AskedRequest, Call, OrganizationCall } from "../http/route.ts";
import { callingUser, findSession, sessionIdOf } from "../users/sessions/browser-sessions.ts";
import { adds } from "../retention/budget.ts";
import { startedReply } from "../users/session-routes.ts";
import { requireProofForFirstFactor } from "../users/factors/first-factor.ts";
import type { Services } from "../services.ts";
import { isStaff } from "../store/tables/users.ts";
import { listChoices } from "./offered-providers.ts";
import { addDomain, checkDomain, listDomains, removeDomain, vouchForDomain } from "./domains.ts";
import { beginFlow, flowMs, type Flow } from "./sign-in-flow.ts";
import { listIdentities, unlinkIdentity } from "./identities.ts";
import {
  changeProvider,
  createProvider,
  deleteProvider,
  findProvider,
  installation,
  listProviders,
  redirectUri,
  showProvider,
  type Scope,
} from "./providers.ts";
import { finishSignIn } from "./sign-in.ts";

export const providerSignInHandlers = (services: Services): Handlers<typeof providerSignInApi> => ({
  list: async (_call, asked) => ({ body: await listChoices(services.db, asked) }),
  begin({ request }, { provider, return_to }) {
    requireOwnPage(request, services.publicUrl);
    return begin(services, request, { provider: { id: provider }, returnTo: return_to, link: null });
  },
  callback: (call) => finishAtCallback(services, call),
});

/** Begins a sign-in, or the linking of an identity: returns the address of the provider's page. */
async function begin(
  services: Services,
  request: AskedRequest,
  wanted: Pick<Flow, "returnTo" | "link"> & { provider: { id: number } & Partial<Scope> },
): Promise<ReplyOf<typeof providerSignInApi.begin>> {
  const { db, publicUrl, exchange } = services;
  requireSecurePage(request);
  const { origin } = new URL(publicUrl);
  if (request.headers.get("origin") !== origin)
    throw new AppError("conflict", `Sign-in by a provider of identities works at ${origin} only.`, {
      hint: `Open ${origin}${consoleRoot}.`,
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
  return url?.origin === origin && url.pathname.startsWith(consoleRoot)
    ? url.pathname + url.search
    : consoleRoot;
}

/** Codes of errors that the sign-in page explains. Any other error is answered as everywhere. */
const explainedCodes: ReadonlySet<string> = new Set([
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

/** The browser comes back from the provider: signs it in, or links the identity, and sends it to a page of the console. */
async function finishAtCallback(
  services: Services,
  call: CallOf<typeof providerSignInApi.callback>,
): Promise<ReplyOf<typeof providerSignInApi.callback>> {
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
  const clearFlow = hostCookie(flowCookie, "", 0);
  const redirect = (path: string, more: readonly string[] = []) => ({
    status: 303 as const,
    headers: { Location: path },
    cookies: [clearFlow, ...more],
  });
  try {
    const { returnTo, user } = await finishSignIn(services, answer);
    if (user === undefined) return redirect(returnTo);
    const { id: userId, email } = user;
    // The sign-in at a provider is no proof of a second factor here.
    const proven = { factorAt: null, providerId: answer.provider };
    const signedIn = { userId, email, isStaff: isStaff(user), ...proven };
    return redirect(returnTo, (await startedReply(services, call, signedIn)).cookies);
  } catch (error) {
    if (!(error instanceof AppError) || !explainedCodes.has(error.code)) throw error;
    return redirect(`${consoleRoot}?refused=${error.code}`);
  }
}

export const identityHandlers = (services: Services): Handlers<typeof identitiesApi> => ({
  list: async (call) => ({ body: await listIdentities(services.db, callingUser(call).userId) }),
  async link(call, { provider, return_to, current_password }) {
    const caller = callingUser(call);
    const session = sessionIdOf(caller);
    if (session === undefined)
      throw new AppError("permission_denied", "Identities are linked in a browser that is signed in.");
    await requireProofForFirstFactor(services, call, current_password);
    const link = { userId: caller.userId, session };
    // Whoever runs an organization's provider could sign in as the user, everywhere.
    const linkable = { id: provider, ...installation };
    return begin(services, call.request, { provider: linkable, returnTo: return_to, link });
  },
  async unlink(call) {
    await unlinkIdentity(services, callingUser(call), call.id(), actorOf(call));
  },
});

export const providerHandlers = (services: Services): Handlers<typeof providersApi> => ({
  ...handlersIn(services, () => installation),
  create: async (call, input) => ({
    body: await createProvider(services, installation, input, actorOf(call)),
  }),
  update: async (call, input) => ({
    body: await changeProvider(services, installation, call.id(), input, actorOf(call)),
  }),
});

const scopeOf = ({ org }: OrganizationCall) => ({ orgId: org.id });
/** The mappings of an organization in the form of the installation's: each names the organization. */
const allIn = <T extends object>(organization: string, mappings: readonly T[]) =>
  mappings.map((each) => ({ ...each, organization }));
const patchIn = (
  { org: { slug } }: OrganizationCall,
  { roles, node_groups, ...rest }: OrganizationProviderPatch,
) => ({
  ...rest,
  ...given({
    roles: roles && allIn(slug, roles),
    node_groups: node_groups && allIn(slug, node_groups),
  }),
});

export const organizationProviderHandlers = (
  services: Services,
): Handlers<typeof organizationProvidersApi> => ({
  ...handlersIn(services, scopeOf),
  async create(call, input) {
    const { slug } = call.org;
    const own = { roles: allIn(slug, input.roles), node_groups: allIn(slug, input.node_groups) };
    const body = await createProvider(services, scopeOf(call), { ...input, ...own }, actorOf(call));
    return { body };
  },
  update: {
    grows: async (input, call) =>
      adds(await showProvider(services, scopeOf(call), call.id()), patchIn(call, input)),
    async handle(call, input) {
      const settings = patchIn(call, input);
      return { body: await changeProvider(services, scopeOf(call), call.id(), settings, actorOf(call)) };
    },
  },
});

/** The handlers that providers of the installation and of organizations share. */
function handlersIn<C extends Call>(services: Services, scopeIn: (call: C) => Scope) {
  return {
    list: async (call: C) => ({ body: await listProviders(services, scopeIn(call)) }),
    retrieve: async (call: C) => ({ body: await showProvider(services, scopeIn(call), call.id()) }),
    async delete(call: C) {
      await deleteProvider(services, scopeIn(call), call.id(), actorOf(call));
    },
  };
}

export const domainHandlers = (services: Services): Handlers<typeof domainsApi> => ({
  list: async (call) => ({ body: await listDomains(services.db, call.org) }),
  create: async (call, { domain }) => ({
    body: await addDomain(services, call.org, domain, actorOf(call)),
  }),
  async delete(call) {
    await removeDomain(services, call.org, call.id(), actorOf(call));
  },
  check: async (call) => ({ body: await checkDomain(services, call.org, call.id(), actorOf(call)) }),
  vouch: async (call, input) => ({ body: await vouchForDomain(services, input, actorOf(call)) }),
});
