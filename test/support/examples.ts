// For every route a request that succeeds, with the resources that it needs. The contract test fails for a route
// without an example: add one here.

import * as v from "valibot";
import { createHash } from "node:crypto";
import { hashToken } from "../../src/pki/opaque.ts";
import { operator } from "../../src/server/audit/record.ts";
import { nameOf } from "../../src/server/console/files.ts";
import { DeviceSignIn } from "../../src/server/people/device-sign-in.ts";
import { offerFirstAccount } from "../../src/server/people/first-account.ts";
import { addMember } from "../../src/server/people/members.ts";
import type { Organization } from "../../src/server/policy/organizations.ts";
import { ownPage, signInBrowser } from "./browser-session.ts";
import { startHostileProvider, type HostileProvider } from "./hostile-provider.ts";
import { addProvider } from "./oidc-sign-in.ts";
import { addApp, beginApp, type App } from "./factors.ts";
import { addPasskeyTo, makeAuthenticator } from "./authenticator.ts";
import { makeKeys, registerNode, registrationToken, sendRegistration, type RegisteredNode } from "./nodes.ts";
import { makeTestServer, password, type TestServer } from "./server.ts";

export const callers = [
  "nobody",
  "wrong",
  "expired",
  "node",
  "member",
  "admin",
  "owner",
  "staff",
  "stranger",
  "service",
] as const;
export type Who = (typeof callers)[number];

export type World = {
  server: TestServer;
  acme: Organization;
  /** Undefined: no Authorization header. */
  token(who: Who): string | undefined;
  node: RegisteredNode;
  /** A new name each time. */
  name(prefix: string): string;
};

export type Example = {
  /** The last variable part of the path. */
  id?: number | string;
  /** A variable part before the last one. */
  webhook?: number | string;
  slug?: string;
  body?: object;
  /** Includes the question mark. */
  query?: string;
  /** A token of another user, if the request makes the caller's token invalid. */
  token?: string;
  /** With a Cookie, no token is sent. */
  headers?: Record<string, string>;
  /** Another server, if the shared one does not fit. */
  on?: TestServer;
};

type Maker = (world: World, who: Who) => Example | Promise<Example>;

const Id = v.looseObject({ id: v.number() });

/** Creates a resource with an owner's rights and returns its id. */
async function made({ server, token }: World, path: string, body: object): Promise<number> {
  const bearer = token("owner") ?? "";
  const answer = await server.send("POST", `/api/org/acme/${path}`, { token: bearer, body });
  if (answer.status !== 201) throw new Error(`POST ${path}: ${answer.status} ${answer.text}`);
  return v.parse(Id, answer.json).id;
}

const nothing: Maker = () => ({});
const rule = {
  direction: "inbound",
  protocol: "tcp",
  ports: "443",
  peer: { any: true },
  target: { any: true },
};
const aRule: Maker = async (world) => ({ id: await made(world, "firewall_rules/", rule) });
const anAlias: Maker = async (world) => ({
  id: await made(world, "names/", { name: world.name("alias"), node: world.node.id }),
});
/** Only for callers who end the waiting: it keeps others from changing the policy. */
const aWaitingPolicy: Maker = async ({ server, token }, who) => {
  if (who !== "admin" && who !== "owner" && who !== "service") return {};
  const body = { policy: "relays: []", confirm: 600 };
  await server.send("POST", "/api/org/acme/policy/apply/", { token: token("owner") ?? "", body });
  return {};
};
const aRegistrationToken: Maker = async (world) => ({ id: await made(world, "registration_tokens/", {}) });
const aServiceToken: Maker = async (world) => ({
  id: await made(world, "service_tokens/", { name: "ci", role: "member" }),
});
const aGroup: Maker = async (world) => {
  const name = world.name("group");
  await made(world, "groups/", { name });
  return { id: name };
};
const aMember: Maker = async (world) => ({
  id: await made(world, "members/", { email: `${world.name("m")}@example.org` }),
});
const persons: readonly Who[] = ["member", "admin", "owner", "staff", "stranger"];
/** A browser, if the caller is a person; `id` is its session. */
const aBrowser: Maker = async ({ server }, who) => {
  if (!persons.includes(who)) return { id: 1 };
  const { cookie } = await signInBrowser(server, `${who}@example.org`);
  const session = await server.db.get("SELECT max(id) AS id FROM browser_sessions");
  return { id: Number(session?.["id"]), headers: { ...ownPage, Cookie: `__Host-session=${cookie}` } };
};
/** As a new person, if the caller is a person. */
const withPerson =
  (make: (server: TestServer, token: string) => Promise<Example>): Maker =>
  async ({ server, name }, who) => {
    const token = await server.person(`${name("person")}@example.org`);
    const example = await make(server, token);
    return persons.includes(who) ? { ...example, token } : example;
  };
