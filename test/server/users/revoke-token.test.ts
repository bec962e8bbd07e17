// Registration and service tokens of a user after the user left.

import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import * as v from "valibot";
import { operator } from "../../../src/server/audit/record.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { setActive } from "../../../src/server/offboarding/user-status.ts";
import { makeAcme } from "../../support/people.ts";
import { makeTestServer, type TestServer } from "../../support/server.ts";

let server: TestServer;
let acme: Organization;
let owner = "";

beforeEach(async () => {
  server = await makeTestServer();
  ({ acme, owner } = await makeAcme(server));
});
afterEach(async () => {
  await server[Symbol.asyncDispose]();
});

describe("tokens of a user who leaves", () => {
  const make = async (slug: string, path: string, body: object, token: string): Promise<[number, string]> => {
    const made = await server.send("POST", `/api/org/${slug}/${path}/`, { token, body });
    const { id, token: secret } = v.parse(v.object({ id: v.number(), token: v.string() }), made.json);
    return [id, secret];
  };
  const opens = async (secret: string) =>
    (await server.send("GET", "/api/org/acme/nodes/", { token: secret })).status === 200;
  /** Ada is admin of two organizations and has created tokens of every kind. */
  const makeAll = async () => {
    const ada = await server.person("ada@example.org");
    const other = await server.organization("other", "10.78.0.0/16");
    for (const org of [acme, other]) await server.join(org, "ada@example.org", "admin");
    await make("acme", "registration_tokens", { expires_in: "1s" }, ada);
    const [registration] = await make("acme", "registration_tokens", { name: "rack", uses: 2 }, ada);
    const [service, secret] = await make("acme", "service_tokens", { name: "ci", role: "admin" }, ada);
    const [elsewhere] = await make("other", "registration_tokens", {}, ada);
    const [revoked] = await make("acme", "service_tokens", { name: "old", role: "member" }, ada);
    await server.send("DELETE", `/api/org/acme/service_tokens/${revoked}/`, { token: ada });
    await make("acme", "service_tokens", { name: "of another", role: "admin" }, owner);
    server.clock.ms += 2000;
    const inAcme = [
      { org_slug: "acme", kind: "registration_token", id: registration, name: "rack" },
      { org_slug: "acme", kind: "service_token", id: service, name: "ci" },
    ] as const;
    const inOther = { org_slug: "other", kind: "registration_token", id: elsewhere, name: null } as const;
    return { registration, service, secret, inAcme, inOther };
  };
  const remove = (query = "") => server.send("DELETE", `/api/org/acme/members/2/${query}`, { token: owner });
  const eventsOf = async (orgId: number | null) =>
    (
      await server.db.all(
        `SELECT type, subject, after FROM events WHERE coalesce(org_id, 0) = $1
         AND type IN ('token.revoked', 'member.updated', 'member.deleted', 'user.disabled') ORDER BY id`,
        [orgId ?? 0],
      )
    ).map((row) => [row["type"], row["subject"], JSON.parse(String(row["after"]))]);

  test("keep working, and the answer and the audit log list those of that organization", async () => {
    const { registration, service, secret, inAcme } = await makeAll();
    const answer = await remove();
    expect([answer.status, answer.headers.get("x-tokens-left")]).toEqual([
      204,
      `registration_tokens/${registration}/, service_tokens/${service}/`,
    ]);
    expect(await opens(secret)).toBe(true);
    const [, ...events] = await eventsOf(acme.id);
    expect(events).toEqual([
      ["member.deleted", "member/ada@example.org", { tokens_left: inAcme, tokens_revoked: [] }],
    ]);
    expect(JSON.stringify(events)).not.toContain(secret);
  });

  test("are also listed when the user becomes a plain member", async () => {
    const { registration, service, inAcme } = await makeAll();
    const change = (role: string) =>
      server.send("PATCH", "/api/org/acme/members/2/", { token: owner, body: { role } });
    expect((await change("owner")).headers.has("x-tokens-left")).toBe(false);
    const left = `registration_tokens/${registration}/, service_tokens/${service}/`;
    expect((await change("member")).headers.get("x-tokens-left")).toBe(left);
    expect((await change("member")).headers.has("x-tokens-left")).toBe(false);
    const [, ...events] = await eventsOf(acme.id);
    expect(events.map(([, , after]) => after)).toEqual([
      { role: "owner" },
      { role: "member", tokens_left: inAcme, tokens_revoked: [] },
      {},
    ]);
  });

  test("end with the membership on request, only in that organization", async () => {
    const { service, registration, secret, inAcme, inOther } = await makeAll();
    const answer = await remove("?revoke_tokens=true");
    expect([answer.status, answer.headers.get("x-tokens-left")]).toEqual([204, null]);
    expect(await opens(secret)).toBe(false);
    const [, ...events] = await eventsOf(acme.id);
    expect(events).toEqual([
      ["token.revoked", `registration_token/${registration}`, null],
      ["token.revoked", `service_token/${service}`, null],
      ["member.deleted", "member/ada@example.org", { tokens_left: [], tokens_revoked: inAcme }],
    ]);
    // Disabling keeps what the user created elsewhere.
    const { services } = server.app;
    expect(await setActive(services, "ada@example.org", false, operator)).toEqual({
      left: [inOther],
      revoked: [],
    });
  });

  test("end with the user on request, in every organization", async () => {
    const { secret, inAcme, inOther } = await makeAll();
    const { services } = server.app;
    const told = { tokens_left: [], tokens_revoked: [...inAcme, inOther] };
    const ended = await setActive(services, "ada@example.org", false, operator, { revokeTokens: true });
    expect(ended).toEqual({ left: [], revoked: [...inAcme, inOther] });
    expect(await opens(secret)).toBe(false);
    expect(await eventsOf(null)).toEqual([["user.disabled", "user/ada@example.org", told]]);
    expect(await remove()).toMatchObject({ status: 204 });
  });

  test("do not change if the removal is refused", async () => {
    const [, secret] = await make("acme", "service_tokens", { name: "ci", role: "admin" }, owner);
    const refused = await server.send("DELETE", "/api/org/acme/members/1/?revoke_tokens=true", {
      token: owner,
    });
    expect([refused.status, await opens(secret)]).toEqual([409, true]);
  });
});
