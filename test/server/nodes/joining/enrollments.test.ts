// Machines that join without a key: a user confirms them in a browser with the four words that the machine shows.

import { Enrollment, NewEnrollment } from "../../../../src/api/enrollments.ts";
import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import * as v from "valibot";
import { wordsOfKey } from "../../../../src/protocol/key-words.ts";
import { fingerprintOfHostKey } from "../../../../src/pki/keys.ts";
import { RegisterAnswer } from "../../../../src/protocol/registration.ts";
import { operator } from "../../../../src/server/audit/record.ts";
import { setActive } from "../../../../src/server/offboarding/user-status.ts";
import type { Organization } from "../../../../src/api/organizations.ts";
import { deleteEnded } from "../../../../src/server/retention/ended-records.ts";
import { signInBrowser, type Browser } from "../../../support/browser-session.ts";
import { addApp } from "../../../support/factors.ts";
import { codeOf, countOf, makeKeys, registerNode, sendRegistration } from "../../../support/nodes.ts";
import { makeAcme, membershipOf } from "../../../support/people.ts";
import { makeTestServer, type TestServer } from "../../../support/server.ts";

const minute = 60_000;
const ada = "ada@example.org";
let server: TestServer;
let acme: Organization;
let owner: string;
let browser: Browser;

beforeEach(async () => {
  server = await makeTestServer();
  ({ acme, owner } = await makeAcme(server));
  browser = await signInBrowser(server);
});
afterEach(() => server[Symbol.asyncDispose]());

const patch = (body: object) => server.send("PATCH", "/api/org/acme/", { token: owner, body });
const codeIn = (uri: string) => new URL(uri).searchParams.get("request") ?? "";
const begin = (body: object, address = "203.0.113.9") =>
  server.send("POST", "/api/enrollments/", { body: { machine: "build-3", ...body }, address });

/** A machine that waits for a user. */
async function machine(more: object = {}) {
  const keys = await makeKeys();
  const begun = v.parse(NewEnrollment, (await begin({ name: "web", ...keys, ...more })).json);
  const token = begun.enrollment_token;
  return {
    keys,
    token,
    begun,
    code: codeIn(begun.verification_uri),
    words: wordsOfKey(fingerprintOfHostKey(keys.host_public_key)).join(" "),
    poll: () => server.send("POST", "/api/enrollments/poll/", { body: { enrollment_token: token } }),
    register: (fields: object = {}) =>
      sendRegistration(server, "acme", { name: "web", ...keys, registration_token: token, ...fields }),
  };
}
type Machine = Awaited<ReturnType<typeof machine>>;

const find = (request: string, by = browser) =>
  by.send("POST", "/api/user/enrollments/find/", { body: { request } });
const confirm = ({ code, words }: Pick<Machine, "code" | "words">, by = browser, slug = "acme") =>
  by.send("POST", `/api/org/${slug}/enrollments/confirm/`, { body: { request: code, words } });
const countIn = (table: string) =>
  countOf(server, `SELECT count(*) AS n FROM ${table} WHERE org_id = $1`, acme.id);
const eventsOf = async (like: string) => {
  const sql = "SELECT type FROM events WHERE org_id = $1 AND type LIKE $2 ORDER BY id";
  return (await server.db.all(sql, [acme.id, like])).map(({ type }) => type);
};
async function member(): Promise<Browser> {
  await server.person(ada);
  await server.join(acme, ada, "member");
  return signInBrowser(server, ada);
}
const removeAda = async () => {
  const path = `/api/org/acme/members/${await membershipOf(server.db, acme, ada)}/`;
  return server.send("DELETE", path, { token: owner });
};
const registered = (answer: { json: unknown }) => v.parse(RegisterAnswer, answer.json).node;

