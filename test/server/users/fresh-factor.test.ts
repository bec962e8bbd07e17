// Which operations ask for a fresh second factor: one declaration for each operation, and for each field where fields decide.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { addApp, type App } from "../../support/factors.ts";
import { makeKeys, registerNode } from "../../support/nodes.ts";
import { makeAcme } from "../../support/people.ts";
import { makeTestServer, type TestServer } from "../../support/server.ts";

let server: TestServer;
let owner: string;
let app: App;
let node: Awaited<ReturnType<typeof registerNode>>;

beforeAll(async () => {
  server = await makeTestServer({ accessLifetimeS: 86_400 });
  const made = await makeAcme(server);
  ({ owner } = made);
  node = await registerNode(server, made.acme, "walker");
  await server.db.write((tx) => tx.run("UPDATE users SET is_staff = 1"));
  app = await addApp(server, owner);
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
});

const forget = () => void (server.clock.ms += 11 * 60_000);

/** The status, or the code of an error. */
async function send(method: string, path: string, body?: unknown): Promise<string> {
  const { status, json } = await server.send(method, path, { token: owner, body });
  return status < 300 ? "done" : String((json as { code?: string }).code);
}

/** These end, read or prove something, or come from machines and callers without a session. */
const neverAsked = [
  "alarms_test",
  "device_create",
  "device_token_create",
  "docs_sign_in_create",
  "drills_abort",
  "enrollments_create",
  "enrollments_poll",
  "groups_create",
  "groups_partial_update",
  "join_create",
  "join_find",
  "members_sessions_destroy",
  "members_sessions_destroy_all",
  "nodes_checkin",
  "nodes_drill_report",
  "nodes_renew_cert",
  "nodes_update_report",
  "org_create",
  "password_reset_confirm_create",
  "password_reset_create",
  "session_create",
  "session_destroy",
  "session_oidc_create",
  "session_passkey_create",
  "session_passkey_options",
  "setup_create",
  "token_code_create",
  "token_create",
  "token_refresh_create",
  "token_revoke_create",
  "user_device_requests_find",
  "user_enrollments_find",
  "user_join_create",
  "user_passkeys_create",
  "user_sessions_destroy",
  "user_sessions_prove_nodes",
  "user_step_up_create",
  "user_step_up_passkey_create",
  "user_step_up_passkey_options",
  "user_totp_confirm_create",
  "users_sessions_destroy",
  "users_sessions_destroy_all",
  "webhooks_deliveries_send_again",
];

test("each operation that changes something says whether it asks; a new one that never asks is added here", () => {
  const changing = server.app.routes.filter(({ method, reads }) => method !== "GET" && reads !== true);
  expect(changing.filter(({ fresh }) => fresh === undefined).map(({ name }) => name)).toEqual([]);
  const never = changing.filter(({ fresh }) => fresh === false).map(({ name }) => name);
  expect(never.toSorted()).toEqual(neverAsked);
  // Fields of a query or body that the declaration lacks are refused by the compiler, see `Fresh`.
});

