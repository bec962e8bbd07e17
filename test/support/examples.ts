// For every route a request that succeeds, with the resources that it needs. The contract test fails for a route
// without an example: add one here.

import * as v from "valibot";
import { createHash } from "node:crypto";
import { hashToken } from "../../src/pki/opaque.ts";
import { operator } from "../../src/server/audit/record.ts";
import { nameOf } from "../../src/server/console/files.ts";
import { offerFirstUser } from "../../src/server/users/first-user.ts";
import { addMember } from "../../src/server/users/members.ts";
import { ownPage, signInBrowser } from "./browser-session.ts";
import { beginApp } from "./factors.ts";
import { addPasskeyTo, makeAuthenticator } from "./authenticator.ts";
import { makeKeys, registrationToken } from "./nodes.ts";
import { makeTestServer, password } from "./server.ts";
import {
  aBrowser,
  aDeviceRequest,
  aDomain,
  aGroup,
  aMember,
  aSignedInMember,
  aSignedInUser,
  anAlias,
  anAlarm,
  anEndedDelivery,
  aNewPhone,
  anEnrollment,
  aNode,
  anOfflineCa,
  anOfflineCertificate,
  anOrganization,
  aPerson,
  aPhone,
  aProvider,
  aRegistrationToken,
  aRelay,
  aDrill,
  anOpenDrill,
  aRollout,
  noDrill,
  aRoute,
  aSeal,
  aSealToForget,
  aRequest,
  aRule,
  aServiceToken,
  aUser,
  aWaitingPolicy,
  aWebhook,
  hook,
  type Maker,
  type World,
  newProvider,
  nothing,
  noRollout,
  noWebhooks,
  ownProvider,
  persons,
  refreshed,
  rule,
  theNode,
  transferTo,
  withApp,
  withBody,
  withPerson,
  withReport,
} from "./example-makers.ts";

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
  enrollments_create: async () => ({ body: { name: "web", machine: "build-3", ...(await makeKeys()) } }),
  async enrollments_poll(world) {
    const { enrollment_token } = await anEnrollment(world);
    return { body: { enrollment_token } };
  },
  async user_enrollments_find(world, who) {
    const { request } = await anEnrollment(world);
    return { ...(await aBrowser(world, who)), body: { request } };
  },
  async enrollments_confirm(world, who) {
    await world.server.db.write((tx) => tx.run("UPDATE organizations SET self_enrollment = 'members'"));
    const { request, words } = await anEnrollment(world);
    return { ...(await aBrowser(world, who)), body: { request, words } };
  },
  phones_create: aNewPhone,
  phones_import: aPhone,
  reauthentications_list: nothing,
  async nodes_reauthenticate(world, who) {
    const { id } = await aNode(world, who);
    await transferTo(world, Number(id), `${who}@example.org`);
    return { ...(await aBrowser(world, who)), id: Number(id) };
  },
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
  org_identity_providers_list: nothing,
  org_identity_providers_create: async (world) => ({ body: await newProvider(world) }),
  org_identity_providers_retrieve: ownProvider,
  org_identity_providers_partial_update: withBody(ownProvider, { creates_users: true }),
  org_identity_providers_destroy: ownProvider,
  domains_list: nothing,
  domains_create: ({ name }) => ({ body: { domain: `${name("domain")}.example` } }),
  domains_destroy: aDomain,
  domains_check_create: aDomain,
  domains_vouch_create: () => ({ body: { organization: "acme", domain: "example.org" } }),
  session_destroy: aBrowser,
  user_sessions_list: nothing,
  user_sessions_destroy: aBrowser,
  user_sessions_prove_nodes: () => ({
    body: { nodes: [{ organization: "acme", node_id: 1, proof: "A".repeat(43) }] },
  }),
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
  users_sessions_list: aUser,
  users_sessions_destroy_all: aUser,
  users_sessions_destroy: aSignedInUser,
  control_plane_events_list: nothing,
  servers_history_retrieve: nothing,
  servers_list: nothing,
  servers_clock_create: ({ server }) => ({ body: { time: new Date(server.clock.ms).toISOString() } }),
  docs_sign_in_create: async (world) => ({ body: { email: (await aPerson(world)).email, password } }),
  join_create: async (world) => ({ body: { secret: (await invite(world)).secret, password } }),
  join_find: async (world) => ({ body: { secret: (await invite(world)).secret } }),
  async user_join_create(world, who) {
    const { email, secret } = await invite(world);
    const token = await world.server.person(email);
    return persons.includes(who) ? { body: { secret }, token } : { body: { secret } };
  },
  async setup_create(world, who) {
    // Only routes that know node tokens refuse them; others treat them as unknown tokens.
    if (who === "node") return { body: {} };
    const on = await makeTestServer();
    const link = await offerFirstUser(on.app.services);
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
  members_sessions_list: aSignedInMember("members"),
  members_sessions_destroy_all: aSignedInMember("members"),
  members_sessions_destroy: aSignedInMember("sessions"),
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
  drills_list: nothing,
  drills_create: withBody(noDrill, { kind: "control-plane-away", for_s: 10 }),
  drills_abort: anOpenDrill,
  rollouts_list: nothing,
  rollouts_create: withBody(noRollout, { engine: "1.12.0" }),
  rollouts_retrieve: async (world, who) => ({ id: Number((await aRollout(world, who)).id) }),
  rollouts_nodes: async (world, who) => ({ id: Number((await aRollout(world, who)).id) }),
  rollouts_steer: withBody(aRollout, { action: "pause" }),
  events_list: nothing,
  events_hours: nothing,
  alarms_list: nothing,
  alarms_retrieve: anAlarm,
  alarms_test: withBody(nothing, {}),
  webhooks_list: nothing,
  webhooks_create: withBody(noWebhooks, hook),
  webhooks_retrieve: aWebhook,
  webhooks_partial_update: withBody(aWebhook, { events: ["node.*"] }),
  webhooks_destroy: aWebhook,
  webhooks_deliveries_list: aWebhook,
  webhooks_deliveries_send_again: anEndedDelivery,
  groups_list: nothing,
  provider_groups_list: nothing,
  groups_create: ({ name }) => ({ body: { name: name("group") } }),
  groups_retrieve: aGroup,
  groups_partial_update: withBody(aGroup, { description: "for the web" }),
  groups_destroy: aGroup,
  paths_list: nothing,
  paths_counts: nothing,
  paths_groups: nothing,
  paths_between: nothing,
  flows_list: nothing,
  policy_propose: () => ({ body: {} }),
  nodes_attention: nothing,
  nodes_peers: ({ node }) => ({ id: node.id }),
  relays_list: nothing,
  relays_partial_update: aRelay,
  routes_list: nothing,
  routes_create: ({ node }) => ({ body: { network: "192.168.7.0/24", via: [node.id] } }),
  routes_partial_update: aRoute,
  routes_destroy: async (world, who) => {
    const { body } = await aRoute(world, who);
    return { query: `?network=${encodeURIComponent(String(Object(body).network))}` };
  },
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
  policy_past_retrieve: () => ({ query: `?at=${new Date().toISOString()}` }),
  policy_plan: () => ({ body: { policy: "relays: []" } }),
  policy_test: () => ({ body: { policy: "relays: []" } }),
  policy_partial_update: () => ({ body: { by_file: false } }),
  policy_apply: () => ({ body: { policy: "relays: []" } }),
  seals_retrieve: nothing,
  seals_create: aSeal,
  seals_destroy: aSealToForget,
  seals_ca_create: anOfflineCa,
  seals_sealable_create: () => ({ body: { groups: [] } }),
  seals_certificates_create: anOfflineCertificate,
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
  nodes_drill_report: async (world, who) => ({ ...(await aDrill(world, who)), id: world.node.id }),
  nodes_update_report: async (world, who) => ({ ...(await aRollout(world, who)), id: world.node.id }),
  revocations_list: nothing,
  nodes_online: nothing,
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
  install_retrieve: nothing,
  installer_retrieve: nothing,
  releases_retrieve: () => ({ id: "manifest.json" }),
  releases_apt_retrieve: () => ({ id: "InRelease" }),
  releases_rpm_retrieve: () => ({ id: "overlay-agent.asc" }),
  releases_repodata_retrieve: () => ({ id: "repomd.xml" }),
  ...people,
  ...organizations,
  ...nodes,
};

async function invite({ server, acme, name }: World): Promise<{ email: string; secret: string }> {
  const email = `${name("guest")}@example.org`;
  const invited = { email, role: "member" } as const;
  const { link = "" } = await addMember(server.app.services, acme, invited, {
    role: "owner",
    actor: operator,
  });
  return { email, secret: link.replace(/^.*#/, "") };
}
