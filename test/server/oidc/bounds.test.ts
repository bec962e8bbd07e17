// What a provider of identities, or who chooses one, can make the server keep or wait for.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { AppError } from "../../../src/base/errors.ts";
import { parseNetworks } from "../../../src/base/ip.ts";
import { sealSecret } from "../../../src/pki/secrets.ts";
import { makeConfigurations } from "../../../src/server/oidc/configuration.ts";
import { checkLeavers } from "../../../src/server/oidc/gone-at-provider.ts";
import { makeFetches } from "../../../src/server/oidc/outgoing.ts";
import { defaultRetention } from "../../../src/server/options.ts";
import {
  grantContext,
  providerGrants,
  identityProviders,
  organizationIdentities,
} from "../../../src/server/store/tables/providers.ts";
import { users } from "../../../src/server/store/tables/users.ts";
import { realSystem } from "../../../src/base/system.ts";
import { startIdentityProvider, type IdentityProvider } from "../../support/oidc.ts";
import {
  addProvider,
  callback,
  loopback,
  refusedWith,
  signInBy,
  whereTo,
} from "../../support/oidc-sign-in.ts";
import { makeAcme } from "../../support/people.ts";
import { makeTestServer } from "../../support/server.ts";

const ada = { sub: "ada-1", email: "ada@example.org", email_verified: true, groups: ["staff"] };
const signedIn = [303, "/console/"];
let provider: IdentityProvider;

beforeAll(async () => {
  provider = await startIdentityProvider([callback()]);
});
afterAll(() => provider[Symbol.asyncDispose]());

test("configurations that are asked for with ever other settings are not all kept", async () => {
  const asked: string[] = [];
  const system = {
    ...realSystem(),
    now: () => 0,
    fetch: async (url: string | URL) => {
      asked.push(String(url));
      const issuer = "http://127.0.0.1:9";
      return Response.json({ issuer, authorization_endpoint: issuer, jwks_uri: issuer });
    },
  };
  const configurations = makeConfigurations({ system, webhookNetworks: parseNetworks(["127.0.0.0/8"]) });
  const find = (trust: string) => configurations.find({ issuer: "http://127.0.0.1:9", trust });
  await find("first");
  await find("first");
  expect(asked.length).toBe(1);
  for (let at = 0; at < 300; at++) await find(`x${at}`);
  await find("first");
  expect(asked.length).toBe(302);
});

test("reads at the same time share a request only if they send the same headers", async () => {
  const asked: string[] = [];
  const system = {
    ...realSystem(),
    fetch: async (_: string | URL, init?: RequestInit) => {
      const accept = new Headers(init?.headers).get("accept") ?? "";
      asked.push(accept);
      return new Response(accept);
    },
  };
  const fetchIt = makeFetches({ system, webhookNetworks: parseNetworks(["127.0.0.0/8"]) })(null);
  const read = async (accept: string) =>
    (await fetchIt("http://127.0.0.1:9/keys", { method: "GET", headers: { accept } })).text();
  const types = ["application/json", "application/json", "application/jwt"];
  expect(await Promise.all(types.map(read))).toEqual(types);
  expect(asked).toEqual(["application/json", "application/jwt"]);
});

describe("users of an organization's provider", () => {
  const retention = { ...defaultRetention, organizationBytes: 1_000_000 };
  const sign = async (server: Awaited<ReturnType<typeof makeTestServer>>, person: object) => {
    provider.person = { ...ada, ...person };
    return whereTo(await signInBy(server));
  };

  test("count into what it may store: a full one gets no new ones, and those that are there sign in", async () => {
    await using server = await makeTestServer({ ...loopback, retention });
    server.clock.ms = Date.now();
    const { acme } = await makeAcme(server);
    const { id } = await addProvider(
      server,
      provider,
      { creates_users: true, scopes: "openid email groups offline_access" },
      { orgId: acme.id },
    );
    expect(await sign(server, {})).toEqual(signedIn);
    await server.db.write(async (tx) => {
      for (let at = 0; at < 20; at++) {
        const times = { sessionsFrom: 0, createdAt: 0 };
        const row = { email: `x;${at}`, passwordHash: "", boundOrgId: acme.id, homeOrgId: acme.id, ...times };
        const { id: userId } = await users.insertReturning(tx, row);
        const groups = ["g".repeat(40_000)];
        await organizationIdentities.insert(tx, {
          userId,
          providerId: id,
          subject: `${at}`,
          groups,
          createdAt: 0,
        });
        const token = { tokenSealed: "t".repeat(20_000), nextAt: 1e15 };
        await providerGrants.insert(tx, { providerId: id, userId, subject: `${at}`, ...token });
      }
    });
    // What this process remembers is measured again.
    server.clock.ms += 400_000;
    expect(await sign(server, { sub: "new" })).toEqual(refusedWith("organization_full"));
    expect(await sign(server, { groups: ["staff", "more"] })).toEqual(signedIn);
    const [known] = await organizationIdentities.all(server.db, { subject: "ada-1" });
    expect(known?.groups).toEqual(["staff"]);
    expect(await sign(server, { groups: [] })).toEqual(signedIn);
    expect((await organizationIdentities.all(server.db, { subject: "ada-1" }))[0]?.groups).toEqual([]);
  });
});

test("a provider that hangs keeps nobody else's check waiting", async () => {
  await using server = await makeTestServer(loopback);
  const { acme } = await makeAcme(server);
  const { secretKey } = server.app.services;
  const grants = (providerId: number, count: number) =>
    server.db.write(async (tx) => {
      for (let at = 0; at < count; at++) {
        const subject = `${providerId}.${at}`;
        const row = { email: subject, passwordHash: "", sessionsFrom: 0, createdAt: 0 };
        const { id: userId } = await users.insertReturning(tx, row);
        const tokenSealed = sealSecret(secretKey, "token", grantContext(providerId, subject));
        // Those of the slow one have waited longer.
        await providerGrants.insert(tx, { providerId, userId, subject, tokenSealed, nextAt: providerId });
      }
    });
  const slow = await addProvider(server, provider, { name: "Slow" }, { orgId: acme.id });
  const other = await addProvider(server, provider, { name: "Other" });
  await grants(slow.id, 500);
  await grants(other.id, 30);
  const hanging: ((error: Error) => void)[] = [];
  let asked = 0;
  const done = Promise.withResolvers<void>();
  const refresh = async ({ id }: { id: number }) => {
    if (id === slow.id) return new Promise<never>((_, reject) => void hanging.push(reject));
    if (++asked === 30) done.resolve();
    return { account: "there", claims: { sub: "x" }, isWhole: false, refreshToken: undefined } as const;
  };
  const turn = checkLeavers({ ...server.app.services, exchange: { refresh } });
  await done.promise;
  expect(hanging.length).toBe(10);
  server.clock.ms += 60_000;
  for (const reject of hanging) reject(new AppError("provider_unavailable", "It hangs."));
  await turn;
  // Its turn was over.
  expect(hanging.length).toBe(10);
  expect((await identityProviders.all(server.db, {})).length).toBe(2);
});
