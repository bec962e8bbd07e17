// OpenID Connect with one provider: the address that a browser is sent to, and the claims for the code that the browser
// brings back. Knows no user.

import type {
  AuthorizationServer,
  Client,
  ClientAuth,
  userInfoRequest as UserInfoRequest,
} from "oauth4webapi";
import { AppError } from "../../base/errors.ts";
import { makeFairQueue, type InTurn } from "../http/fair-queue.ts";
import { openSecret } from "../../pki/secrets.ts";
import type { ServerOptions } from "../options.ts";
import type { IdentityProviderRow } from "../store/tables/providers.ts";
import {
  loadOauth,
  makeConfigurations,
  notVerified,
  untrusted,
  type Configurations,
  type Issuer,
} from "./configuration.ts";

type Deps = Pick<ServerOptions, "system" | "webhookNetworks" | "secretKey">;
type Provider = Pick<IdentityProviderRow, "id" | "issuer" | "clientId" | "secretSealed" | "scopes" | "trust">;

/** Values that bind an answer to the request: `state`, `nonce` and the verifier are known to one browser. */
export type Secrets = { state: string; nonce: string; verifier: string };
export type Claims = Readonly<Record<string, unknown>> & { sub: string };

export type Exchange = {
  /** The provider's configuration. Throws provider_unavailable or untrusted_answer. */
  discover(provider: Issuer): Promise<AuthorizationServer>;
  /** The address of the provider's sign-in page. Throws not_found for a provider without a client. */
  authorizationUrl(provider: Provider, redirectUri: string, secrets: Secrets): Promise<string>;
  /** The address of the provider's sign-out page; undefined if it has none. */
  signOutUrl(provider: Provider, returnTo: string): Promise<string | undefined>;
  /**
   * The claims of the identity, verified. `answer`: the parameters of the callback. Throws sign_in_refused if the provider
   * refused, provider_unavailable, or untrusted_answer for anything that does not verify.
   */
  claims(
    provider: Provider,
    redirectUri: string,
    secrets: Secrets,
    answer: URLSearchParams,
  ): Promise<Exchanged>;
  /**
   * The queue for requests to providers; the owner is the provider's id. If all were sent at once, most would time
   * out.
   */
  inLine: InTurn;
  /**
   * Asks the provider whether the user still has the account. Throws provider_unavailable or untrusted_answer, which
   * prove nothing.
   */
  refresh(provider: Provider, subject: string, refreshToken: string): Promise<Refreshed>;
};
/** `refreshToken`: undefined where the provider gives none. */
type Exchanged = { claims: Claims; refreshToken: string | undefined };
/**
 * `gone`: the provider says that the token is not valid any more. `unsaid`: it refused the token without the required error
 * code, as glewlwyd does for a deleted user.
 * `isWhole`: the claims are complete, as at a sign-in. Otherwise groups may be missing.
 */
export type Refreshed =
  | { account: "gone" }
  | { account: "unsaid" }
  | { account: "there"; claims: Claims; isWhole: boolean; refreshToken: string | undefined };

/** What the secret of a provider is sealed for (src/pki/secrets.ts). */
export const providerContext = (id: number) => `identity provider ${id}`;

function lineFull(): AppError {
  const retryAfter = 10;
  const message = `Too many users are signing in by this provider at the moment. Try again in ${retryAfter} seconds.`;
  return new AppError("throttled", message, { retryAfter });
}

/** Tolerated difference between the clocks of provider and server. */
const toleranceS = 60;

/** Whether this control plane has a client ID at the provider. */
const isRegistered = ({ clientId }: Pick<Provider, "clientId">) => clientId !== "";
/** Without a secret, PKCE alone proves that the code is ours. */
const isPublicClient = ({ secretSealed }: Pick<Provider, "secretSealed">) => secretSealed === "";

