// Approval of new machines: what waits, what a request holds meanwhile, and who may answer it.

import { beforeEach, expect, test } from "bun:test";
import * as v from "valibot";
import { RegisterAnswer } from "../../../src/protocol/registration.ts";
import { operator } from "../../../src/server/audit/record.ts";
import { endRequests } from "../../../src/server/nodes/joining/registration-requests.ts";
import { Registration } from "../../../src/api/registrations.ts";
import { revokeToken } from "../../../src/server/offboarding/end-access.ts";
import { changeRole } from "../../../src/server/offboarding/member-changes.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { addApp } from "../../support/factors.ts";
import {
  codeOf,
  countNodes,
  countOf,
  makeKeys,
  registerNode,
  registrationToken,
  sendRegistration,
  type Keys,
} from "../../support/nodes.ts";
import { useNumbered } from "../../support/numbered.ts";
import { makeNumbered, membershipOf } from "../../support/people.ts";
import type { Answer, TestServer } from "../../support/server.ts";

const day = 86_400_000;
const waiting = { status: 202, json: { state: "waiting", retry_after: 5 } };

let server: TestServer;
let org: Organization;
let admin = "";
let number = 0;
const { call, signInAgain } = useNumbered((made) => {
  ({ server, org, admin } = made);
  number = made.count;
});
const setApproval = (node_approval: string) => call("PATCH", "", { node_approval });
beforeEach(async () => {
  expect((await setApproval("all")).status).toBe(200);
});

/** A machine that repeats its registration. */
async function machine(fields: Record<string, unknown> = {}, token?: string) {
  const keys = await makeKeys();
  const registration_token = token ?? (await registrationToken(server, org, { uses: 1 }));
  const ask = (more: Record<string, unknown> = {}) =>
    sendRegistration(server, org.slug, { name: "web", ...keys, registration_token, ...fields, ...more });
  return { ask, keys, registration_token };
}

const asAdmin = (name: string, keys: Keys, token = admin) =>
  sendRegistration(server, org.slug, { name, ...keys }, { token });
const list = async (slug = org.slug, token = admin) => {
  const answer = await server.send("GET", `/api/org/${slug}/registrations/`, { token });
  return v.parse(v.array(Registration), answer.json);
};
async function onlyId(): Promise<number> {
  const [item, ...more] = await list();
  expect(more).toEqual([]);
  return item?.id ?? 0;
}
const answer = (verb: "approve" | "refuse", id: number) => call("POST", `registrations/${id}/${verb}/`, {});
async function approveOnly(): Promise<void> {
  expect((await answer("approve", await onlyId())).status).toBe(204);
}
const usesTaken = () =>
  countOf(server, "SELECT sum(used) AS n FROM registration_tokens WHERE org_id = $1", org.id);
const addressesTaken = () => countOf(server, "SELECT count(*) AS n FROM addresses WHERE org_id = $1", org.id);
const eventsOf = async () => {
  const sql = "SELECT type FROM events WHERE org_id = $1 AND type LIKE 'registration.%' ORDER BY id";
  return (await server.db.all(sql, [org.id])).map(({ type }) => type);
};
const registered = (got: Answer) => v.parse(RegisterAnswer, got.json).node;
const tokenId = () =>
  countOf(server, "SELECT max(id) AS n FROM registration_tokens WHERE org_id = $1", org.id);

test("a machine waits with a held use of its token and nothing else, until it is approved", async () => {
  const { ask, registration_token } = await machine();
  expect(await ask()).toMatchObject(waiting);
  expect(await ask()).toMatchObject(waiting);
  expect([await countNodes(server, org.id), await addressesTaken(), await usesTaken()]).toEqual([0, 0, 1]);
  const [item] = await list();
  expect(item).toMatchObject({ name: "web", groups: [], owner_id: null, seen_from: "192.0.2.1" });
  const other = await machine({}, registration_token);
  expect(codeOf(await other.ask())).toEqual([401, "token_not_valid"]);
  await approveOnly();
  expect(await list()).toEqual([]);
  const got = await ask();
  expect(got.status).toBe(201);
  expect(registered(got).name).toBe("web");
  // A repetition after the answer was lost.
  expect((await ask()).status).toBe(201);
  expect(await usesTaken()).toBe(1);
  expect(
    await countOf(server, "SELECT count(*) AS n FROM registration_requests WHERE org_id = $1", org.id),
  ).toBe(0);
  expect(await eventsOf()).toEqual(["registration.waiting", "registration.approved"]);
});

