// Requests to providers of identities. They pass the same guard as webhooks, follow no redirect, and read at most 1 MiB.

import { given } from "../../base/given.ts";
import { AppError } from "../../base/errors.ts";
import { readCapped } from "../../base/read-capped.ts";
import type { ServerOptions } from "../options.ts";
import { resolvedTo } from "../webhooks/webhook-target.ts";

export type Outgoing = Pick<ServerOptions, "system" | "webhookNetworks">;
type Init = {
  method: string;
  headers: Record<string, string>;
  /** Forms are all that oauth4webapi sends for us. */
  body?: URLSearchParams | null | undefined;
};

const requestMs = 10_000;
const maxBytes = 1024 * 1024;
/** A Response with one of these statuses may have no body. */
const noBody: readonly number[] = [204, 205, 304];

type Received = { status: number; headers: Headers; content: Uint8Array<ArrayBuffer> };
/** A `fetch` for one provider. `trust`: PEM of CAs in place of those of the system. Throws provider_unavailable. */
export type FetchFrom = (trust: string | null) => (url: string, init: Init) => Promise<Response>;

/**
 * Concurrent reads without credentials share one request: at the first sign-ins of many users, the provider's keys
 * are read once.
 */
export function makeFetches(deps: Outgoing): FetchFrom {
  const underWay = new Map<string, Promise<Received>>();
  const shareRequest = (url: string, init: Init, trust: string | null) => {
    if (
      init.method !== "GET" ||
      Object.keys(init.headers).some((name) => name.toLowerCase() === "authorization")
    )
      return receive(deps, url, init, trust);
    const key = JSON.stringify([url, trust, init.headers]);
    return underWay.getOrInsertComputed(key, () =>
      receive(deps, url, init, trust).finally(() => underWay.delete(key)),
    );
  };
  return (trust) => async (url, init) => {
    const { status, headers, content } = await shareRequest(url, init, trust);
    return new Response(noBody.includes(status) ? null : content, { status, headers });
  };
}

/** Sends one request. Throws provider_unavailable, also for an answer with a status of 500 or more. */
async function receive(
  { system, webhookNetworks }: Outgoing,
  address: string,
  { method, headers, body }: Init,
  trust: string | null,
): Promise<Received> {
  const url = new URL(address);
  try {
    // `href` has the checked address in place of the name, so `Host` and TLS get the name beside it.
    const { href, serverName } = await resolvedTo(url, {
      system,
      ...given({ webhookNetworks }),
    });
    const response = await system.fetch(href, {
      method,
      headers: { ...headers, Host: url.host },
      redirect: "manual",
      keepalive: false,
      signal: AbortSignal.timeout(requestMs),
      ...(body instanceof URLSearchParams ? { body: body.toString() } : {}),
      tls: { ...given({ serverName }), ...(trust === null ? {} : { ca: trust }) },
    });
    const { status } = response;
    if (status >= 500) throw new AppError("provider_unavailable", `It answered ${status}.`);
    return {
      status,
      headers: response.headers,
      content: new Uint8Array(await readCapped(response.body, maxBytes, tooLarge)),
    };
  } catch (error) {
    throw new AppError("provider_unavailable", `Cannot reach ${url.host}, the provider of identities.`, {
      cause: error,
      hint: "Try again later, or sign in another way.",
    });
  }
}

const tooLarge = () => new Error(`its answer has more than ${maxBytes} bytes`);