const withApp = (make: (app: App) => Example) =>
  withPerson(async (server, token) => make(await addApp(server, token)));
const aDeviceRequest = async ({ server, name }: World) => {
  const begun = await server.send("POST", "/api/device/", {
    body: { machine: "build-3" },
    address: `2001:db8:${name("").slice(1)}::1`,
  });
  const { device_code: device, user_code: code } = v.parse(DeviceSignIn, begun.json);
  return { device, code };
};
let issuer: Promise<HostileProvider> | undefined;
const newProvider = async ({ name }: World) => {
  const at = await (issuer ??= startHostileProvider());
  return { name: name("provider"), issuer: at.issuer, client_id: at.clientId };
};
const aProvider: Maker = async (world) => {
  const at = await (issuer ??= startHostileProvider());
  return { id: (await addProvider(world.server, at, { name: world.name("provider") })).id };
};
/** The answer with a body; without it, the status is 204. */
const withReport =
  (make: Maker): Maker =>
  async (world, who) => ({ ...(await make(world, who)), query: "?report=true" });
// Nothing listens on this port. Deliveries have their own tests.
const hook = { url: "http://127.0.0.1:9/hook" };
const noWebhooks: Maker = async ({ server, acme }) => {
  // The number of webhooks is limited, and each example creates one.
  await server.db.write((tx) => tx.run("UPDATE webhooks SET deleted_at = 1 WHERE org_id = $1", [acme.id]));
  return {};
};
const aWebhook: Maker = async (world, who) => {
  await noWebhooks(world, who);
  return { id: await made(world, "webhooks/", hook) };
};
/** A delivery that was given up. */
const anEndedDelivery: Maker = async (world, who) => {
  const { id: webhook } = await aWebhook(world, who);
  const delivery = await world.server.db.write((tx) =>
    tx.get(
      `INSERT INTO deliveries (webhook_id, event_id, attempts, status, created_at)
        SELECT $1, max(id), 1, 500, $2 FROM events RETURNING id`,
      [Number(webhook), world.server.clock.ms],
    ),
  );
  return { id: Number(delivery?.["id"]), webhook: Number(webhook), body: {} };
};
const anOrganization: Maker = async (world, who) => {
  // A service token belongs to one organization.
  if (who === "service") return {};
  const slug = world.name("brief");
  const made = await world.server.organization(slug, "10.91.0.0/16");
  for (const role of ["member", "admin", "owner"] as const) {
    await world.server.join(made, `${role}@example.org`, role);
  }
  return { slug };
};
const theNode: Maker = ({ node }) => ({ id: node.id });
const aNode: Maker = async (world) => ({
  id: (await registerNode(world.server, world.acme, world.name("node"))).id,
});
const aRelay: Maker = async (world, who) => {
  const { id } = await aNode(world, who);
  await world.server.db.write((tx) => tx.run("UPDATE nodes SET is_relay = 1 WHERE id = $1", [Number(id)]));
  return { id: Number(id), body: { limit_bytes: 500_000_000_000 } };
};
/** A machine that waits for approval. */
const aRequest: Maker = async ({ server, acme, name }) => {
  const set = (word: string) =>
    server.db.write((tx) =>
      tx.run("UPDATE organizations SET node_approval = $1 WHERE id = $2", [word, acme.id]),
    );
  const registration_token = await registrationToken(server, acme);
  await set("all");
  await sendRegistration(server, "acme", { name: name("new"), ...(await makeKeys()), registration_token });
  await set("none");
  const row = await server.db.get("SELECT max(id) AS id FROM registration_requests");
  return { id: Number(row?.["id"]), body: {} };
};
const transferTo = ({ server, token }: World, id: number, owner: string) =>
  server.send("POST", `/api/org/acme/nodes/${id}/transfer/`, {
    token: token("owner") ?? "",
    body: { owner },
  });