test("without the setting nothing waits, and a machine that waits goes on once the setting is off", async () => {
  const { ask } = await machine();
  expect(await ask()).toMatchObject(waiting);
  expect((await setApproval("none")).status).toBe(200);
  expect((await ask()).status).toBe(201);
  expect(await usesTaken()).toBe(1);
  await registerNode(server, org, "second");
  expect(await list()).toEqual([]);
});

test("only tokens that are marked as approved need no approval, unless all do", async () => {
  const marked = () => registrationToken(server, org, { approved: true });
  expect(await (await machine({}, await marked())).ask()).toMatchObject(waiting);
  await setApproval("unapproved");
  expect((await (await machine({ name: "ci" }, await marked())).ask()).status).toBe(201);
  expect(await (await machine({ name: "other" })).ask()).toMatchObject(waiting);
  expect((await asAdmin("own", await makeKeys())).status).toBe(202);
});

test("a token is marked as approved only with a fresh second factor, as an approval is given", async () => {
  const { ask } = await machine();
  await ask();
  const id = await onlyId();
  await addApp(server, admin);
  server.clock.ms += 11 * 60_000;
  const token = { approved: true };
  expect(codeOf(await call("POST", "registration_tokens/", token))).toEqual([403, "step_up_required"]);
  expect((await call("POST", "registration_tokens/", {})).status).toBe(201);
  expect(codeOf(await answer("approve", id))).toEqual([403, "step_up_required"]);
  expect(codeOf(await answer("refuse", id))).toEqual([403, "step_up_required"]);
  expect(await ask()).toMatchObject({ status: 202, json: { retry_after: 30 } });
});

test("a changed request after the approval waits again, and its approval ends", async () => {
  const { ask, keys } = await machine(
    {},
    await registrationToken(server, org, { uses: 1, is_lighthouse: true }),
  );
  for (const change of [{ name: "db" }, { is_relay: true }, { public_ip: "203.0.113.7" }]) {
    await ask();
    await approveOnly();
    expect(await ask(change)).toMatchObject(waiting);
    // The first one again is new, too.
    expect(await ask()).toMatchObject(waiting);
  }
  // Another certificate key is another machine, for which the token has no use left.
  const { node_csr } = await makeKeys();
  expect(codeOf(await ask({ node_csr, host_public_key: keys.host_public_key }))).toEqual([
    401,
    "token_not_valid",
  ]);
  expect(await usesTaken()).toBe(1);
  expect(await countNodes(server, org.id)).toBe(0);
});

test("other groups are another request, and the use of the former token is free again", async () => {
  const { ask } = await machine();
  await ask();
  await approveOnly();
  const registration_token = await registrationToken(server, org, { uses: 1, groups: ["prod"] });
  expect(await ask({ registration_token })).toMatchObject(waiting);
  expect((await list())[0]).toMatchObject({ groups: ["prod"], registration_token_id: await tokenId() });
  expect(await usesTaken()).toBe(1);
  expect((await call("DELETE", "groups/prod/")).status).toBe(409);
  await approveOnly();
  expect(registered(await ask({ registration_token })).groups).toEqual(["prod"]);
});

test("the same request with another token keeps its approval, and holds only one use", async () => {
  const { ask } = await machine();
  await ask();
  await approveOnly();
  const registration_token = await registrationToken(server, org, { uses: 1 });
  expect((await ask({ registration_token })).status).toBe(201);
  expect(await usesTaken()).toBe(1);
});

test("a refused machine is told so, its token's use is free, and a machine with new keys asks anew", async () => {
  const { ask, registration_token } = await machine();
  await ask();
  expect((await answer("refuse", await onlyId())).status).toBe(204);
  expect(await usesTaken()).toBe(0);
  expect(codeOf(await ask())).toEqual([403, "registration_refused"]);
  expect(await usesTaken()).toBe(0);
  expect(await list()).toEqual([]);
  expect(await (await machine({}, registration_token)).ask()).toMatchObject(waiting);
  expect(await eventsOf()).toEqual(["registration.waiting", "registration.refused", "registration.waiting"]);
});

