// Phones: site files for the Nebula app, made by their users in a browser. No agent, so nothing waits for them.

import { OnlineHistory } from "../../../src/api/history/online-history.ts";
import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import * as v from "valibot";
import { makeHostKey } from "../../../src/pki/keys.ts";
import { decodeBundle } from "../../../src/pki/bundle.ts";
import { decodeCaBundle, fingerprint, verifyCertificate } from "../../../src/pki/nebula.ts";
import { Node } from "../../../src/protocol/node.ts";
import { openAuthorities } from "../../../src/server/certificates/authorities.ts";
import { countOnline } from "../../../src/server/metrics/online-history.ts";
import { PhoneSite } from "../../../src/api/phones.ts";
import { Authorities } from "../../../src/api/certificates/authorities.ts";
import { issueFirstIpv6 } from "../../../src/server/rollout/first-ipv6.ts";
import { advanceRotations } from "../../../src/server/rollout/rotation-phases.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { releaseDue } from "../../../src/server/nodes/lifecycle/upkeep.ts";
import { signInBrowser, type Browser } from "../../support/browser-session.ts";
import { makeClock } from "../../support/clock.ts";
import { addApp } from "../../support/factors.ts";
import { codeOf, confirm, countOf, downloadOf, registerNode } from "../../support/nodes.ts";
import { makeAcme, membershipOf } from "../../support/people.ts";
import { makeTestServer, type TestServer } from "../../support/server.ts";

const dayMs = 86_400_000;
const ada = "ada@example.org";
let server: TestServer;
let acme: Organization;
let owner: string;
let browser: Browser;

beforeEach(async () => {
  // The server's own loops sleep on a clock that never moves.
  server = await makeTestServer({ network: { sleep: makeClock().sleep } });
  ({ acme, owner } = await makeAcme(server));
  browser = await signInBrowser(server);
});
afterEach(() => server[Symbol.asyncDispose]());

const api = (method: string, path: string, body?: object) =>
  server.send(method, `/api/org/acme/${path}`, { token: owner, ...(body === undefined ? {} : { body }) });
const patch = (body: object) => api("PATCH", "", body);
const newKey = () => makeHostKey().publicPem;
const add = (name: string, more: object = {}, by = browser) =>
  by.send("POST", "/api/org/acme/phones/", {
    body: { name, system: "ios", host_public_key: newKey(), ...more },
  });
const importAgain = (id: number, more: object = {}, by = browser) =>
  by.send("POST", `/api/org/acme/phones/${id}/import/`, {
    body: { system: "ios", host_public_key: newKey(), ...more },
  });
const siteOf = (answer: { json: unknown; text: string; status: number }) => {
  if (answer.status !== 201) throw new Error(`${answer.status} ${answer.text}`);
  return v.parse(PhoneSite, answer.json);
};
const Site = v.looseObject({
  pki: v.looseObject({ ca: v.string(), cert: v.string(), blocklist: v.optional(v.array(v.string())) }),
  mobile_nebula: v.optional(v.looseObject({})),
  static_host_map: v.record(v.string(), v.array(v.string())),
});
const parsed = (site: string) => v.parse(Site, Bun.YAML.parse(site));
const certificateOf = (site: string) => {
  const [first] = decodeBundle(parsed(site).pki.cert);
  if (first === undefined) throw new Error("The site has no certificate");
  return first;
};
const nodeOf = async (id: number) => v.parse(Node, (await api("GET", `nodes/${id}/`)).json);
async function member(): Promise<Browser> {
  await server.person(ada);
  await server.join(acme, ada, "member");
  return signInBrowser(server, ada);
}
const countNodes = () => countOf(server, "SELECT count(*) AS n FROM nodes WHERE org_id = $1", acme.id);

