// What examples of requests need: callers, and makers of the resources that a route works on.

import { NewEnrollment } from "../../src/api/enrollments.ts";
import * as v from "valibot";
import { wordsOfKey } from "../../src/protocol/key-words.ts";
import { encodePem } from "../../src/pki/bundle.ts";
import { fingerprintOfHostKey, makeHostKey, readHostPublicKey } from "../../src/pki/keys.ts";
import { makeCa, signCertificate } from "../../src/pki/nebula.ts";
import { DeviceSignIn } from "../../src/api/command-line.ts";
import type { Organization } from "../../src/api/organizations.ts";
import { operator } from "../../src/server/audit/record.ts";
import { addDomain } from "../../src/server/oidc/domains.ts";
import { ownPage, signInBrowser } from "./browser-session.ts";
import { startHostileProvider, type HostileProvider } from "./hostile-provider.ts";
import { addProvider } from "./oidc-sign-in.ts";
import { addApp, type App } from "./factors.ts";
import { makeKeys, registerNode, registrationToken, sendRegistration, type RegisteredNode } from "./nodes.ts";
import { membershipOf } from "./people.ts";
import { nextSigned } from "./seals.ts";
import type { TestServer } from "./server.ts";
import { makeSshKey } from "./ssh-keys.ts";
import { temporaryDirectory } from "./temporary.ts";
import { join } from "node:path";

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

export type Maker = (world: World, who: Who) => Example | Promise<Example>;

const Id = v.looseObject({ id: v.number() });

/** Creates a resource with an owner's rights and returns its id. */
async function made({ server, token }: World, path: string, body: object): Promise<number> {
  const bearer = token("owner") ?? "";
  const answer = await server.send("POST", `/api/org/acme/${path}`, { token: bearer, body });
  if (answer.status !== 201) throw new Error(`POST ${path}: ${answer.status} ${answer.text}`);
  return v.parse(Id, answer.json).id;
}

export const nothing: Maker = () => ({});
export const rule = {
  direction: "inbound",
  protocol: "tcp",
  ports: "443",
  peer: { any: true },
  target: { any: true },
};
export const aRule: Maker = async (world) => ({ id: await made(world, "firewall_rules/", rule) });
export const anAlias: Maker = async (world) => ({
  id: await made(world, "names/", { name: world.name("alias"), node: world.node.id }),
});
/** Only for callers who end the waiting: it keeps others from changing the policy. */
export const aWaitingPolicy: Maker = async ({ server, token }, who) => {
  if (who !== "admin" && who !== "owner" && who !== "service") return {};
  const body = { policy: "relays: []", confirm: 600 };
  await server.send("POST", "/api/org/acme/policy/apply/", { token: token("owner") ?? "", body });
  return {};
};
/** One signer for all organizations: each seal follows the one before. */
const directory = temporaryDirectory();
process.on("exit", () => directory[Symbol.dispose]());
const signer = makeSshKey(join(directory.path, "signer"));
export const aSeal: Maker = async ({ server, token }) => {
  const path = "/api/org/acme/seals/";
  const next = async () => {
    const { json } = await server.send("GET", path, { token: token("owner") ?? "" });
    return nextSigned(json, [signer]);
  };
  const { seal, signed } = await next();
  if (seal.number > 1) return { body: signed };
  // Only an owner publishes the first one (test/server/config/first-seal.test.ts).
  await server.send("POST", path, { token: token("owner") ?? "", body: signed });
  return { body: (await next()).signed };
};
export const aSealToForget: Maker = async (...made) => {
  await aSeal(...made);
  return {};
};
/** One for all: an organization has a few of them. */
const offlineCa = makeCa({ version: 1, name: "offline", notBefore: 1_700_000_000, notAfter: 4_000_000_000 });
export const anOfflineCa: Maker = async () => ({ body: { certificate: encodePem(offlineCa.certificate) } });
export const anOfflineCertificate: Maker = async (world) => {
  const { server, acme, token } = world;
  const { body } = await anOfflineCa(world, "owner");
  await server.send("POST", "/api/org/acme/seals/ca/", { token: token("owner") ?? "", body });
  // Other examples change groups and networks of the usual node.
  const node = await registerNode(server, acme, world.name("sealed"));
  const notBefore = Math.floor(server.clock.ms / 1000) - 300;
  const template = {
    version: 1 as const,
    name: node.name,
    networks: [`${node.ip}/${acme.network.split("/")[1]}`],
    unsafeNetworks: [],
    groups: [],
    notBefore,
    notAfter: notBefore + 86_400,
    publicKey: readHostPublicKey(node.keys.host_public_key),
  };
  return { body: { certificates: encodePem(signCertificate(template, offlineCa)) } };
};
export const aRegistrationToken: Maker = async (world) => ({
  id: await made(world, "registration_tokens/", {}),
});
export const aServiceToken: Maker = async (world) => ({
  id: await made(world, "service_tokens/", { name: "ci", role: "member" }),
});
export const aGroup: Maker = async (world) => {
  const name = world.name("group");
  await made(world, "groups/", { name });
  return { id: name };
};
export const aMember: Maker = async (world) => ({
  id: await made(world, "members/", { email: `${world.name("m")}@example.org` }),
});
/** A member with a session: `id` is its number for `of` sessions, else that of the membership. */
export const aSignedInMember =
  (of: "members" | "sessions"): Maker =>
  async ({ server, acme, name }) => {
    const email = `${name("signed-in")}@example.org`;
    await server.person(email);
    await server.join(acme, email, "member");
    const member = await membershipOf(server.db, acme, email);
    const session = await server.db.get("SELECT max(id) AS id FROM browser_sessions");
    return of === "members" ? { id: member } : { webhook: member, id: Number(session?.["id"]) };
  };