test("a machine that was approved and does not come back is listed, and its approval can be taken back", async () => {
  const { ask } = await machine();
  await ask();
  const id = await onlyId();
  const approved = async () => (await call("GET", "registrations/?state=approved")).json;
  const takeBack = () => call("POST", `registrations/${id}/refuse/`, { state: "approved" });
  expect((await takeBack()).status).toBe(409);
  expect(await approved()).toEqual([]);
  await approveOnly();
  const at = server.clock.ms;
  server.clock.ms += 60_000;
  const [item] = v.parse(v.array(v.object({ id: v.number(), approved_at: v.string() })), await approved());
  expect(item?.id).toBe(id);
  expect(Math.abs(Date.parse(item?.approved_at ?? "") - at)).toBeLessThan(1000);
  expect((await takeBack()).status).toBe(204);
  expect(await approved()).toEqual([]);
  expect(codeOf(await ask())).toEqual([403, "registration_refused"]);
  expect(await usesTaken()).toBe(0);
});

test("a machine that waits is listed with the time of its last request, to a minute", async () => {
  const { ask } = await machine();
  const asked = async () => Date.parse((await list())[0]?.last_asked_at ?? "") - start;
  const start = server.clock.ms;
  await ask();
  expect(await asked()).toBe(0);
  server.clock.ms = start + 59_000;
  await ask();
  expect(await asked()).toBe(0);
  server.clock.ms = start + 61_000;
  await ask();
  expect(await asked()).toBe(61_000);
});

test("a demoted person neither registers a machine that waits, nor approves one", async () => {
  const keys = await makeKeys();
  expect((await asAdmin("own", keys)).status).toBe(202);
  const id = await onlyId();
  const membership = await membershipOf(server.db, org, `admin-${number}@example.org`);
  const by = { role: "owner", actor: operator } as const;
  await changeRole(server.app.services, org, membership, "member", by);
  expect((await answer("approve", id)).status).toBe(403);
  await changeRole(server.app.services, org, membership, "admin", by);
  expect((await answer("approve", id)).status).toBe(204);
  await changeRole(server.app.services, org, membership, "member", by);
  expect((await asAdmin("own", keys)).status).toBe(403);
  await changeRole(server.app.services, org, membership, "admin", by);
  expect((await asAdmin("own", keys)).status).toBe(201);
});

test("administrators of another organization, members and service tokens cannot answer", async () => {
  const { ask } = await machine();
  await ask();
  const id = await onlyId();
  const foreign = await makeNumbered(server, number + 500);
  const at = (slug: string, token: string) =>
    server.send("POST", `/api/org/${slug}/registrations/${id}/approve/`, { token, body: {} });
  expect((await at(foreign.org.slug, foreign.admin)).status).toBe(404);
  expect((await at(org.slug, foreign.admin)).status).toBe(404);
  expect(await list(foreign.org.slug, foreign.admin)).toEqual([]);
  const email = `member-${number}@example.org`;
  const member = await server.person(email);
  await server.join(org, email, "member");
  expect((await at(org.slug, member)).status).toBe(403);
  const made = await call("POST", "service_tokens/", { name: "ci", role: "admin" });
  const { token } = v.parse(v.object({ token: v.string() }), made.json);
  expect((await at(org.slug, token)).status).toBe(403);
  expect(await ask()).toMatchObject(waiting);
});

test("a token that is revoked while its machine waits ends the request, approved or not", async () => {
  for (const isApproved of [false, true]) {
    const { ask } = await machine();
    await ask();
    const id = await onlyId();
    if (isApproved) await approveOnly();
    await revokeToken(server.app.services, org, "registration_token", await tokenId(), operator);
    expect(await list()).toEqual([]);
    expect(codeOf(await answer("approve", id))).toEqual([409, "conflict"]);
    expect(codeOf(await ask())).toEqual([401, "token_not_valid"]);
    await endRequests(server.app.services);
    expect(codeOf(await answer("approve", id))).toEqual([404, "not_found"]);
  }
  expect((await eventsOf()).filter((type) => type === "registration.ended")).toHaveLength(2);
  expect(await usesTaken()).toBe(0);
});

