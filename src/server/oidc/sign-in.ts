// The answer that a browser brings from a provider of identities: a sign-in, or an identity that a signed-in user adds.

import type { Actor } from "../audit/record.ts";
import { AppError, messageOf } from "../../base/errors.ts";
import { networkOf } from "../../base/ip.ts";
import type { Meters } from "../http/meters.ts";
import type { Budget } from "../retention/budget.ts";
import type { Throttle } from "../http/throttle.ts";
import { sessionIdOf } from "../users/sessions/browser-sessions.ts";
import type { UserCaller } from "../http/route.ts";
import type { IdentityProviderRow } from "../store/tables/providers.ts";
import type { UserRow } from "../store/tables/users.ts";
import { admitIdentity, type Admitted } from "./admission.ts";
import type { Exchange } from "./provider-requests.ts";
import { keepGrant } from "./gone-at-provider.ts";
import { takeFlow, type Flow } from "./sign-in-flow.ts";
import { boundUserOf } from "./bound-users.ts";
import { applyGroups } from "./apply-groups.ts";
import { linkIdentity, sessionEnded, userOf } from "./identities.ts";
import type { NodeGroupServices } from "./node-groups.ts";
import { applyProviderGroups } from "./provider-groups.ts";
import { findProvider, redirectUri } from "./providers.ts";

type Services = NodeGroupServices & {
  publicUrl: string;
  exchange: Pick<Exchange, "claims" | "inLine">;
  budget: Pick<Budget, "refusal">;
  throttle: Throttle;
  meters: Meters;
};
/** `cookie`: that of the flow. `signedIn`: the user who is signed in with this browser. */
export type BroughtAnswer = {
  provider: number;
  parameters: URLSearchParams;
  cookie: string | undefined;
  signedIn: UserCaller | undefined;
  address: string;
};

/** `user`: the user who signs in; undefined: the identity was linked to the user who is signed in already. */
type Finished = { returnTo: string; user: UserRow | undefined };

/**
 * Throws throttled, not_found, sign_in_expired, sign_in_refused, provider_unavailable, untrusted_answer, address_in_use,
 * conflict, organization_full. An answer that is refused because too many wait is not used: the browser may bring it again.
 */
export function finishSignIn(services: Services, answer: BroughtAnswer): Promise<Finished> {
  const caller = networkOf(answer.address);
  services.throttle.check("answers", caller);
  return services.exchange.inLine({ owner: answer.provider, caller }, () => finish(services, answer));
}

/** Takes the flow of the answer, and counts and logs how it ends. */
async function finish(services: Services, answer: BroughtAnswer): Promise<Finished> {
  const { log, meters } = services;
  const state = answer.parameters.get("state");
  const flow = await takeFlow(services, answer.cookie, { provider: answer.provider, state });
  try {
    const user = await complete(services, flow, answer);
    if (user !== undefined) meters.login("ok");
    return { returnTo: flow.returnTo, user };
  } catch (error) {
    meters.login("failed");
    log.warn("A sign-in by a provider of identities failed", {
      provider: answer.provider,
      address: answer.address,
      reason: messageOf(error),
      ...(error instanceof AppError && error.details.cause !== undefined
        ? { cause: messageOf(error.details.cause) }
        : {}),
    });
    throw error;
  }
}

/** The user who signs in; undefined if the identity was linked to a signed-in user. */
async function complete(services: Services, flow: Flow, answer: BroughtAnswer): Promise<UserRow | undefined> {
  const { db, publicUrl } = services;
  const asked = await findProvider(db, { id: flow.provider });
  const { claims, refreshToken } = await countingFailures(services, answer.address, () =>
    services.exchange.claims(asked, redirectUri(publicUrl, asked.id), flow, answer.parameters),
  );
  // Read the provider again: it may have been changed or deleted while it exchanged the code.
  const provider = await findProvider(db, { id: flow.provider });
  const { orgId } = provider;
  const admitted = admitIdentity(provider, claims);
  // An organization's provider never finds users of the installation, and is never linked to one.
  if (orgId === null && flow.link !== null) {
    await linkToSignedIn(services, flow.link, provider, admitted, answer);
    return undefined;
  }
  const user = await (orgId === null
    ? userWithGroups(services, provider, admitted)
    : // Applies the groups, too.
      boundUserOf(services, { ...provider, orgId }, admitted));
  await keepGrant(services, provider, { userId: user.id, subject: admitted.subject, refreshToken });
  return user;
}

async function userWithGroups(
  services: Services,
  provider: IdentityProviderRow,
  admitted: Admitted,
): Promise<UserRow> {
  const user = await userOf(services, provider, admitted);
  await applyGroups(services, provider, user, admitted.groups);
  return user;
}

/** Throws sign_in_expired unless this browser still has the session that began the flow. */
async function linkToSignedIn(
  services: Services,
  link: NonNullable<Flow["link"]>,
  provider: IdentityProviderRow,
  admitted: Admitted,
  { signedIn, address }: BroughtAnswer,
): Promise<void> {
  const session = signedIn === undefined ? undefined : sessionIdOf(signedIn);
  if (signedIn?.userId !== link.userId || session === undefined || session !== link.session)
    throw sessionEnded();
  const actor: Actor = { kind: "person", id: signedIn.userId, ip: address };
  await linkIdentity(services, provider, admitted, { ...signedIn, session }, actor);
  await applyProviderGroups(services, provider, signedIn.userId);
}

/**
 * Each answer causes a request to the provider: one network may not make many that fail. Checks the limit again, because
 * others of the network may have failed while this answer waited in the queue.
 */
async function countingFailures<T>(
  { throttle }: Pick<Services, "throttle">,
  address: string,
  exchange: () => Promise<T>,
): Promise<T> {
  const network = networkOf(address);
  throttle.check("answers", network);
  try {
    return await exchange();
  } catch (error) {
    throttle.count("answers", network);
    throw error;
  }
}
