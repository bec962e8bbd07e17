// A real provider of identities (oidc-provider, which the OpenID Foundation certified), and a browser that signs in there.

import { Provider } from "oidc-provider";
import * as v from "valibot";
import { generateKeyPair, exportJWK, type JWK } from "jose";
import { freePort } from "./free-port.ts";

export type Person = { sub: string } & Record<string, unknown>;

export type IdentityProvider = AsyncDisposable & {
  issuer: string;
  clientId: string;
  clientSecret: string;
  /** Who signs in next at its page; undefined: the person refuses. */
  person: Person | undefined;
  /** New signing keys: those of before are gone. */
  rotateKeys(): Promise<void>;
  /** Every request gets this status. */
  failsWith: number | undefined;
  /** What it says about a person from now on. */
  change(person: Person): void;
  /** The person has left: codes and tokens of before are refused. */
  remove(sub: string): void;
  stop(): Promise<void>;
  start(): Promise<void>;
};

export const clientSecret = "a client secret of forty-two characters ok";

/** `signedOut`: where it may lead after a sign-out. `codesS`: how long its codes are valid. */
export async function startIdentityProvider(
  redirectUris: readonly string[],
  {
    signedOut = "https://control.example/console/",
    codesS = 60,
  }: { signedOut?: string; codesS?: number } = {},
): Promise<IdentityProvider> {
  const port = freePort();
  const issuer = `http://127.0.0.1:${port}`;
  let keys = [await signingKey()];
  let close: (() => Promise<void>) | undefined;
  const known = new Map<string, Person>();
  const made: IdentityProvider = {
    issuer,
    clientId: "agent",
    clientSecret,
    person: undefined,
    failsWith: undefined,
    async rotateKeys() {
      keys = [await signingKey()];
      await made.stop();
      await made.start();
    },
    change: (person) => void known.set(person.sub, person),
    remove: (sub) => void known.delete(sub),
    async stop() {
      await close?.();
      close = undefined;
    },
    async start() {
      close = await serve(made, { port, keys, redirectUris, signedOut, codesS, known });
    },
    [Symbol.asyncDispose]: () => made.stop(),
  };
  await made.start();
  return made;
}

type Setting = {
  port: number;
  keys: readonly JWK[];
  redirectUris: readonly string[];
  signedOut: string;
  codesS: number;
  known: Map<string, Person>;
};

async function serve(
  made: IdentityProvider,
  { port, keys, redirectUris, signedOut, codesS, known }: Setting,
) {
  const provider = new Provider(made.issuer, {
    clients: [
      {
        client_id: made.clientId,
        client_secret: made.clientSecret,
        redirect_uris: redirectUris,
        grant_types: ["authorization_code", "refresh_token"],
        post_logout_redirect_uris: [signedOut],
      },
    ],
    jwks: { keys },
    adapter: makeAdapter(),
    ttl: { AuthorizationCode: codesS },
    cookies: { keys: ["a key of the test"] },
    pkce: { required: () => true },
    scopes: ["openid", "email", "profile", "groups", "offline_access"],
    claims: {
      openid: ["sub"],
      email: ["email", "email_verified"],
      groups: ["groups", "realm"],
      profile: ["name", "preferred_username"],
    },
    features: {
      devInteractions: { enabled: false },
      // Its own page asks another host for a font.
      rpInitiatedLogout: {
        logoutSource: (context: { body: string }, form: string) => void (context.body = form),
      },
    },
    interactions: { url: () => "/interaction" },
    findAccount: (_: unknown, sub: string) =>
      known.has(sub) ? { accountId: sub, claims: () => known.get(sub) } : undefined,
    loadExistingGrant: async ({ oidc }: import("oidc-provider").Context) => {
      const grant = new provider.Grant({ clientId: oidc.client.clientId, accountId: oidc.account.accountId });
      grant.addOIDCScope("openid email profile groups offline_access");
      await grant.save();
      return grant;
    },
  });
  provider.use(async (context, next) => {
    if (made.failsWith !== undefined) return void (context.status = made.failsWith);
    if (!context.path.startsWith("/interaction")) return next();
    const { person } = made;
    if (person !== undefined) known.set(person.sub, person);
    const result =
      person === undefined ? { error: "access_denied" } : { login: { accountId: person.sub }, consent: {} };
    return provider.interactionFinished(context.req, context.res, result);
  });
  const server = await new Promise<import("node:http").Server>((ready) => {
    const listening = provider.listen(port, "127.0.0.1", () => ready(listening));
  });
  return () =>
    new Promise<void>((closed) => {
      server.closeAllConnections();
      server.close(() => closed());
    });
}

async function signingKey(): Promise<JWK> {
  const { privateKey } = await generateKeyPair("RS256", { extractable: true });
  return { ...(await exportJWK(privateKey)), use: "sig", alg: "RS256", kid: crypto.randomUUID() };
}

/** Follows the provider's redirects, with its cookies, to the address that leads back. */
export async function signInAt(url: string): Promise<URL> {
  const { origin } = new URL(url);
  const cookies = new Map<string, string>();
  let next = new URL(url);
  for (let hops = 0; hops < 10 && next.origin === origin; hops++) {
    const Cookie = [...cookies].map(([name, value]) => `${name}=${value}`).join("; ");
    const answer = await fetch(next, { redirect: "manual", headers: { Cookie } });
    for (const each of answer.headers.getSetCookie()) {
      const [, name = "", value = ""] = /^([^=]+)=([^;]*)/.exec(each) ?? [];
      cookies.set(name, value);
    }
    const to = answer.headers.get("location");
    if (to === null) throw new Error(`The provider answered ${answer.status}: ${await answer.text()}`);
    next = new URL(to, next);
  }
  return next;
}

/** The whole way at a control plane on loopback, with a new browser. Returns where it leads. */
export async function signInThrough(controlPlane: string): Promise<string | null> {
  const begun = await fetch(`${controlPlane}/api/session/oidc/`, {
    method: "POST",
    headers: { Origin: controlPlane, "Sec-Fetch-Site": "same-origin", "Content-Type": "application/json" },
    body: JSON.stringify({ provider: 1 }),
  });
  const { url } = v.parse(v.object({ url: v.string() }), await begun.json());
  const [Cookie = ""] = begun.headers.getSetCookie().map((each) => each.split(";")[0] ?? "");
  const headers = { Cookie, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate" };
  const ended = await fetch(await signInAt(url), { redirect: "manual", headers });
  return ended.headers.get("location");
}

/** In memory. The provider's own one forgets all but the last thousand things. */
function makeAdapter(): (model: string) => object {
  type Stored = { uid?: string; grantId?: string; consumed?: number };
  const all = new Map<string, Stored>();
  return (model) => {
    const key = (id: string) => `${model} ${id}`;
    return {
      upsert: async (id: string, stored: Stored) => void all.set(key(id), stored),
      find: async (id: string) => all.get(key(id)),
      findByUid: async (uid: string) =>
        [...all].find(([name, stored]) => name.startsWith(`${model} `) && stored.uid === uid)?.[1],
      consume: async (id: string) => {
        const stored = all.get(key(id));
        if (stored !== undefined) stored.consumed = Math.floor(Date.now() / 1000);
      },
      destroy: async (id: string) => void all.delete(key(id)),
      revokeByGrantId: async (grantId: string) => {
        for (const [name, stored] of all) if (stored.grantId === grantId) all.delete(name);
      },
    };
  };
}
