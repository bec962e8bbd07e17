// Three servers on one PostgreSQL behind a proxy that sends each request to another one: a sign-in that begins at one ends at
// another, and what counts once counts once for all of them.

import { afterAll, afterEach, beforeAll, beforeEach, expect, setDefaultTimeout, test } from "bun:test";
import { createHash } from "node:crypto";
import * as v from "valibot";
import { DeviceSignIn } from "../../../src/api/command-line.ts";
import { deleteProvider, installation } from "../../../src/server/oidc/providers.ts";
import { operator } from "../../../src/server/audit/record.ts";
import { browserWith, cookieIn, signInBrowser } from "../../support/browser-session.ts";
import { signInAt, startIdentityProvider, type IdentityProvider } from "../../support/oidc.ts";
import { addProvider, begin, callback, comeBack, loopback, whereTo } from "../../support/oidc-sign-in.ts";
import { makeAcme, pair } from "../../support/people.ts";
import { describePostgres, openedAt, useMigrated } from "../../support/postgres.ts";
import { makeTestServer, type Answer, type TestServer } from "../../support/server.ts";
import { until } from "../../support/until.ts";

setDefaultTimeout(120_000);

const ada = { sub: "ada-1", email: "ada@example.org", email_verified: true };
const codeOf = ({ status, json }: Answer) => [status, (json as { code?: string } | undefined)?.code];
/** The one of them that is accepted. */
function only(answers: readonly Answer[], isAccepted: (answer: Answer) => boolean): Answer {
  const [found, ...more] = answers.filter(isAccepted);
  if (found === undefined || more.length > 0)
    throw new Error(`Not one answer is accepted: ${JSON.stringify(answers)}`);
  return found;
}
const sorted = (answers: readonly Answer[]) => answers.map(({ status }) => status).toSorted((a, b) => a - b);