const withBody =
  (maker: Maker, body: object): Maker =>
  async (world, who) => ({ ...(await maker(world, who)), body });

async function aPerson({ server, name }: World): Promise<{ email: string; refresh: string }> {
  const email = `${name("person")}@example.org`;
  await server.person(email);
  const row = await server.db.get("SELECT id FROM users WHERE email = $1", [email]);
  return { email, refresh: (await server.app.services.sessions.start(Number(row?.["id"]))).refresh };
}

const aUser: Maker = async (world) => {
  const { email } = await aPerson(world);
  return {
    id: Number((await world.server.db.get("SELECT id FROM users WHERE email = $1", [email]))?.["id"]),
  };
};
const refreshed: Maker = async (world) => ({ body: { refresh: (await aPerson(world)).refresh } });

const people: Record<string, Maker> = {
  token_create: async (world) => ({ body: { email: (await aPerson(world)).email, password } }),
  token_refresh_create: refreshed,
  token_revoke_create: refreshed,
  user_factors_retrieve: nothing,
  user_step_up_create: withApp((app) => ({ body: { otp: app.code(1) } })),
  user_totp_create: () => ({ body: { current_password: password } }),
  async user_totp_confirm_create({ server, name }, who) {
    if (!persons.includes(who)) return { body: { otp: "000000" } };
    const token = await server.person(`${name("person")}@example.org`);
    return { token, body: { otp: (await beginApp(server, token)).code() } };
  },
  user_totp_destroy: withApp(() => ({})),
  user_recovery_codes_create: withApp(() => ({})),
  user_passkeys_list: nothing,
  user_passkeys_options: () => ({ body: { current_password: password } }),
  user_passkeys_create: withPerson(async (server, token) => {
    const body = { current_password: password };
    const options = await server.send("POST", "/api/user/passkeys/options/", { token, body });
    return { body: { name: "laptop", response: makeAuthenticator().create(options.json) } };
  }),
  user_passkeys_destroy: withPerson(async (server, token) => {
    await addPasskeyTo(server, token);
    const passkey = await server.db.get("SELECT max(id) AS id FROM passkeys");
    return { id: Number(passkey?.["id"]) };
  }),
  session_passkey_options: () => ({ body: {}, headers: ownPage }),
  session_passkey_create: async ({ server, name }) => {
    const device = await addPasskeyTo(server, await server.person(`${name("person")}@example.org`));
    const options = await server.send("POST", "/api/session/passkey/options/", {
      body: {},
      headers: ownPage,
    });
    return { body: { response: device.get(options.json) }, headers: ownPage };
  },
  user_step_up_passkey_options: nothing,
  user_step_up_passkey_create: withPerson(async (server, token) => {
    const device = await addPasskeyTo(server, token);
    const options = await server.send("POST", "/api/user/step_up/passkey/options/", { token });
    return { body: { response: device.get(options.json) } };
  }),
  sign_in_retrieve: nothing,
  sign_in_partial_update: () => ({ body: { staff_second_factor: false } }),
  session_create: async (world) => ({
    body: { email: (await aPerson(world)).email, password },
    headers: ownPage,
  }),
  device_create: () => ({ body: { machine: "build-3" } }),
  async device_token_create(world) {
    const { device, code } = await aDeviceRequest(world);
    const owner = await signInBrowser(world.server, "owner@example.org");
    const body = { user_code: code, approve: true };
    await owner.send("POST", "/api/user/device_requests/decide/", { body });
    return { body: { device_code: device } };
  },
  async token_code_create({ server }) {
    const owner = await signInBrowser(server, "owner@example.org");
    const code_verifier = "v".repeat(43);
    const code_challenge = createHash("sha256").update(code_verifier).digest("base64url");
    const made = await owner.send("POST", "/api/user/login_codes/", { body: { code_challenge } });
    return { body: { code: v.parse(v.object({ code: v.string() }), made.json).code, code_verifier } };
  },
  user_login_codes_create: async (world, who) => ({
    ...(await aBrowser(world, who)),
    body: { code_challenge: "c".repeat(43) },
  }),
  user_device_requests_find: async (world, who) => ({
    ...(await aBrowser(world, who)),
    body: { user_code: (await aDeviceRequest(world)).code },
  }),
  user_device_requests_decide: async (world, who) => ({
    ...(await aBrowser(world, who)),
    body: { user_code: (await aDeviceRequest(world)).code, approve: true },
  }),
  session_providers_list: nothing,
  session_oidc_create: async (world, who) => ({
    body: { provider: (await aProvider(world, who)).id },
    headers: ownPage,
  }),
  session_oidc_callback: aProvider,
  user_identities_list: nothing,
  async user_identities_create(world, who) {
    const { headers = {} } = await aBrowser(world, who);
    return { body: { provider: (await aProvider(world, who)).id, current_password: password }, headers };
  },
  user_identities_destroy: async (world, who) => {
    const { id: provider } = await aProvider(world, who);
    const identity = withPerson(async ({ db }) => {
      const made = await db.write((tx) =>
        tx.get(
          `INSERT INTO identities (user_id, provider_id, issuer, subject, created_at)
           SELECT max(id), $1, 'i', $2, 1 FROM users RETURNING id`,
          [Number(provider), world.name("subject")],
        ),
      );
      return { id: Number(made?.["id"]) };
    });
    return identity(world, who);
  },
  identity_providers_list: nothing,
  identity_providers_create: async (world) => ({ body: await newProvider(world) }),
  identity_providers_retrieve: aProvider,
  identity_providers_partial_update: withBody(aProvider, { creates_users: true }),
  identity_providers_destroy: aProvider,
  session_destroy: aBrowser,
  user_sessions_list: nothing,
  user_sessions_destroy: aBrowser,
  user_retrieve: nothing,
  async user_password_create({ server, name }, who) {
    const body = { current_password: password, new_password: password };
    const isPerson = persons.includes(who);
    return isPerson ? { body, token: await server.person(`${name("person")}@example.org`) } : { body };
  },
  users_list: nothing,
  users_create: ({ name }) => ({ body: { email: `${name("made")}@example.org`, password } }),
  users_retrieve: aUser,
  users_partial_update: withBody(aUser, { is_active: false }),
  servers_list: nothing,
  docs_sign_in_create: async (world) => ({ body: { email: (await aPerson(world)).email, password } }),
  async join_create({ server, acme, name }) {
    const invited = { email: `${name("guest")}@example.org`, role: "member" } as const;
    const { link = "" } = await addMember(server.app.services, acme, invited, {
      role: "owner",
      actor: operator,
    });
    return { body: { secret: link.replace(/^.*#/, ""), password } };
  },
  async setup_create(world, who) {
    // Only routes that know node tokens refuse them; others treat them as unknown tokens.
    if (who === "node") return { body: {} };
    const on = await makeTestServer();
    const link = await offerFirstAccount(on.app.services);
    const secret = link?.replace(/^.*#/, "");
    return { on, body: { secret, email: `${world.name("first")}@example.org`, password } };
  },
  async password_reset_create(_, who) {
    const body = { email: "nobody@example.org" };
    if (who === "node") return { body };
    const mail = { url: "smtp://127.0.0.1:1", from: "vpn@example.org" };
    return { on: await makeTestServer({ mail }), body };
  },
  async password_reset_confirm_create({ server, name }) {
    await server.person(`${name("person")}@example.org`);
    const secret = name("secret");
    await server.db.write((tx) =>
      tx.run(
        "INSERT INTO password_resets (secret_hash, user_id, expires_at) SELECT $1, max(id), $2 FROM users",
        [hashToken(secret), server.clock.ms + 60_000],
      ),
    );
    return { body: { secret, password } };
  },
  reset_retrieve: nothing,
  members_list: nothing,
  members_create: ({ name }) => ({ body: { email: `${name("new")}@example.org` } }),
  members_retrieve: aMember,
  members_partial_update: withBody(aMember, { role: "admin" }),
  members_destroy: withReport(aMember),
  registration_tokens_list: nothing,
  registration_tokens_create: () => ({ body: { uses: 2, groups: ["web"] } }),
  registration_tokens_retrieve: aRegistrationToken,
  registration_tokens_destroy: withReport(aRegistrationToken),
  service_tokens_list: nothing,
  service_tokens_create: () => ({ body: { name: "ci", role: "admin", expires_in: "1d" } }),
  service_tokens_retrieve: aServiceToken,
  service_tokens_destroy: withReport(aServiceToken),
};

const organizations: Record<string, Maker> = {
  org_list: nothing,
  org_create: ({ name }) => ({ body: { slug: name("made"), network: "10.90.0.0/16" } }),
  org_retrieve: nothing,
  org_partial_update: () => ({ body: { name: "Acme", alive_interval: 2 } }),
  org_destroy: anOrganization,
  ca_retrieve: nothing,
  ca_rotate: withBody(anOrganization, { action: "start" }),
  events_list: nothing,
  webhooks_list: nothing,
  webhooks_create: withBody(noWebhooks, hook),
  webhooks_retrieve: aWebhook,
  webhooks_partial_update: withBody(aWebhook, { events: ["node.*"] }),
  webhooks_destroy: aWebhook,
  webhooks_deliveries_list: aWebhook,
  webhooks_deliveries_send_again: anEndedDelivery,
  groups_list: nothing,
  groups_create: ({ name }) => ({ body: { name: name("group") } }),
  groups_retrieve: aGroup,
  groups_partial_update: withBody(aGroup, { description: "for the web" }),
  groups_destroy: aGroup,
  paths_list: nothing,
  nodes_peers: ({ node }) => ({ id: node.id }),
  relays_list: nothing,
  relays_partial_update: aRelay,
  names_list: nothing,
  names_create: ({ node, name }) => ({ body: { name: name("alias"), node: node.id } }),
  names_destroy: anAlias,
  firewall_rules_list: nothing,
  firewall_rules_create: () => ({ body: rule }),
  firewall_rules_test: ({ node }) => ({
    body: { from: node.id, to: node.id, protocol: "tcp", port: 443 },
  }),
  firewall_rules_retrieve: aRule,
  firewall_rules_partial_update: withBody(aRule, { ports: "8000-8010" }),
  firewall_rules_destroy: aRule,
  policy_retrieve: nothing,
  policy_plan: () => ({ body: { policy: "relays: []" } }),
  policy_test: () => ({ body: { policy: "relays: []" } }),
  policy_partial_update: () => ({ body: { by_file: false } }),
  policy_apply: () => ({ body: { policy: "relays: []" } }),
  policy_confirm: aWaitingPolicy,
  policy_revert: aWaitingPolicy,
};

const nodes: Record<string, Maker> = {
  nodes_list: nothing,
  nodes_create: ({ name }) => ({ body: { name: name("node"), groups: ["web"] } }),
  async nodes_register(world, who) {
    const name = world.name("node");
    const body = { name, ...(await makeKeys(name)) };
    if (who !== "nobody") return { body };
    return { body: { ...body, registration_token: await registrationToken(world.server, world.acme) } };
  },
  nodes_retrieve: theNode,
  nodes_partial_update: withBody(theNode, {
    public_ip: "203.0.113.5",
    config_overrides: { tun: { mtu: 1300 } },
  }),
  async nodes_destroy(world, who) {
    const node = await aNode(world, who);
    if (who === "member") await transferTo(world, Number(node.id), "member@example.org");
    return node;
  },
  registrations_list: nothing,
  registrations_approve: aRequest,
  registrations_refuse: aRequest,
  nodes_transfer: withBody(aNode, { owner: "member@example.org" }),
  async nodes_restore(world, who) {
    const { id } = await aNode(world, who);
    const bearer = world.token("owner") ?? "";
    await world.server.send("DELETE", `/api/org/acme/nodes/${id}/`, { token: bearer });
    return { id: id ?? 0, body: {} };
  },
  nodes_renew_cert: withBody(theNode, {}),
  nodes_config: theNode,
  nodes_diff: theNode,
  nodes_download_config: theNode,
  nodes_checkin: withBody(theNode, { version: "1.0.0", uptime: 7 }),
  revocations_list: nothing,
};

export const examples: Record<string, Maker> = {
  healthz: nothing,
  readyz: nothing,
  schema_policy_retrieve: nothing,
  schema_retrieve: nothing,
  docs_retrieve: nothing,
  redoc_retrieve: nothing,
  docs_assets_retrieve: () => ({ id: "redoc.js" }),
  root_retrieve: () => ({ headers: { Accept: "text/html" } }),
  console_retrieve: nothing,
  console_page_retrieve: () => ({ id: "acme" }),
  console_files_retrieve: () => ({ id: nameOf("main", "js") }),
  stream_retrieve: nothing,
  join_retrieve: nothing,
  setup_retrieve: nothing,
  releases_retrieve: () => ({ id: "manifest.json" }),
  ...people,
  ...organizations,
  ...nodes,
};