describe("a phone", () => {
  test("is an ordinary node of its user, with a site file that lacks the private key alone", async () => {
    await registerNode(server, acme, "hub", { is_lighthouse: true, public_ip: "203.0.113.1" });
    const { node, site } = siteOf(await add("pixel", { system: "android" }));
    expect(node).toMatchObject({
      name: "pixel",
      state: "active",
      online: false,
      groups: [],
      phone: { system: "android" },
      platform: "android",
      last_checkin_at: null,
    });
    expect(site).not.toContain("PRIVATE");
    // What the browser appends.
    const whole = `${site}  key: "k"\n`;
    expect(parsed(whole).pki).toMatchObject({ key: "k", blocklist: [] });
    const { static_host_map } = parsed(site);
    expect(Object.values(static_host_map)).toEqual([["203.0.113.1:4242"]]);
    const certificate = certificateOf(site);
    verifyCertificate(certificate, decodeCaBundle(parsed(site).pki.ca), Math.floor(server.clock.ms / 1000));
    expect(certificate).toMatchObject({ name: "pixel", networks: [`${node.ip_address}/16`] });
    expect(certificate.notAfter * 1000).toBeLessThanOrEqual(server.clock.ms + 90 * dayMs);
    const events = await server.db.all("SELECT type FROM events WHERE subject = $1 ORDER BY id", [
      `node/${node.id}`,
    ]);
    expect(events.map(({ type }) => type)).toEqual(["node.registered", "certificate.issued"]);
    // It has no token that could check in.
    expect(
      await countOf(
        server,
        "SELECT count(*) AS n FROM nodes WHERE token_hash IS NOT NULL AND id = $1",
        node.id,
      ),
    ).toBe(0);
  });

  test("gets name servers on iOS alone: Android would ask them for every name", async () => {
    const hub = await registerNode(server, acme, "hub");
    expect(parsed(siteOf(await add("early")).site).mobile_nebula).toBeUndefined();
    await api("PATCH", `nodes/${hub.id}/`, { is_name_server: true });
    expect(parsed(siteOf(await add("iphone")).site).mobile_nebula).toEqual({
      dns_resolvers: [hub.ip],
      match_domains: ["acme.internal"],
    });
    expect(parsed(siteOf(await add("pixel", { system: "android" })).site).mobile_nebula).toBeUndefined();
  });

  test("keeps name and address when it is imported again, and its former certificate is blocked at once", async () => {
    const peer = await registerNode(server, acme, "peer");
    const first = siteOf(await add("pixel"));
    const again = siteOf(await importAgain(first.node.id));
    expect(again.node).toMatchObject({
      id: first.node.id,
      name: "pixel",
      ip_address: first.node.ip_address,
    });
    const former = fingerprint(certificateOf(first.site));
    expect(fingerprint(certificateOf(again.site))).not.toBe(former);
    const { files } = downloadOf(await peer.download());
    expect(parsed(files["config.yml"].replaceAll("ca.crt", "x")).pki.blocklist).toEqual([former]);
    expect(await countNodes()).toBe(2);
  });

  test("has the same answer to the same key, and nobody else has one", async () => {
    const key = newKey();
    const first = siteOf(await add("pixel", { host_public_key: key }));
    expect(siteOf(await add("pixel", { host_public_key: key }))).toEqual(first);
    await patch({ self_enrollment: "members" });
    const by = await member();
    for (const answer of [
      await add("pixel", { host_public_key: key }, by),
      await add("other", { host_public_key: key }),
      await importAgain(siteOf(await add("third")).node.id, { host_public_key: key }),
    ])
      expect(codeOf(answer)).toEqual([409, "conflict"]);
  });

  test("waits for an administrator where the organization asks for it, also with another key", async () => {
    await patch({ node_approval: "all", self_enrollment: "members" });
    const by = await member();
    const approve = async () => {
      const row = await server.db.get("SELECT max(id) AS id FROM registration_requests");
      await api("POST", `registrations/${Number(row?.["id"])}/approve/`);
    };
    const key = newKey();
    const ask = () => add("pixel", { host_public_key: key }, by);
    expect((await ask()).status).toBe(202);
    expect((await ask()).json).toMatchObject({ state: "waiting" });
    expect(await countNodes()).toBe(0);
    await approve();
    const { node } = siteOf(await ask());
    const next = newKey();
    expect((await importAgain(node.id, { host_public_key: next }, by)).status).toBe(202);
    expect((await nodeOf(node.id)).certificate).toEqual(node.certificate);
    await approve();
    expect(siteOf(await importAgain(node.id, { host_public_key: next }, by)).node.id).toBe(node.id);
  });

  test("gets groups from administrators alone, who still are when it joins", async () => {
    const { node, site } = siteOf(await add("pixel", { groups: ["staff", "staff"] }));
    expect(node.groups).toEqual(["staff"]);
    expect(certificateOf(site).groups).toContain("staff");
    expect(codeOf(await add("tablet", { groups: ["idp:staff"] }))).toEqual([400, "validation_failed"]);
    expect(codeOf(await importAgain(node.id, { groups: ["db"] }))).toEqual([400, "validation_failed"]);
    await patch({ node_approval: "all", self_enrollment: "members" });
    const by = await member();
    const wishes = { host_public_key: newKey(), groups: ["staff"] };
    const role = (role: string) =>
      server.db.write((tx) =>
        tx.run("UPDATE memberships SET role = $1 WHERE user_id = (SELECT id FROM users WHERE email = $2)", [
          role,
          ada,
        ]),
      );
    expect(codeOf(await add("iphone", wishes, by))).toEqual([403, "permission_denied"]);
    await role("admin");
    expect((await add("iphone", wishes, by)).status).toBe(202);
    const row = await server.db.get("SELECT max(id) AS id FROM registration_requests");
    await api("POST", `registrations/${Number(row?.["id"])}/approve/`);
    const requests = async () => (await api("GET", "registrations/?page_size=1000")).text;
    // An approval of these groups is none of others.
    expect((await add("iphone", { ...wishes, groups: ["db"] }, by)).status).toBe(202);
    expect((await importAgain(node.id)).status).toBe(202);
    // Who approves it sees what the phone is in.
    expect(await requests()).toMatch(/"name":"pixel","key_sha256":"[0-9a-f]+","groups":\["staff"\]/);
    await role("member");
    expect(codeOf(await add("iphone", wishes, by))).toEqual([403, "permission_denied"]);
    expect(await countNodes()).toBe(1);
  });

  test("has a certificate as long as its user need not confirm it", async () => {
    await patch({ reauthenticate_days: 30 });
    const { site } = siteOf(await add("pixel"));
    const days = (certificateOf(site).notAfter * 1000 - server.clock.ms) / dayMs;
    expect(days).toBeGreaterThan(29.9);
    expect(days).toBeLessThanOrEqual(30);
  });

  test("is blocked everywhere when it is revoked, and comes back only by an import", async () => {
    const peer = await registerNode(server, acme, "peer");
    const { node, site } = siteOf(await add("pixel"));
    expect((await api("DELETE", `nodes/${node.id}/`)).status).toBe(204);
    const { files } = downloadOf(await peer.download());
    expect(files["config.yml"]).toContain(fingerprint(certificateOf(site)));
    expect(codeOf(await importAgain(node.id))).toEqual([404, "not_found"]);
    expect((await api("POST", `nodes/${node.id}/restore/`)).status).toBe(200);
    expect(await nodeOf(node.id)).toMatchObject({ certificate: null, phone: { import_by: null } });
    expect(siteOf(await importAgain(node.id)).node.certificate).not.toBeNull();
  });
});