describePostgres("a sign-in on three servers", () => {
  const createDatabase = useMigrated();
  let provider: IdentityProvider;
  let servers: [TestServer, TestServer, TestServer];

  beforeAll(async () => {
    provider = await startIdentityProvider([callback()]);
    provider.person = ada;
  });
  afterAll(() => provider[Symbol.asyncDispose]());
  beforeEach(async () => {
    const open = openedAt(await createDatabase());
    const secretKey = crypto.getRandomValues(new Uint8Array(32));
    const make = () => makeTestServer({ ...loopback, open, secretKey });
    servers = [await make(), await make(), await make()];
    setClocks(Date.now());
    await makeAcme(servers[0]);
  });
  afterEach(async () => {
    for (const each of servers) await each[Symbol.asyncDispose]();
  });

  const setClocks = (ms: number) => {
    for (const { clock } of servers) clock.ms = ms;
  };
  const everywhere = (send: (on: TestServer) => Promise<Answer>) => Promise.all(servers.map(send));
  const whoAmI = async (on: TestServer, token: string) =>
    (await on.send("GET", "/api/user/", { token })).json;

  test("by a provider of identities begins at one, ends at another, and its answer counts once", async () => {
    const [first, second, third] = servers;
    await addProvider(first, provider, { creates_users: true });
    const { url, cookie } = await begin(first);
    const back = await signInAt(url);
    const answers = await everywhere((on) => comeBack(on, back, { "__Host-oidc": cookie }));
    const accepted = only(answers, (each) => whereTo(each)[1] === "/console/");
    expect(answers.filter((each) => whereTo(each)[1] === "/console/?refused=sign_in_expired")).toHaveLength(
      2,
    );

    const session = cookieIn(accepted, "__Host-session") ?? "none";
    const at = (on: TestServer) => browserWith(on, session);
    const users = await everywhere((on) => at(on).send("GET", "/api/user/"));
    for (const { json } of users)
      expect(json).toEqual({ id: 2, email: ada.email, is_staff: false, server_version: "0.0.0-source" });
    expect((await at(second).send("DELETE", "/api/session/")).status).toBeLessThan(300);
    expect((await at(first).send("GET", "/api/user/")).status).toBe(401);
    expect((await at(third).send("GET", "/api/user/")).status).toBe(401);
  });

  test("by a provider that was deleted at one server meanwhile ends at no other", async () => {
    const [first, second, third] = servers;
    const { id } = await addProvider(first, provider, { creates_users: true });
    const { url, cookie } = await begin(second);
    const back = await signInAt(url);
    await deleteProvider(first.app.services, installation, id, operator);
    const late = await comeBack(third, back, { "__Host-oidc": cookie });
    expect([late.status, cookieIn(late, "__Host-session")]).toEqual([303, undefined]);
    expect(whereTo(late)[1]).toStartWith("/console/?refused=");
  });

  test("by a code on any machine is asked for, typed, approved and fetched at any of them, once", async () => {
    const [first, second, third] = servers;
    const begun = await first.send("POST", "/api/device/", { body: { machine: "build-3" } });
    const { device_code, user_code } = v.parse(DeviceSignIn, begun.json);
    const poll = (on: TestServer) => on.send("POST", "/api/device/token/", { body: { device_code } });
    expect(codeOf(await poll(second))).toEqual([400, "sign_in_waiting"]);
    // At most every five seconds, wherever the requests come out.
    expect(codeOf(await poll(third))).toEqual([429, "throttled"]);
    const { cookie } = await signInBrowser(second);
    const type = (on: TestServer, verb: string, more: object = {}) =>
      browserWith(on, cookie).send("POST", `/api/user/device_requests/${verb}/`, {
        body: { user_code, ...more },
      });
    expect((await type(third, "find")).json).toMatchObject({ machine: "build-3" });
    expect(sorted(await everywhere((on) => type(on, "decide", { approve: true })))).toEqual([204, 404, 404]);

    const polls = await everywhere(poll);
    expect(sorted(polls)).toEqual([200, 403, 403]);
    const given = pair(only(polls, ({ status }) => status === 200));
    for (const each of servers)
      expect(await whoAmI(each, given.access)).toMatchObject({ email: "owner@example.org" });
    const refresh = (on: TestServer, token: string) =>
      on.send("POST", "/api/token/refresh/", { body: { refresh: token } });
    const next = pair(await refresh(second, given.refresh));
    // Somebody else has the former token: the whole session ends, on all servers.
    setClocks(first.clock.ms + 120_000);
    expect((await refresh(third, given.refresh)).status).toBe(401);
    expect((await refresh(first, next.refresh)).status).toBe(401);
  });

  test("by a browser on the same machine takes its code to another server, once", async () => {
    const [first] = servers;
    const code_verifier = "v".repeat(43);
    const code_challenge = createHash("sha256").update(code_verifier).digest("base64url");
    const browser = await signInBrowser(first);
    const made = await browser.send("POST", "/api/user/login_codes/", { body: { code_challenge } });
    const { code } = made.json as { code: string };
    const answers = await everywhere((on) =>
      on.send("POST", "/api/token/code/", { body: { code, code_verifier } }),
    );
    expect(sorted(answers)).toEqual([200, 403, 403]);
  });

  test("wrong codes count together, wherever they are typed", async () => {
    const [first, second, third] = servers;
    const { cookie } = await signInBrowser(first);
    const guess = (on: TestServer) =>
      browserWith(on, cookie).send("POST", "/api/user/device_requests/find/", {
        body: { user_code: "BBBBBBBBBB" },
      });
    for (const on of [first, first, second, second, second])
      expect(codeOf(await guess(on))).toEqual([404, "not_found"]);
    // Told a few times a second. The check adds nothing to the count.
    const counted = () => third.app.services.throttle.counted("codes", "1");
    expect(await until(() => counted() >= 5, { what: "the guesses at the other servers" })).toBe(true);
    expect(codeOf(await guess(third))).toEqual([429, "throttled"]);
  });
});