describe("a machine", () => {
  test("shows what it is, waits for the words, and then registers as an ordinary node of the user", async () => {
    const { begun, ...asking } = await machine({ platform: "linux-x64" });
    expect(begun).toMatchObject({
      verification_uri: expect.stringMatching(
        /^https:\/\/control\.example\/console\/-\/join\/\?request=[A-Z]{10}$/,
      ),
      expires_in: 600,
    });
    expect((await asking.poll()).json).toEqual({ state: "waiting", organization: null });
    expect([
      await countIn("nodes"),
      await countIn("addresses"),
      await countIn("registration_tokens"),
    ]).toEqual([0, 0, 0]);
    const found = await find(asking.code.toLowerCase());
    expect(v.parse(Enrollment, found.json)).toMatchObject({
      name: "web",
      machine: "build-3",
      platform: "linux-x64",
      address: "203.0.113.9",
      is_known_network: false,
      organizations: [{ slug: "acme", name: "acme" }],
    });
    expect((await confirm({ ...asking, words: asking.words.toUpperCase() })).status).toBe(204);
    expect((await asking.poll()).json).toEqual({ state: "confirmed", organization: "acme" });
    // An answer that was lost is asked for again.
    expect((await asking.poll()).json).toEqual({ state: "confirmed", organization: "acme" });
    const user = await server.db.get("SELECT id FROM users WHERE email = 'owner@example.org'");
    expect(registered(await asking.register())).toMatchObject({
      name: "web",
      groups: [],
      is_lighthouse: false,
      owner_id: Number(user?.["id"]),
    });
    expect((await asking.register()).status).toBe(201);
    expect(await eventsOf("enrollment.%")).toEqual(["enrollment.confirmed"]);
    expect(await eventsOf("token.%")).toEqual(["token.used"]);
  });

  test("is never told its words by the server, nor is the user, and the secret is not stored", async () => {
    const asking = await machine();
    const said = [asking.begun, (await asking.poll()).json, (await find(asking.code)).json];
    const wrong = await confirm({ ...asking, words: "maple maple maple maple" });
    const stored = await server.db.all("SELECT * FROM enrollments");
    const all = JSON.stringify([said, wrong.json, stored]).toLowerCase();
    // One word alone may be a part of an ordinary one, as "organ" is; two in succession are not found by chance.
    const words = asking.words.split(" ");
    for (const [i, word] of words.slice(1).entries())
      expect(all).not.toMatch(new RegExp(`${words[i]}\\W+${word}`));
    expect(JSON.stringify(stored)).not.toContain(asking.token);
  });

  test("waits for an administrator afterwards, where the organization asks for it", async () => {
    await patch({ node_approval: "unapproved" });
    const asking = await machine();
    await confirm(asking);
    expect((await asking.register()).status).toBe(202);
    // A use of the token is held, so its end does not matter.
    server.clock.ms += 11 * minute;
    const listed = await server.send("GET", "/api/org/acme/registrations/", { token: owner });
    expect(listed.json).toMatchObject([{ name: "web", owner_id: expect.any(Number) }]);
    const [{ id }] = listed.json as [{ id: number }];
    await server.send("POST", `/api/org/acme/registrations/${id}/approve/`, { token: owner, body: {} });
    expect((await asking.register()).status).toBe(201);
  });

  test("keeps the organization that it asked for", async () => {
    const other = await server.organization("other", "10.78.0.0/16");
    await server.join(other, "owner@example.org", "owner");
    const free = await find((await machine()).code);
    expect(v.parse(Enrollment, free.json).organizations.map(({ slug }) => slug)).toEqual(["acme", "other"]);
    const asking = await machine({ organization: "acme" });
    expect(v.parse(Enrollment, (await find(asking.code)).json).organizations).toEqual([
      { slug: "acme", name: "acme" },
    ]);
    expect(codeOf(await confirm(asking, browser, "other"))).toEqual([404, "not_found"]);
    expect((await confirm(asking)).status).toBe(204);
  });

  test("that asks for an organization which is not there, or not the user's, is unknown to the user", async () => {
    await server.organization("secret", "10.79.0.0/16");
    for (const organization of ["secret", "nowhere"]) {
      const asking = await machine({ organization });
      expect(codeOf(await find(asking.code))).toEqual([404, "not_found"]);
      expect(codeOf(await confirm(asking))).toEqual([404, "not_found"]);
      expect(codeOf(await confirm(asking, browser, organization))).toEqual([404, "not_found"]);
    }
  });

  test("learns that its name is taken or held from the page, while it can still be confirmed", async () => {
    const asking = await machine();
    const { id } = await registerNode(server, acme, "web");
    expect(codeOf(await confirm(asking))).toEqual([409, "name_taken"]);
    await server.send("DELETE", `/api/org/acme/nodes/${id}/`, { token: owner });
    expect(codeOf(await confirm(asking))).toEqual([409, "name_held"]);
    expect((await asking.poll()).json).toEqual({ state: "waiting", organization: null });
  });

  test("waits on after right words that did not confirm it, however often", async () => {
    const asking = await machine();
    await registerNode(server, acme, "web");
    for (let times = 0; times < 6; times++)
      expect(codeOf(await confirm(asking))).toEqual([409, "name_taken"]);
    expect((await asking.poll()).json).toEqual({ state: "waiting", organization: null });
    expect(codeOf(await confirm({ ...asking, words: "maple" }))).toEqual([401, "invalid_code"]);
  });

  test("waits while the last try is compared, and right words at it confirm the machine", async () => {
    const asking = await machine();
    for (let left = 4; left > 0; left--) await confirm({ ...asking, words: "maple" });
    const sql = "SELECT tries FROM enrollments ORDER BY id DESC LIMIT 1";
    const seen: unknown[] = [];
    const { db } = server;
    const { writeFor } = db;
    // Between the commit of the count and the confirmation.
    db.writeFor = async (concern, work) => {
      const done = await writeFor(concern, work);
      if (concern === "rows") seen.push((await db.get(sql))?.["tries"], (await asking.poll()).json);
      return done;
    };
    expect((await confirm(asking)).status).toBe(204);
    db.writeFor = writeFor;
    expect(seen.slice(0, 2)).toEqual([5, { state: "waiting", organization: null }]);
    expect((await asking.poll()).json).toEqual({ state: "confirmed", organization: "acme" });
  });
});