/** A user of no organization, with a session. */
export const aSignedInUser: Maker = async ({ server, name }) => {
  const email = `${name("signed-in")}@example.org`;
  await server.person(email);
  const session = await server.db.get("SELECT max(id) AS id, max(user_id) AS user_id FROM browser_sessions");
  return { webhook: Number(session?.["user_id"]), id: Number(session?.["id"]) };
};
export const persons: readonly Who[] = ["member", "admin", "owner", "staff", "stranger"];
/** A browser, if the caller is a person; `id` is its session. */
export const aBrowser: Maker = async ({ server }, who) => {
  if (!persons.includes(who)) return { id: 1 };
  const { cookie } = await signInBrowser(server, `${who}@example.org`);
  const session = await server.db.get("SELECT max(id) AS id FROM browser_sessions");
  return { id: Number(session?.["id"]), headers: { ...ownPage, Cookie: `__Host-session=${cookie}` } };
};
export const aNewPhone: Maker = async (world, who) => {
  await world.server.db.write((tx) => tx.run("UPDATE organizations SET self_enrollment = 'members'"));
  const { headers = {} } = await aBrowser(world, who);
  return { headers, body: { name: world.name("phone"), ...phoneKey() } };
};
export const aPhone: Maker = async (world, who) => {
  const { headers = {}, body = {} } = await aNewPhone(world, who);
  const made = await world.server.send("POST", "/api/org/acme/phones/", { body, headers });
  const id = v.is(Made, made.json) ? made.json.node.id : 1;
  return { headers, id, body: phoneKey() };
};
const Made = v.object({ node: v.object({ id: v.number() }) });
const phoneKey = () => ({ system: "ios", host_public_key: makeHostKey().publicPem });
/** As a new person, if the caller is a person. */
export const withPerson =
  (make: (server: TestServer, token: string) => Promise<Example>): Maker =>
  async ({ server, name }, who) => {
    const token = await server.person(`${name("person")}@example.org`);
    const example = await make(server, token);
    return persons.includes(who) ? { ...example, token } : example;
  };
export const withApp = (make: (app: App) => Example) =>
  withPerson(async (server, token) => make(await addApp(server, token)));
