// The configurations of providers of identities (OpenID Connect Discovery), kept for a while, and their keys with them.

import { hash } from "node:crypto";
import type { AuthorizationServer } from "oauth4webapi";
import { AppError, messageOf } from "../../base/errors.ts";
import { makeBoundedCache } from "../config/bounded-cache.ts";
import type { IdentityProviderRow } from "../store/tables/providers.ts";
import { makeFetches, type FetchFrom, type Outgoing } from "./outgoing.ts";

/** Where a provider is asked. `trust`: CAs in PEM in place of those of the system. */
export type Issuer = Pick<IdentityProviderRow, "issuer" | "trust">;

export type Configurations = {
  /** Options for each request of oauth4webapi to the provider. */
  options(provider: Pick<Issuer, "trust">): Promise<RequestOptions>;
  /** Throws provider_unavailable or untrusted_answer. */
  find(provider: Issuer): Promise<AuthorizationServer>;
  /** Reads the configuration and the keys again, at most every few seconds; in between, returns the present one. */
  findAgain(provider: Issuer): Promise<AuthorizationServer>;
};
type RequestOptions = Awaited<ReturnType<typeof requestOptions>>;

/** Loaded with the first sign-in. */
export const loadOauth = () => import("oauth4webapi");

/** For how long a configuration is used; after a failure, or for `findAgain`, only for the shorter time. */
const keptMs = 10 * 60_000;
const againMs = 5000;
/** Configurations, of 1 MiB at most each, and mostly of a few KiB. */
const maxKnown = 200;

/** `at`: when the request was sent, ms. */
type Known = { found: Promise<{ server: AuthorizationServer }>; at: number; hasFailed: boolean };

export function makeConfigurations(deps: Outgoing): Configurations {
  const { now } = deps.system;
  const fetchFrom = makeFetches(deps);
  const known = makeBoundedCache<Known>(maxKnown);
  const read = async (provider: Issuer) => {
    const { discoveryRequest, processDiscoveryResponse } = await loadOauth();
    const issuer = new URL(provider.issuer);
    const response = await discoveryRequest(issuer, await requestOptions(fetchFrom, provider));
    const { status } = response;
    if (status !== 200)
      throw notVerified(
        `${issuer.host} answered ${status}, not 200, when its configuration was asked for. Check the issuer: its configuration is at ISSUER/.well-known/openid-configuration.`,
      );
    return { server: await processDiscoveryResponse(issuer, response) };
  };
  /**
   * The configuration, read again if it is older. Concurrent callers share one request. A failure is cached for a moment: a flood
   * must not reach the provider.
   */
  const notOlder = async (provider: Issuer, maxAgeMs: number) => {
    // Invalid settings lead to a lookup, too, so the key has a bounded length, whatever a caller sent.
    const key = hash("sha256", JSON.stringify([provider.issuer, provider.trust]), "base64url");
    const cached = known.get(key);
    const usableMs = cached?.hasFailed === true ? againMs : maxAgeMs;
    // A clock that was set back makes an age negative.
    if (cached !== undefined && Math.abs(now() - cached.at) < usableMs) return (await cached.found).server;
    const next: Known = { found: read(provider), at: now(), hasFailed: false };
    // The size of each entry is 1, so `maxKnown` counts entries.
    known.set(key, next, 1);
    try {
      return (await next.found).server;
    } catch (error) {
      next.hasFailed = true;
      throw error;
    }
  };
  return {
    options: (provider) => requestOptions(fetchFrom, provider),
    find: (provider) => notOlder(provider, keptMs).catch(untrusted),
    findAgain: (provider) => notOlder(provider, againMs).catch(untrusted),
  };
}

async function requestOptions(fetchFrom: FetchFrom, { trust }: Pick<Issuer, "trust">) {
  const { customFetch, allowInsecureRequests } = await loadOauth();
  // The guard of `fetchFrom` decides where http: is allowed.
  return { [customFetch]: fetchFrom(trust), [allowInsecureRequests]: true };
}

/** The reasons of the library hold no token; its causes may, and are not shown. */
export function untrusted(error: unknown): never {
  if (error instanceof AppError) throw error;
  throw notVerified(`The answer of the provider of identities was not accepted: ${messageOf(error)}.`);
}

export function notVerified(message: string): AppError {
  return new AppError("untrusted_answer", message);
}