describe("refused", () => {
  test("a link alone: nothing but the words confirms, and five wrong ones end the request", async () => {
    const asking = await machine();
    for (let left = 4; left > 0; left--) {
      const wrong = await confirm({ ...asking, words: `maple maple maple ${left}` });
      expect([codeOf(wrong), wrong.text]).toEqual([
        [401, "invalid_code"],
        expect.stringContaining(`${left} more`),
      ]);
    }
    expect(codeOf(await confirm({ ...asking, words: "" }))).toEqual([401, "invalid_code"]);
    // Neither the user nor anybody else can go on with the right ones.
    expect(codeOf(await confirm(asking))).toEqual([429, "throttled"]);
    await server.person(ada);
    await server.join(acme, ada, "admin");
    const second = await signInBrowser(server, ada);
    expect(codeOf(await confirm(asking, second))).toEqual([404, "not_found"]);
    expect(codeOf(await asking.poll())).toEqual([403, "enrollment_ended"]);
    expect(codeOf(await asking.register())).toEqual([401, "token_not_valid"]);
    expect(await eventsOf("enrollment.%")).toEqual(["enrollment.refused"]);
  });

  test("more than five tries at once, the right words among them", async () => {
    const asking = await machine();
    const tries = Array.from({ length: 8 }, () => confirm({ ...asking, words: "maple" }));
    expect((await Promise.all(tries)).map(({ status }) => status).filter((each) => each === 401).length).toBe(
      5,
    );
    expect((await confirm(asking)).status).not.toBe(204);
  });

  test("codes of requests that do not exist, after five of them", async () => {
    const { code } = await machine();
    for (let times = 0; times < 5; times++)
      expect(codeOf(await find("BBBBBBBBBB"))).toEqual([404, "not_found"]);
    expect(codeOf(await find(code))).toEqual([429, "throttled"]);
  });

  test("members, unless the organization allows it; everybody where it is switched off", async () => {
    const by = await member();
    const asking = await machine();
    expect(v.parse(Enrollment, (await find(asking.code, by)).json).organizations).toEqual([]);
    expect(codeOf(await confirm(asking, by))).toEqual([403, "permission_denied"]);
    expect((await patch({ self_enrollment: "members" })).json).toMatchObject({ self_enrollment: "members" });
    await patch({ self_enrollment: "off" });
    expect(codeOf(await confirm(asking))).toEqual([403, "permission_denied"]);
    await patch({ self_enrollment: "members" });
    expect((await confirm(asking, by)).status).toBe(204);
    expect(registered(await asking.register()).groups).toEqual([]);
  });

  test("a second confirmation of the same machine, also at the same time", async () => {
    const asking = await machine();
    const both = await Promise.all([confirm(asking), confirm(asking)]);
    expect(both.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([204, 404]);
    expect(codeOf(await confirm(asking))).toEqual([404, "not_found"]);
    expect(await countIn("registration_tokens")).toBe(1);
  });

  test("another name, other keys, another address or a lighthouse after the confirmation", async () => {
    const asking = await machine();
    await confirm(asking);
    expect(codeOf(await asking.register({ name: "db" }))).toEqual([409, "conflict"]);
    expect(codeOf(await asking.register(await makeKeys()))).toEqual([409, "conflict"]);
    const { node_csr } = await makeKeys();
    expect(codeOf(await asking.register({ node_csr }))).toEqual([409, "conflict"]);
    for (const wish of [{ ip_address: "10.77.0.9" }, { is_lighthouse: true }, { is_relay: true }])
      expect(codeOf(await asking.register(wish))).toEqual([409, "conflict"]);
    expect(await countIn("nodes")).toBe(0);
    expect((await asking.register()).status).toBe(201);
  });

  test("the machine's secret in another organization, or before the confirmation", async () => {
    const other = await server.organization("other", "10.78.0.0/16");
    const asking = await machine();
    expect(codeOf(await asking.register())).toEqual([401, "token_not_valid"]);
    await confirm(asking);
    const body = { name: "web", ...asking.keys, registration_token: asking.token };
    expect(codeOf(await sendRegistration(server, other.slug, body))).toEqual([401, "token_not_valid"]);
  });

  const leavings: [string, () => Promise<unknown>][] = [
    ["was disabled", () => setActive(server.app.services, ada, false, operator)],
    ["was removed", () => removeAda()],
    ["may no longer", () => patch({ self_enrollment: "admins" })],
  ];
  test.each(leavings)("a machine whose user %s after the confirmation", async (_, leave) => {
    await patch({ self_enrollment: "members" });
    const asking = await machine();
    expect((await confirm(asking, await member())).status).toBe(204);
    await leave();
    expect(codeOf(await asking.register())).toEqual([401, "token_not_valid"]);
    expect(await countIn("nodes")).toBe(0);
  });

  test("a machine that waits for approval, when its user left meanwhile", async () => {
    await patch({ self_enrollment: "members", node_approval: "all" });
    const asking = await machine();
    await confirm(asking, await member());
    expect((await asking.register()).status).toBe(202);
    expect((await removeAda()).status).toBe(204);
    expect(codeOf(await asking.register())).toEqual([401, "token_not_valid"]);
  });

  test("an administrator who was demoted between sign-in and confirmation", async () => {
    await server.person(ada);
    await server.join(acme, ada, "admin");
    const by = await signInBrowser(server, ada);
    const asking = await machine();
    // As if the demotion came after the request was admitted: by the API, it ends the session.
    await server.db.write((tx) => tx.run("UPDATE memberships SET role = 'member' WHERE email = $1", [ada]));
    expect(codeOf(await confirm(asking, by))).toEqual([403, "permission_denied"]);
  });

  test("tokens of users, services and nodes, requests without a session, and foreign pages", async () => {
    const asking = await machine();
    const body = { request: asking.code, words: asking.words };
    const path = "/api/org/acme/enrollments/confirm/";
    expect(codeOf(await server.send("POST", path, { token: owner, body }))).toEqual([
      403,
      "permission_denied",
    ]);
    const made = await server.send("POST", "/api/org/acme/service_tokens/", {
      token: owner,
      body: { name: "ci", role: "admin" },
    });
    const { token: service } = v.parse(v.object({ token: v.string() }), made.json);
    expect(codeOf(await server.send("POST", path, { token: service, body }))).toEqual([
      403,
      "permission_denied",
    ]);
    const { token: node } = await registerNode(server, acme, "hub");
    expect(codeOf(await server.send("POST", path, { token: node, body }))).toEqual([403, "node_token_scope"]);
    expect((await server.send("POST", path, { body })).status).toBe(401);
    const foreign = await browser.send("POST", path, { body, headers: { Origin: "https://evil.example" } });
    expect(codeOf(foreign)).toEqual([403, "cross_site"]);
    expect((await browser.send("GET", path)).status).toBe(405);
    await server.person("stranger@example.org");
    const stranger = await signInBrowser(server, "stranger@example.org");
    expect(codeOf(await confirm(asking, stranger))).toEqual([404, "not_found"]);
    expect((await asking.poll()).json).toEqual({ state: "waiting", organization: null });
  });

  test("a confirmation without a fresh second factor of a user who has one", async () => {
    const app = await addApp(server, owner);
    const asking = await machine();
    expect(codeOf(await confirm(asking))).toEqual([403, "step_up_required"]);
    await browser.send("POST", "/api/user/step_up/", { body: { otp: app.code(1) } });
    expect((await confirm(asking)).status).toBe(204);
  });

  test("everything after ten minutes: the page, the machine, and a confirmation that was not used", async () => {
    const late = await machine();
    const unused = await machine({ name: "db" });
    await confirm(unused);
    server.clock.ms += 10 * minute;
    expect(codeOf(await find(late.code))).toEqual([404, "not_found"]);
    expect(codeOf(await confirm(late))).toEqual([404, "not_found"]);
    expect(codeOf(await late.poll())).toEqual([403, "enrollment_ended"]);
    expect(codeOf(await unused.poll())).toEqual([403, "enrollment_ended"]);
    expect(codeOf(await unused.register({ name: "db" }))).toEqual([401, "token_not_valid"]);
    await deleteEnded(server.app.services, minute, () => false);
    expect(await server.db.all("SELECT 1 FROM enrollments")).toEqual([]);
  });

  test("1,000 machines of one /48: it keeps nobody else from joining", async () => {
    const { host_public_key } = await makeKeys();
    const answers = [];
    for (let at = 0; at < 1000; at++) {
      const address = `2001:db8:1:${at.toString(16)}::1`;
      answers.push((await begin({ name: "web", host_public_key }, address)).status);
    }
    expect(answers.filter((status) => status === 201).length).toBe(50);
    expect(answers.at(-1)).toBe(429);
    expect((await begin({ name: "web", host_public_key }, "2001:db8:2::1")).status).toBe(201);
    expect((await find((await machine()).code)).status).toBe(200);
  });

  test("private keys, and requests that begin too often from one network", async () => {
    const { host_public_key } = await makeKeys();
    const leaked = { name: "web", host_public_key, node_csr: "-----BEGIN PRIVATE KEY-----" };
    expect(codeOf(await begin(leaked))).toEqual([400, "validation_failed"]);
    for (let times = 0; times < 19; times++) await begin({ name: "web", host_public_key });
    expect(codeOf(await begin({ name: "web", host_public_key }))).toEqual([429, "throttled"]);
  });
});