export function makeExchange(deps: Deps): Exchange {
  const configurations = makeConfigurations(deps);
  return {
    discover: configurations.find,
    // Of one provider: 16 requests under way, and 5,000 that wait, at most 500 of them of one caller.
    inLine: makeFairQueue({ ofOwner: 16, perCaller: 500, perOwner: 5000, refusal: lineFull }),
    async authorizationUrl(provider, redirectUri, { state, nonce, verifier }) {
      if (!isRegistered(provider))
        throw new AppError("not_found", "This provider of identities has no client ID yet.");
      const { calculatePKCECodeChallenge } = await loadOauth();
      const { authorization_endpoint: endpoint } = await configurations.find(provider);
      if (endpoint === undefined) throw notVerified("The provider names no page for signing in.");
      return withQuery(endpoint, {
        client_id: provider.clientId,
        redirect_uri: redirectUri,
        response_type: "code",
        scope: provider.scopes,
        state,
        nonce,
        code_challenge: await calculatePKCECodeChallenge(verifier),
        code_challenge_method: "S256",
        // OpenID Connect Core, section 11: without it, no token for later is given.
        ...(provider.scopes.split(" ").includes("offline_access") ? { prompt: "consent" } : {}),
      });
    },
    async signOutUrl(provider, returnTo) {
      const { end_session_endpoint: endpoint } = await configurations.find(provider);
      const query = { client_id: provider.clientId, post_logout_redirect_uri: returnTo };
      return endpoint === undefined ? undefined : withQuery(endpoint, query);
    },
    async claims(provider, redirectUri, secrets, answer) {
      const { AuthorizationResponseError } = await loadOauth();
      try {
        return await claimsFor({ ...deps, configurations }, provider, redirectUri, secrets, answer);
      } catch (error) {
        if (!(error instanceof AuthorizationResponseError)) return untrusted(error);
        const message = "The provider of identities refused the sign-in.";
        throw new AppError("sign_in_refused", message, { cause: error });
      }
    },
    refresh: (provider, subject, refreshToken) =>
      refreshed({ ...deps, configurations }, provider, subject, refreshToken).catch(untrusted),
  };
}

/** Refuses an endpoint that is no web page, such as `javascript:`: browsers are sent to it. */
function withQuery(endpoint: string, query: Readonly<Record<string, string>>): string {
  const url = new URL(endpoint);
  if (!/^https?:$/.test(url.protocol))
    throw notVerified("The provider names a page that is none of the web.");
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
  return url.href;
}

type ExchangeDeps = Deps & { configurations: Configurations };

async function claimsFor(
  deps: ExchangeDeps,
  provider: Provider,
  redirectUri: string,
  { state, nonce, verifier }: Secrets,
  answer: URLSearchParams,
): Promise<Exchanged> {
  const { oauth, server, client, options } = await partiesOf(deps, provider);
  const parameters = oauth.validateAuthResponse(server, client, answer, state);
  const auth = await authentication(deps, provider, server);
  const response = await oauth.authorizationCodeGrantRequest(
    server,
    client,
    auth,
    parameters,
    redirectUri,
    verifier,
    options,
  );
  const checks = { expectedNonce: nonce, requireIdToken: true };
  const tokens = await oauth.processAuthorizationCodeResponse(server, client, response, checks);
  await verifySignature(deps, provider, server, response);
  const own = oauth.getValidatedIdTokenClaims(tokens);
  if (own === undefined) throw notVerified("The provider gave no identity.");
  const claims = await withUserInfo([server, client, tokens.access_token, options], own);
  return { claims, refreshToken: tokens.refresh_token };
}

/** The claims `own`, with those that the provider gives on request. `request`: the arguments of oauth4webapi. */
async function withUserInfo(request: Parameters<typeof UserInfoRequest>, own: Claims): Promise<Claims> {
  const [server, client] = request;
  if (server.userinfo_endpoint === undefined) return { ...own };
  const { userInfoRequest, processUserInfoResponse } = await loadOauth();
  const answer = await userInfoRequest(...request);
  return joinedClaims(await processUserInfoResponse(server, client, own.sub, answer), own);
}

