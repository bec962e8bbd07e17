// A browser on the sign-in page of the control plane, with a provider of identities.

import { AppError } from "../../src/base/errors.ts";
import { operator } from "../../src/server/audit/record.ts";
import { createProvider, installation } from "../../src/server/oidc/providers.ts";
import { providersApi } from "../../src/api/providers/providers.ts";
import type { GivenOf } from "../../src/api/endpoint.ts";
import type { Database } from "../../src/server/store/database.ts";
import { parseNetworks } from "../../src/base/ip.ts";
import * as v from "valibot";
import { browserWith, cookieIn, ownPage, type Browser } from "./browser-session.ts";
import { signInAt, type IdentityProvider } from "./oidc.ts";
import { makeTestServer, type Answer, type TestServer } from "./server.ts";

/** The provider of a test listens on loopback, without TLS. */
export const loopback = { webhookNetworks: parseNetworks(["127.0.0.0/8"]) };
export const callback = (id = 1) => `https://control.example/api/session/oidc/${id}/callback/`;

/** The clocks of providers are real, so the server's is, too. */
export async function makeSignInServer(): Promise<TestServer> {
  const server = await makeTestServer(loopback);
  server.clock.ms = Date.now();
  return server;
}

type Settings = Partial<GivenOf<typeof providersApi.create>>;

export function addProvider(
  { app }: TestServer,
  { issuer, clientId, clientSecret }: Pick<IdentityProvider, "issuer" | "clientId" | "clientSecret">,
  settings: Settings = {},
  scope = installation,
) {
  const given = { issuer, client_id: clientId, client_secret: clientSecret, name: "Company", ...settings };
  return createProvider(app.services, scope, v.parse(providersApi.create.body, given), operator);
}

export type Begun = { url: string; cookie: string };

export async function begin(server: TestServer, body: object = {}): Promise<Begun> {
  const answer = await server.send("POST", "/api/session/oidc/", {
    body: { provider: 1, ...body },
    headers: ownPage,
  });
  const { url } = v.parse(v.object({ url: v.string() }), answer.json);
  return { url, cookie: cookieIn(answer, "__Host-oidc") ?? "" };
}

/** What the browser gets that comes back from the provider. */
export function comeBack(server: TestServer, url: URL, cookies: Record<string, string>, address?: string) {
  const Cookie = Object.entries(cookies)
    .map(([name, value]) => `${name}=${value}`)
    .join("; ");
  return server.send("GET", url.pathname + url.search, {
    headers: { Cookie, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate" },
    ...(address === undefined ? {} : { address }),
  });
}

/** The whole way, with a new browser. */
export async function signInBy(server: TestServer, body: object = {}): Promise<Answer> {
  const { url, cookie } = await begin(server, body);
  return comeBack(server, await signInAt(url), { "__Host-oidc": cookie });
}

/** A server that is killed after so many writes. */
export function killedAfterWrites<S extends { db: Database }>(services: S, count: number): S {
  const { db } = services;
  let left = count;
  const alive = <T>(write: () => Promise<T>): Promise<T> =>
    left-- > 0 ? write() : Promise.reject(new AppError("storage_unavailable", "killed"));
  return {
    ...services,
    db: {
      ...db,
      write: (work) => alive(() => db.write(work)),
      writeFor: (concern, work) => alive(() => db.writeFor(concern, work)),
    },
  };
}

export const sessionIn = (server: TestServer, answer: Answer): Browser =>
  browserWith(server, cookieIn(answer, "__Host-session") ?? "none");

export const whereTo = ({ status, headers }: Answer) => [status, headers.get("location")];
export const refusedWith = (code: string) => [303, `/console/?refused=${code}`];