export const aDeviceRequest = async ({ server, name }: World) => {
  const begun = await server.send("POST", "/api/device/", {
    body: { machine: "build-3" },
    address: `2001:db8:${name("").slice(1)}::1`,
  });
  const { device_code: device, user_code: code } = v.parse(DeviceSignIn, begun.json);
  return { device, code };
};
/** A machine that waits for a user, and the words that it shows. */
export const anEnrollment = async ({ server, name }: World) => {
  const keys = await makeKeys();
  const begun = await server.send("POST", "/api/enrollments/", {
    body: { name: name("joining"), machine: "build-3", ...keys },
    address: `2001:db8:${name("").slice(1)}::1`,
  });
  const { enrollment_token, verification_uri } = v.parse(NewEnrollment, begun.json);
  const request = new URL(verification_uri).searchParams.get("request") ?? "";
  const words = wordsOfKey(fingerprintOfHostKey(keys.host_public_key)).join(" ");
  return { enrollment_token, request, words };
};
let issuer: Promise<HostileProvider> | undefined;
export const newProvider = async ({ name }: World) => {
  const at = await (issuer ??= startHostileProvider());
  return { name: name("provider"), issuer: at.issuer, client_id: at.clientId };
};
export const aProvider: Maker = async (world) => {
  const at = await (issuer ??= startHostileProvider());
  return { id: (await addProvider(world.server, at, { name: world.name("provider") })).id };
};
/** Of the organization; the one before is gone, because their number is limited. */
export const ownProvider: Maker = async ({ server, acme, name }) => {
  await server.db.write((tx) => tx.run("DELETE FROM identity_providers WHERE org_id = $1", [acme.id]));
  const at = await (issuer ??= startHostileProvider());
  return { id: (await addProvider(server, at, { name: name("provider") }, { orgId: acme.id })).id };
};
/** The server of the contract's tests finds its TXT record. */
export const aDomain: Maker = async ({ server, acme, name }) => {
  const domain = `${name("domain")}.example`;
  await server.db.write((tx) => tx.run("DELETE FROM verified_domains WHERE org_id = $1", [acme.id]));
  return { id: (await addDomain(server.app.services, acme, domain, operator)).id };
};
/** The answer with a body; without it, the status is 204. */
export const withReport =
  (make: Maker): Maker =>
  async (world, who) => ({ ...(await make(world, who)), query: "?report=true" });