describe("nothing waits for a phone:", () => {
  test("not the names and addresses of revoked nodes", async () => {
    siteOf(await add("pixel"));
    const [peer, gone] = [await registerNode(server, acme, "peer"), await registerNode(server, acme, "gone")];
    await api("DELETE", `nodes/${gone.id}/`);
    await confirm(peer);
    server.clock.ms += 60_000;
    await server.db.writeFor({ org: acme.id }, (tx) => releaseDue(tx, acme.id, server.clock.ms));
    const held =
      "SELECT count(*) AS n FROM addresses WHERE org_id = $1 AND held_until IS NOT NULL AND free_at IS NULL";
    expect(await countOf(server, held, acme.id)).toBe(0);
    expect((await api("GET", "revocations/")).text).toContain('"applied":1,"total":1,"waiting_for":[]');
  });

  test("not a CA rotation, which says that the phone must be imported again", async () => {
    const { node } = siteOf(await add("pixel"));
    expect(node.phone?.import_by).not.toBeNull();
    expect((await api("POST", "ca/rotate/", { action: "start", now: true })).status).toBe(200);
    expect((await nodeOf(node.id)).phone?.import_by).toBeNull();
    // As just after a start of the server, when every machine counts as online.
    await server.db.write((tx) =>
      tx.run("UPDATE organizations SET rotation_heard_from = $1", [server.clock.ms]),
    );
    const advance = () =>
      advanceRotations({ ...server.app.services, authorities: openAuthorities(server.app.services) });
    await advance();
    const shown = v.parse(Authorities, (await api("GET", "ca/")).json).rotation;
    expect(shown).toMatchObject({ phase: "issue", waiting_for: [] });
    expect(siteOf(await importAgain(node.id)).node.phone?.import_by).not.toBeNull();
    for (let step = 0; step < 3; step++) await advance();
    expect(v.parse(Authorities, (await api("GET", "ca/")).json).rotation.phase).toBe("none");
    const { site } = siteOf(await importAgain(node.id));
    expect(decodeCaBundle(parsed(site).pki.ca)).toHaveLength(1);
    verifyCertificate(certificateOf(site), decodeCaBundle(parsed(site).pki.ca), server.clock.ms / 1000);
  });

  test("not a migration of certificate versions, nor the count of machines that are away", async () => {
    const { node } = siteOf(await add("pixel"));
    expect((await patch({ certificate_version: "both" })).status).toBe(200);
    expect((await nodeOf(node.id)).phone?.import_by).toBeNull();
    expect((await patch({ certificate_version: 2, network6: "fd00::/64" })).status).toBe(200);
    const { services } = server.app;
    await issueFirstIpv6({ ...services, authorities: openAuthorities(services) });
    expect(await countOf(server, "SELECT move_open AS n FROM organizations WHERE id = $1", acme.id)).toBe(0);
    const again = siteOf(await importAgain(node.id));
    expect(certificateOf(again.site).version).toBe(2);
    await countOnline(server.app.services);
    const { points } = v.parse(OnlineHistory, (await api("GET", "online/")).json);
    expect(points).toEqual([]);
  });

  test("and a change of its groups reaches it by an import: fewer block what it has", async () => {
    const { node, site } = siteOf(await add("pixel"));
    await api("PATCH", `nodes/${node.id}/`, { groups: ["staff"] });
    expect(await nodeOf(node.id)).toMatchObject({
      certificate: { fingerprint: fingerprint(certificateOf(site)) },
      phone: { import_by: null },
    });
    const more = siteOf(await importAgain(node.id));
    expect(certificateOf(more.site).groups).toContain("staff");
    await api("PATCH", `nodes/${node.id}/`, { groups: [] });
    expect((await nodeOf(node.id)).certificate).toBeNull();
    expect(certificateOf(siteOf(await importAgain(node.id)).site).groups).not.toContain("staff");
    const peer = await registerNode(server, acme, "peer");
    const { files } = downloadOf(await peer.download());
    expect(files["config.yml"]).toContain(fingerprint(certificateOf(more.site)));
  });
});

