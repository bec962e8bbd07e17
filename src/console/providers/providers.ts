// Providers of identities: their list, the links to their pages, and the errors after a return from one.

import { apiPath, type GivenOf, type SentOf } from "../../api/endpoint.ts";
import { identitiesApi, providerSignInApi } from "../../api/providers/sign-in.ts";
import { given } from "../../base/given.ts";
import { call, get } from "../contact/api.ts";

export type Provider = SentOf<typeof providerSignInApi.list>[number];

/** With those of the organization that the page belongs to, and of organizations that verified the domain of the address. */
export function listProviders(
  { organization, email }: { organization: string | undefined; email: string },
  signal?: AbortSignal,
): Promise<Provider[]> {
  const [, domain] = /@([^\s@]+\.[^\s@]+)$/.exec(email.trim()) ?? [];
  const asked = given({ organization: organization?.slice(0, 63), domain: domain?.slice(0, 253) });
  return get(apiPath(providerSignInApi.list, {}, asked), signal);
}

/** Leaves the console for the provider's page; afterwards the present page opens again. */
export const signInAt = (provider: number) =>
  leaveFor((return_to) => call(providerSignInApi.begin, {}, { provider, return_to }));
export const linkAt = (
  provider: number,
  password: Pick<GivenOf<typeof identitiesApi.link>, "current_password">,
) => leaveFor((return_to) => call(identitiesApi.link, {}, { provider, return_to, ...password }));

async function leaveFor(begin: (here: string) => Promise<{ url: string }>): Promise<void> {
  const here = new URL(location.href);
  here.searchParams.delete("refused");
  location.assign((await begin(here.pathname + here.search)).url);
}

/** By the code of the error in the address that the provider's answer leads to. Texts of the address are never shown. */
const refusals: Readonly<Record<string, string>> = {
  address_in_use:
    "There is already a user with this e-mail address. Sign in with the password or a passkey, then link the identity under Account.",
  conflict: "Another user has this identity already.",
  invalid_credentials: "This user is disabled.",
  not_found: "This provider was removed.",
  organization_full:
    "The organization stores its maximum, so it gets no new users. Its administrators have to make room.",
  provider_unavailable: "The provider does not answer. Try again later, or sign in another way.",
  sign_in_expired: "The sign-in took too long, or was not begun in this browser. Begin again.",
  sign_in_refused:
    "This identity may not sign in here. Ask the administrators, and name the time: the control plane's log has the reason.",
  untrusted_answer: "The provider's answer was not accepted. The control plane's log has the reason.",
};

/** Why a sign-in at a provider was refused, by the query that the control plane adds to the page's address. */
export function refusalOf(query: URLSearchParams): string | undefined {
  const code = query.get("refused");
  if (code === null) return undefined;
  return Object.hasOwn(refusals, code) ? refusals[code] : "The sign-in was refused.";
}