test("a request goes on after its token's expiry, and ends after 7 days with its use", async () => {
  const { ask } = await machine({}, await registrationToken(server, org, { uses: 1, expires_in: "1h" }));
  await ask();
  server.clock.ms += 6 * day;
  await signInAgain();
  expect(await ask()).toMatchObject({ status: 202 });
  const id = await onlyId();
  server.clock.ms += day;
  await signInAgain();
  expect(await list()).toEqual([]);
  expect(codeOf(await answer("approve", id))).toEqual([409, "conflict"]);
  expect(codeOf(await ask())).toEqual([401, "token_not_valid"]);
  await endRequests(server.app.services);
  expect(await usesTaken()).toBe(0);
  // With a token that is valid still, the machine simply asks anew.
  const long = await machine({}, await registrationToken(server, org, { uses: 1, expires_in: "30d" }));
  await long.ask();
  server.clock.ms += 7 * day;
  await signInAgain();
  expect(await long.ask()).toMatchObject(waiting);
  expect(await usesTaken()).toBe(1);
});

test("a name that is taken meanwhile is refused after the approval, and another name waits again", async () => {
  const { ask } = await machine();
  await ask();
  await approveOnly();
  expect((await call("POST", "nodes/", { name: "web" })).status).toBe(201);
  expect(codeOf(await ask())).toEqual([409, "name_taken"]);
  expect(await usesTaken()).toBe(1);
  expect(await ask({ name: "web2" })).toMatchObject(waiting);
  await approveOnly();
  expect(registered(await ask({ name: "web2" })).name).toBe("web2");
  // A name that is taken already does not wait at all.
  expect(codeOf(await (await machine({ name: "web2" })).ask())).toEqual([409, "name_taken"]);
});

test("20 machines of one person wait, the 21st is refused until one is answered", async () => {
  for (let at = 0; at < 20; at++) expect((await asAdmin(`own-${at}`, await makeKeys())).status).toBe(202);
  const last = await makeKeys();
  expect(codeOf(await asAdmin("last", last))).toEqual([409, "too_many_waiting"]);
  // Machines of the organization are not those of the person.
  expect(await (await machine()).ask()).toMatchObject(waiting);
  const [first] = await list();
  expect((await answer("refuse", first?.id ?? 0)).status).toBe(204);
  expect((await asAdmin("last", last)).status).toBe(202);
});

test("of an approval and a refusal at the same time, one succeeds", async () => {
  const { ask } = await machine();
  await ask();
  const id = await onlyId();
  const verbs = ["approve", "refuse", "approve", "refuse"] as const;
  const answers = await Promise.all(verbs.map((verb) => answer(verb, id)));
  expect(answers.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([204, 409, 409, 409]);
  const isApproved = answers[0]?.status === 204 || answers[2]?.status === 204;
  expect((await ask()).status).toBe(isApproved ? 201 : 403);
  expect(await usesTaken()).toBe(isApproved ? 1 : 0);
});

test("a registered node registers again with its keys without an approval", async () => {
  await setApproval("none");
  const { ask } = await machine();
  const { id } = registered(await ask());
  await setApproval("all");
  expect(registered(await ask()).id).toBe(id);
});

test("a machine that asks for something else again and again is limited, and the log of events with it", async () => {
  const { ask } = await machine();
  for (let at = 0; at < 10; at++) expect((await ask({ name: `web-${at}` })).status).toBe(202);
  const refused = await ask({ name: "web-10" });
  expect([refused.status, Number(refused.headers.get("retry-after")) > 3000]).toEqual([429, true]);
  expect((await eventsOf()).length).toBe(19);
  server.clock.ms += 3_600_000;
  await signInAgain();
  expect((await ask({ name: "web-9" })).status).toBe(202);
  await approveOnly();
  expect((await ask({ name: "web-9" })).status).toBe(201);
});

test("a machine that only waits is never limited", async () => {
  const { ask } = await machine();
  for (let at = 0; at < 30; at++) expect((await ask()).status).toBe(202);
});
