import { NewRegistrationToken } from "../../../../src/api/tokens/registration-tokens.ts";
import { afterEach, beforeEach, expect, test } from "bun:test";
import * as v from "valibot";
import { makeHostKey } from "../../../../src/pki/keys.ts";
import { RegisterAnswer } from "../../../../src/protocol/registration.ts";
import { makeTestServer, type TestServer } from "../../../support/server.ts";

let server: TestServer;
let owner = "";
let admin = "";
beforeEach(async () => {
  server = await makeTestServer();
  const acme = await server.organization("acme");
  owner = await server.person("owner@example.org");
  admin = await server.person("admin@example.org");
  await server.join(acme, "owner@example.org", "owner");
  await server.join(acme, "admin@example.org", "admin");
});
afterEach(async () => {
  await server[Symbol.asyncDispose]();
});

const api = "/api/org/acme";
const makeToken = async (maker: string) => {
  const answer = await server.send("POST", `${api}/registration_tokens/`, {
    token: maker,
    body: { uses: 5 },
  });
  return v.parse(NewRegistrationToken, answer.json);
};
const register = async (name: string, by: { token?: string; registration_token?: string }) => {
  const { token, registration_token } = by;
  const answer = await server.send("POST", `${api}/nodes/register/`, {
    ...(token === undefined ? {} : { token }),
    body: {
      name,
      host_public_key: makeHostKey().publicPem,
      ...(registration_token === undefined ? {} : { registration_token }),
    },
  });
  return v.parse(RegisterAnswer, answer.json);
};
const names = async () =>
  (await server.db.all("SELECT name FROM nodes WHERE state = 'active' ORDER BY name")).map(
    (row) => row["name"],
  );

test("deleting a token revokes its nodes only on request, each with its order", async () => {
  const [one, two] = [await makeToken(owner), await makeToken(owner)];
  const first = await register("one", { registration_token: one.token });
  await register("two", { registration_token: two.token });
  await server.send("DELETE", `${api}/registration_tokens/${two.id}/`, { token: owner });
  expect(await names()).toEqual(["one", "two"]);
  const deletion = `${api}/registration_tokens/${one.id}/?revoke_nodes=true`;
  expect((await server.send("DELETE", deletion, { token: owner })).status).toBe(204);
  expect(await names()).toEqual(["two"]);
  const told = await server.send("POST", `${api}/nodes/${first.node.id}/checkin/`, {
    token: first.api_token,
    body: { version: "1", uptime: 1 },
  });
  expect(told.json).toMatchObject({ code: "node_revoked", order: expect.any(String) });
});

test("removing a member with revoke_nodes revokes only their own nodes, not those that their tokens registered", async () => {
  await register("by-admin", { token: admin });
  await register("by-admins-token", { registration_token: (await makeToken(admin)).token });
  await register("by-owner", { token: owner });
  expect((await server.send("DELETE", `${api}/members/2/?revoke_nodes=true`, { token: owner })).status).toBe(
    204,
  );
  expect(await names()).toEqual(["by-admins-token", "by-owner"]);
});

test("a node of a deleted organization gets its order even if the slug is in use again", async () => {
  const { node, api_token } = await register("last", { token: owner });
  expect((await server.send("DELETE", `${api}/`, { token: owner })).status).toBe(204);
  await server.organization("acme");
  const told = await server.send("POST", `${api}/nodes/${node.id}/checkin/`, {
    token: api_token,
    body: { version: "1", uptime: 1 },
  });
  expect([told.status, told.json]).toEqual([
    403,
    expect.objectContaining({ code: "node_revoked", order: expect.any(String) }),
  ]);
});