describe("refused", () => {
  test("members, unless the organization allows it; everybody where it is switched off", async () => {
    const by = await member();
    expect(codeOf(await add("pixel", {}, by))).toEqual([403, "permission_denied"]);
    await patch({ self_enrollment: "members" });
    const { node } = siteOf(await add("pixel", {}, by));
    await patch({ self_enrollment: "off" });
    expect(codeOf(await add("other"))).toEqual([403, "permission_denied"]);
    expect(codeOf(await importAgain(node.id, {}, by))).toEqual([403, "permission_denied"]);
  });

  test("another user's phone, a machine, a name that is taken, and a private key", async () => {
    await patch({ self_enrollment: "members" });
    const by = await member();
    const { node } = siteOf(await add("pixel", {}, by));
    const foreign = await importAgain(node.id);
    expect(codeOf(foreign)).toEqual([403, "permission_denied"]);
    expect(foreign.text).toContain("Only the user whose node it is may do this.");
    const machine = await registerNode(server, acme, "web");
    expect(codeOf(await importAgain(machine.id))).toEqual([403, "permission_denied"]);
    expect(codeOf(await importAgain(9999))).toEqual([404, "not_found"]);
    expect(codeOf(await add("web"))).toEqual([409, "name_taken"]);
    const secret = { host_public_key: makeHostKey().privatePem };
    expect(codeOf(await add("other", secret))).toEqual([400, "validation_failed"]);
    expect(codeOf(await add("<b>x", {}))).toEqual([400, "validation_failed"]);
    expect(await countNodes()).toBe(2);
  });

  test("tokens of users and services, foreign pages, and a user without a fresh second factor", async () => {
    const body = { name: "pixel", system: "ios", host_public_key: newKey() };
    expect(codeOf(await api("POST", "phones/", body))).toEqual([403, "permission_denied"]);
    const path = "/api/org/acme/phones/";
    const foreign = await browser.send("POST", path, { body, headers: { Origin: "https://evil.example" } });
    expect(codeOf(foreign)).toEqual([403, "cross_site"]);
    await addApp(server, owner);
    expect(codeOf(await add("pixel"))).toEqual([403, "step_up_required"]);
    expect(await countNodes()).toBe(0);
  });

  test("the phone of a user who left", async () => {
    await patch({ self_enrollment: "members" });
    const by = await member();
    const { node } = siteOf(await add("pixel", {}, by));
    await server.db.write((tx) => tx.run("DELETE FROM memberships WHERE email = $1", [ada]));
    expect((await importAgain(node.id, {}, by)).status).toBeGreaterThanOrEqual(403);
    expect(await membershipOf(server.db, acme, "owner@example.org")).toBeGreaterThan(0);
  });

  test("a lighthouse, a relay, a router, a name server, and a renewal by an administrator", async () => {
    const { node } = siteOf(await add("pixel"));
    const wishes = [
      { is_lighthouse: true, public_ip: "203.0.113.9" },
      { is_relay: true },
      { is_name_server: true },
    ];
    for (const wish of [...wishes, { subnets: ["192.168.9.0/24"] }])
      expect(codeOf(await api("PATCH", `nodes/${node.id}/`, wish))).toEqual([400, "validation_failed"]);
    expect(codeOf(await api("POST", `nodes/${node.id}/renew_cert/`))).toEqual([409, "conflict"]);
  });

  test("an eleventh site file within an hour", async () => {
    const { node } = siteOf(await add("pixel"));
    for (let times = 1; times < 10; times++) siteOf(await importAgain(node.id));
    expect(codeOf(await importAgain(node.id))).toEqual([429, "throttled"]);
    expect(codeOf(await add("other"))).toEqual([429, "throttled"]);
    expect(await countNodes()).toBe(1);
    server.clock.ms += 3_600_000;
    browser = await signInBrowser(server);
    siteOf(await importAgain(node.id));
  });

  test("an eleventh site file among fourteen at once, with certificates of both versions", async () => {
    expect((await patch({ network6: "fd00:4a::/64", certificate_version: "both" })).status).toBe(200);
    const all = await Promise.all(Array.from({ length: 14 }, (_, at) => add(`pixel${at}`)));
    expect(all.filter(({ status }) => status === 201)).toHaveLength(10);
    const refused = all.filter(({ status }) => status !== 201);
    for (const each of refused) {
      expect(codeOf(each)).toEqual([429, "throttled"]);
      expect(each.headers.get("retry-after")).toBe("3600");
    }
  });
});