async function refreshed(
  deps: ExchangeDeps,
  provider: Provider,
  subject: string,
  refreshToken: string,
): Promise<Refreshed> {
  const { oauth, server, client, options } = await partiesOf(deps, provider);
  const auth = await authentication(deps, provider, server);
  const response = await oauth.refreshTokenGrantRequest(server, client, auth, refreshToken, options);
  const processed = oauth.processRefreshTokenResponse(server, client, response);
  const tokens = await processed.catch((error: unknown) => {
    // No other error shows that the user has left: `invalid_client` is about us.
    if (error instanceof oauth.ResponseBodyError && error.error === "invalid_grant") return "gone";
    if (!(error instanceof oauth.ResponseBodyError) && response.status === 400) return "unsaid";
    throw error;
  });
  if (typeof tokens === "string") return { account: tokens };
  const own = oauth.getValidatedIdTokenClaims(tokens);
  if (own !== undefined) await verifySignature(deps, provider, server, response);
  if (own !== undefined && own.sub !== subject) throw notVerified("The provider named another identity.");
  const claims = await withUserInfo([server, client, tokens.access_token, options], own ?? { sub: subject });
  return { account: "there", claims, isWhole: own !== undefined, refreshToken: tokens.refresh_token };
}

/** What each request of oauth4webapi needs. `options`: for its last argument. */
async function partiesOf({ configurations, system }: ExchangeDeps, provider: Provider) {
  const oauth = await loadOauth();
  const server = await configurations.find(provider);
  // oauth4webapi reads the clock of the process: tests replace that of the system.
  const aheadS = Math.round((system.now() - Date.now()) / 1000);
  const clocks = { [oauth.clockSkew]: aheadS, [oauth.clockTolerance]: toleranceS };
  const client: Client = { client_id: provider.clientId, ...clocks };
  return { oauth, server, client, options: await configurations.options(provider) };
}

async function authentication({ secretKey }: Deps, provider: Provider, server: AuthorizationServer) {
  const { None, ClientSecretPost } = await loadOauth();
  if (isPublicClient(provider)) return None();
  const secret = openSecret(secretKey, provider.secretSealed, providerContext(provider.id));
  const methods = server.token_endpoint_auth_methods_supported ?? ["client_secret_basic"];
  return methods.includes("client_secret_basic") ? basic(secret) : ClientSecretPost(secret);
}

/** oauth4webapi escapes `-` and `_` too. That is allowed, but glewlwyd is one of those who take a secret as it stands. */
function basic(secret: string): ClientAuth {
  const escaped = (text: string) => encodeURIComponent(text).replaceAll("%20", "+");
  return (_server, client, _body, headers) =>
    headers.set("authorization", `Basic ${btoa(`${escaped(client.client_id)}:${escaped(secret)}`)}`);
}

/** oauth4webapi keeps keys by the configuration's object: a new one reads them again, after a rotation. */
async function verifySignature(
  { configurations }: ExchangeDeps,
  provider: Provider,
  server: AuthorizationServer,
  response: Response,
): Promise<void> {
  const { validateApplicationLevelSignature, OperationProcessingError, KEY_SELECTION } = await loadOauth();
  const options = await configurations.options(provider);
  try {
    await validateApplicationLevelSignature(server, response, options);
  } catch (error) {
    if (!(error instanceof OperationProcessingError) || error.code !== KEY_SELECTION) throw error;
    await validateApplicationLevelSignature(await configurations.findAgain(provider), response, options);
  }
}

/**
 * The claims of both answers; those of the ID token, `own`, count. An address and whether it is verified come from one of them: they
 * must not be those of two addresses.
 */
function joinedClaims(information: Claims, own: Claims): Claims {
  const { email, email_verified } = "email" in own ? own : information;
  return { ...information, ...own, email, email_verified };
}