// Nothing listens on this port. Deliveries have their own tests.
export const hook = { url: "http://127.0.0.1:9/hook" };
export const noWebhooks: Maker = async ({ server, acme }) => {
  // The number of webhooks is limited, and each example creates one.
  await server.db.write((tx) => tx.run("UPDATE webhooks SET deleted_at = 1 WHERE org_id = $1", [acme.id]));
  return {};
};
export const aWebhook: Maker = async (world, who) => {
  await noWebhooks(world, who);
  return { id: await made(world, "webhooks/", hook) };
};
/** A delivery that was given up. */
export const anEndedDelivery: Maker = async (world, who) => {
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
export const anAlarm: Maker = async ({ server, acme }) => {
  const alarm = await server.db.write((tx) =>
    tx.get(
      `INSERT INTO alarms (org_id, kind, heads, rest, title, text, since, raised_at)
        VALUES ($1, 'node', '["1"]', '[]', 'The node laptop is away', 'Since noon.', 1, 1) RETURNING id`,
      [acme.id],
    ),
  );
  return { id: Number(alarm?.["id"]) };
};
export const anOrganization: Maker = async (world, who) => {
  // A service token belongs to one organization.
  if (who === "service") return {};
  const slug = world.name("brief");
  const made = await world.server.organization(slug, "10.91.0.0/16");
  for (const role of ["member", "admin", "owner"] as const) {
    await world.server.join(made, `${role}@example.org`, role);
  }
  return { slug };
};
export const theNode: Maker = ({ node }) => ({ id: node.id });
export const aNode: Maker = async (world) => ({
  id: (await registerNode(world.server, world.acme, world.name("node"))).id,
});
export const aRelay: Maker = async (world, who) => {
  const { id } = await aNode(world, who);
  await world.server.db.write((tx) => tx.run("UPDATE nodes SET is_relay = 1 WHERE id = $1", [Number(id)]));
  return { id: Number(id), body: { limit_bytes: 500_000_000_000 } };
};
export const noDrill: Maker = async ({ server }) => {
  await server.db.write(async (tx) => {
    await tx.run("UPDATE rollouts SET state = 'stopped', ended_at = 1");
    // Former ones count: drills may not take too much of the time.
    await tx.run("DELETE FROM drill_nodes");
    await tx.run("DELETE FROM drills");
  });
  return {};
};
/** Of a lighthouse: one without the control plane is not aborted. */
export const anOpenDrill: Maker = async (world, who) => {
  const { server, acme } = world;
  await noDrill(world, who);
  const now = server.clock.ms;
  await server.db.write((tx) =>
    tx.run(
      "INSERT INTO drills (org_id, kind, targets, begins_at, ends_at) VALUES ($1, 'lighthouse-away', '[]', $2, $3)",
      [acme.id, now, now + 60_000],
    ),
  );
  const row = await server.db.get("SELECT max(id) AS id FROM drills WHERE org_id = $1", [acme.id]);
  return { id: Number(row?.["id"]) };
};
/** The body: what the world's node reports of it. */
export const aDrill: Maker = async (world, who) => {
  const { server, acme, token } = world;
  await noDrill(world, who);
  const body = { kind: "control-plane-away", for_s: 10 };
  await server.send("POST", "/api/org/acme/drills/", { token: token("owner") ?? "", body });
  const row = await server.db.get("SELECT max(begins_at) AS at FROM drills WHERE org_id = $1", [acme.id]);
  return { body: { order: Number(row?.["at"]), state: "ended", peers: 1 } };
};
/** No rollout is open, and the engine of the world's node may be updated. */
export const noRollout: Maker = async ({ server, node }) => {
  await server.db.write(async (tx) => {
    await tx.run("UPDATE rollouts SET state = 'stopped', ended_at = 1");
    await tx.run("UPDATE drills SET ended_at = 1");
    await tx.run("UPDATE nodes SET may_update = 'engine 0', overlay_version = '1.10.1' WHERE id = $1", [
      node.id,
    ]);
  });
  return {};
};
/** The body: what the world's node reports of it. */
export const aRollout: Maker = async (world, who) => {
  const { server, acme, token } = world;
  await noRollout(world, who);
  const body = { engine: "1.12.0" };
  await server.send("POST", "/api/org/acme/rollouts/", { token: token("owner") ?? "", body });
  const sql = "SELECT id, created_at FROM rollouts WHERE org_id = $1 ORDER BY id DESC LIMIT 1";
  const row = await server.db.get(sql, [acme.id]);
  return { id: Number(row?.["id"]), body: { order: Number(row?.["created_at"]) * 2, state: "taken" } };
};
export const aRoute: Maker = async (world, who) => {
  const { id } = await aNode(world, who);
  const network = `192.168.${Number(id) % 250}.0/24`;
  await world.server.db.write((tx) =>
    tx.run("UPDATE nodes SET subnets = $1 WHERE id = $2", [JSON.stringify([network]), Number(id)]),
  );
  return { body: { network, metric: 50 } };
};
/** A machine that waits for approval. */
export const aRequest: Maker = async ({ server, acme, name }) => {
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
export const transferTo = ({ server, token }: World, id: number, owner: string) =>
  server.send("POST", `/api/org/acme/nodes/${id}/transfer/`, {
    token: token("owner") ?? "",
    body: { owner },
  });
export const withBody =
  (maker: Maker, body: object): Maker =>
  async (world, who) => ({ ...(await maker(world, who)), body });

export async function aPerson({ server, name }: World): Promise<{ email: string; refresh: string }> {
  const email = `${name("person")}@example.org`;
  await server.person(email);
  const row = await server.db.get("SELECT id FROM users WHERE email = $1", [email]);
  return { email, refresh: (await server.app.services.sessions.start(Number(row?.["id"]))).refresh };
}

export const aUser: Maker = async (world) => {
  const { email } = await aPerson(world);
  return {
    id: Number((await world.server.db.get("SELECT id FROM users WHERE email = $1", [email]))?.["id"]),
  };
};
export const refreshed: Maker = async (world) => ({ body: { refresh: (await aPerson(world)).refresh } });