test("each operation that always asks, asks before it reads anything else", async () => {
  forget();
  for (const { method, path, fresh } of server.app.routes) {
    if (fresh !== true) continue;
    const filled = path.replace(":slug", "acme").replaceAll(/:[a-z_]+(\{[^/]*)?/g, "987654");
    expect([method, path, await send(method, filled)]).toEqual([method, path, "step_up_required"]);
  }
});

const inAcme = "/api/org/acme/";
const nodePath = () => `${inAcme}nodes/${node.id}/`;

test("what gives a machine rights asks, whichever way it takes; a mere description does not", async () => {
  forget();
  await send("POST", "/api/user/step_up/", { otp: app.code() });
  expect(await send("POST", `${inAcme}groups/`, { name: "db" })).toBe("done");
  expect(await send("POST", `${inAcme}nodes/`, { name: "planned", groups: ["db"] })).toBe("done");
  const token = { token: owner, body: { groups: ["db"] } };
  const made = await server.send("POST", `${inAcme}registration_tokens/`, token);
  const { id } = made.json as { id: number };
  const rule = {
    direction: "inbound",
    protocol: "udp",
    ports: "53",
    peer: { group: "db" },
    target: { any: true },
  };
  const ruled = await server.send("POST", `${inAcme}firewall_rules/`, { token: owner, body: rule });
  const rulePath = `${inAcme}firewall_rules/${(ruled.json as { id: number }).id}/`;
  forget();
  const keys = { host_public_key: "x" };
  for (const [method, path, body] of [
    ["PATCH", nodePath(), { groups: ["db"] }],
    ["PATCH", nodePath(), { config_overrides: { logging: { level: "debug" } } }],
    ["PATCH", nodePath(), { name: "other" }],
    ["DELETE", nodePath()],
    ["POST", `${nodePath()}transfer/`, { owner: null }],
    ["POST", `${nodePath()}restore/`, {}],
    ["POST", `${inAcme}names/`, { name: "files", node: node.id }],
    ["POST", `${inAcme}registration_tokens/`, { groups: ["db"] }],
    ["POST", `${inAcme}registration_tokens/`, { is_lighthouse: true }],
    ["POST", `${inAcme}registration_tokens/`, { node_id: node.id }],
    ["DELETE", `${inAcme}registration_tokens/${id}/?revoke_nodes=true`],
    ["DELETE", `${inAcme}registration_tokens/${id}/?revoke_webhooks=true`],
    ["POST", `${inAcme}nodes/`, { name: "further", groups: ["db"] }],
    ["POST", `${inAcme}nodes/`, { name: "further", is_lighthouse: true }],
    ["POST", `${inAcme}nodes/register/`, { name: "further", is_lighthouse: true, ...keys }],
    ["POST", `${inAcme}webhooks/`, { url: "https://192.0.2.1/", events: ["*"] }],
    ["PATCH", rulePath, { ports: "any" }],
    ["PATCH", inAcme, { second_factor_required: false }],
  ] as const)
    expect([method, path, await send(method, path, body)]).toEqual([method, path, "step_up_required"]);
  for (const [method, path, body] of [
    ["PATCH", `${inAcme}groups/db/`, { description: "Databases" }],
    ["PATCH", rulePath, { description: "Names" }],
    ["PATCH", inAcme, { name: "Acme" }],
    ["POST", `${inAcme}nodes/`, { name: "further" }],
    ["POST", `${inAcme}registration_tokens/`, {}],
    ["DELETE", `${inAcme}registration_tokens/${id}/`],
  ] as const)
    expect([method, path, await send(method, path, body)]).toEqual([method, path, "done"]);
});

test("a session that claims a planned node asks, as a token that is bound to it does", async () => {
  forget();
  const bound = (name: string) => send("POST", `${inAcme}registration_tokens/`, { node_name: name });
  expect([await bound("planned"), await bound("unknown")]).toEqual(["step_up_required", "done"]);
  const body = { name: "planned", ...(await makeKeys("planned")) };
  expect(await send("POST", `${inAcme}nodes/register/`, body)).toBe("step_up_required");
  await send("POST", "/api/user/step_up/", { otp: app.code() });
  expect(await send("POST", `${inAcme}nodes/register/`, body)).toBe("done");
});

test("a session asks before its new node gets the groups that the policy gives the user's nodes", async () => {
  const register = async (name: string) =>
    send("POST", `${inAcme}nodes/register/`, { name, ...(await makeKeys(name)) });
  forget();
  expect(await register("plain")).toBe("done");
  await send("POST", "/api/user/step_up/", { otp: app.code() });
  const policy = 'groups:\n  db: { members: ["user:owner@example.org"] }\n';
  expect(await send("POST", `${inAcme}policy/apply/`, { policy })).toBe("done");
  forget();
  expect(await register("grouped")).toBe("step_up_required");
});

test("only one place reads the query of a request: handlers see neither it nor the address", () => {
  // Handlers and checks get an AskedRequest, without `url`. This holds for the rest of the server.
  const folder = join(import.meta.dir, "../../../src/server");
  const readers = readdirSync(folder, { recursive: true, encoding: "utf8" }).filter(
    (file) =>
      file.endsWith(".ts") &&
      /\bsearchParams\b|\bURLSearchParams\(/.test(readFileSync(join(folder, file), "utf8")),
  );
  // Two make addresses: of other pages of a list, and of a provider of identities. oidc/routes.ts passes on what was read.
  const makers = ["http/lists.ts", "oidc/provider-requests.ts", "oidc/routes.ts"];
  // The addresses of a sink of alarms, and of the database.
  const others = ["serve.ts", "webhooks/syslog.ts"];
  expect(readers.toSorted()).toEqual(["http/exchange.ts", ...makers, ...others]);
});

test("a parameter that is given twice is refused by every operation, before it does anything", async () => {
  forget();
  await send("POST", "/api/user/step_up/", { otp: app.code() });
  for (const { method, path, takes } of server.app.routes) {
    const filled = path.replace(":slug", "acme").replaceAll(/:[a-z_]+(\{[^/]*)?/g, String(node.id));
    for (const name of Object.keys(takes.query?.entries ?? {})) {
      const answer = await server.send(method, `${filled}?${name}=false&${name}=true`, { token: owner });
      const { errors } = (answer.json ?? {}) as { errors?: Record<string, string[]> };
      expect([path, answer.status, errors?.[name]]).toEqual([
        path,
        400,
        ["This parameter is given more than once."],
      ]);
    }
  }
});
