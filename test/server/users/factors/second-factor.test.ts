// Second factors at sign-in, what a wrong code costs, and the fresh proof before what would hurt most.

import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { setImmediate } from "node:timers/promises";
import * as v from "valibot";
import { NewMember } from "../../../../src/api/members.ts";
import { operator } from "../../../../src/server/audit/record.ts";
import { resetFactors } from "../../../../src/server/users/factors/own-factors.ts";
import { setStaffNeedFactor } from "../../../../src/server/users/factors/staff-factor.ts";
import { checkSecrets } from "../../../../src/server/backup/key-rotation.ts";
import {
  ownPage,
  postSession,
  browserWith,
  cookieIn,
  signInBrowser,
} from "../../../support/browser-session.ts";
import { addApp, appWith, beginApp, type App } from "../../../support/factors.ts";
import { makeAcme, makeNumbered, pair } from "../../../support/people.ts";
import { makeTestServer, password, type Answer, type TestServer } from "../../../support/server.ts";

const email = "owner@example.org";
const minute = 60_000;
let server: TestServer;
/** Sets the clock, and the server believes it. */
const step = (ms: number) => Object.assign(server.clock, { steppedMs: ms, confirmedMs: ms });
let owner: string;

beforeEach(async () => {
  server = await makeTestServer({ accessLifetimeS: 86_400 });
  ({ owner } = await makeAcme(server));
});
afterEach(async () => {
  await server[Symbol.asyncDispose]();
});

const signIn = (otp?: string, address = "192.0.2.1") =>
  server.send("POST", "/api/token/", {
    body: { email, password, ...(otp === undefined ? {} : { otp }) },
    address,
  });
const codeOf = ({ status, json }: Answer) => [status, (json as { code?: string } | undefined)?.code];
const ok = [200, undefined];
const next = () => void (server.clock.ms += 60_000);

describe("with a second factor", () => {
  test("the password alone gets second_factor_required with the methods, and no session", async () => {
    expect(codeOf(await signIn())).toEqual(ok);
    await addApp(server, owner);
    const asked = await signIn();
    expect([asked.status, asked.json, asked.headers.getSetCookie()]).toEqual([
      401,
      expect.objectContaining({ code: "second_factor_required", methods: ["totp", "recovery_code"] }),
      [],
    ]);
    const wrong = await server.send("POST", "/api/token/", {
      body: { email, password: "wrong", otp: "000000" },
    });
    expect(codeOf(wrong)).toEqual([401, "invalid_credentials"]);
  });

  test("every sign-in asks for it: tokens, browsers, the docs pages", async () => {
    const app = await addApp(server, owner);
    await server.db.write((tx) => tx.run("UPDATE users SET is_staff = 1"));
    for (const path of ["/api/token/", "/api/session/", "/api/docs/sign_in/"]) {
      const send = (otp?: string) =>
        server.send("POST", path, {
          body: { email, password, ...(otp === undefined ? {} : { otp }) },
          headers: ownPage,
        });
      next();
      expect(codeOf(await send())).toEqual([401, "second_factor_required"]);
      const answer = await send(app.code());
      expect([path, answer.status < 300]).toEqual([path, true]);
    }
  });

  test("so does an invitation, which stays open without the code", async () => {
    const app = await addApp(server, owner);
    const { org, admin: token } = await makeNumbered(server, 1);
    const body = { email, role: "member" };
    const invited = await server.send("POST", `/api/org/${org.slug}/members/`, { token, body });
    const { link = "" } = v.parse(NewMember, invited.json);
    const join = (otp?: string) =>
      server.send("POST", "/api/join/", {
        body: { secret: link.replace(/^.*#/, ""), password, ...(otp === undefined ? {} : { otp }) },
      });
    next();
    expect(codeOf(await join())).toEqual([401, "second_factor_required"]);
    expect(codeOf(await join("000000"))).toEqual([401, "invalid_code"]);
    expect(codeOf(await join(app.code()))).toEqual(ok);
  });

  test("a code of the present step or one beside it is taken, each step once", async () => {
    const app = await addApp(server, owner);
    expect(codeOf(await signIn(app.code()))).toEqual([401, "invalid_code"]);
    next();
    const code = app.code();
    expect(codeOf(await signIn(code))).toEqual(ok);
    expect(codeOf(await signIn(code))).toEqual([401, "invalid_code"]);
    expect(codeOf(await signIn(app.code(-1)))).toEqual([401, "invalid_code"]);
    expect(codeOf(await signIn(`${app.code(1).slice(0, 3)} ${app.code(1).slice(3)}`))).toEqual(ok);
    expect(codeOf(await signIn(app.code(2)))).toEqual([401, "invalid_code"]);
  });

  test("of 8 requests with one code at the same instant, one succeeds", async () => {
    const app = await addApp(server, owner);
    next();
    const answers = await Promise.all(
      Array.from({ length: 8 }, (_, at) => signIn(app.code(), `198.51.100.${at + 1}`)),
    );
    expect(answers.filter(({ status }) => status === 200).length).toBe(1);
  });

  test("each of the ten recovery codes works once, however it is typed", async () => {
    const { recoveryCodes } = await addApp(server, owner);
    expect(new Set(recoveryCodes).size).toBe(10);
    const [first = "", second = ""] = recoveryCodes;
    expect(first).toMatch(/^[a-z2-7]{4}(-[a-z2-7]{4}){3}$/);
    expect(codeOf(await signIn(first))).toEqual(ok);
    expect(codeOf(await signIn(first))).toEqual([401, "invalid_code"]);
    expect(codeOf(await signIn(second.toUpperCase().replaceAll("-", " ")))).toEqual(ok);
    const factors = await server.send("GET", "/api/user/factors/", { token: owner });
    expect(factors.json).toEqual({ totp: true, passkeys: 0, recovery_codes_left: 8, is_required: false });
  });

  test("secrets and codes are stored sealed and hashed", async () => {
    const { recoveryCodes } = await addApp(server, owner);
    const rows = JSON.stringify(await server.db.all("SELECT * FROM totp_secrets"));
    expect(rows).toContain("s1.");
    const codes = JSON.stringify(await server.db.all("SELECT * FROM recovery_codes"));
    for (const code of recoveryCodes) expect(codes).not.toContain(code.replaceAll("-", ""));
    await checkSecrets(server.db, server.app.services.secretKey);
  });
});

describe("wrong codes", () => {
  test("five from one place end the attempt there, also for the right code, but not elsewhere", async () => {
    const app = await addApp(server, owner);
    next();
    for (let at = 0; at < 5; at++) expect(codeOf(await signIn("000000"))).toEqual([401, "invalid_code"]);
    const refused = await signIn(app.code());
    expect(codeOf(refused)).toEqual([429, "throttled"]);
    expect(Number(refused.headers.get("Retry-After"))).toBeGreaterThan(500);
    expect(codeOf(await signIn(app.code(), "198.51.100.7"))).toEqual(ok);
    server.clock.ms += 10 * minute;
    expect(codeOf(await signIn(app.code()))).toEqual(ok);
  });

  test("twenty an hour end it for the account, wherever they come from", async () => {
    const app = await addApp(server, owner);
    next();
    for (let at = 0; at < 20; at++)
      expect(codeOf(await signIn("000000", `198.51.100.${at}`))).toEqual([401, "invalid_code"]);
    expect(codeOf(await signIn(app.code(), "203.0.113.1"))).toEqual([429, "throttled"]);
    server.clock.ms += 61 * minute;
    expect(codeOf(await signIn(app.code(), "203.0.113.1"))).toEqual(ok);
  });

  test("a recovery code works once, after any number of wrong codes: a thief of the password cannot lock the user out", async () => {
    const { recoveryCodes } = await addApp(server, owner);
    const [first, second] = recoveryCodes;
    for (let at = 0; at < 20; at++) await signIn("000000", `198.51.100.${at}`);
    expect(codeOf(await signIn(first))).toEqual(ok);
    expect(codeOf(await signIn(first))).toEqual([429, "throttled"]);
    const proof = { token: owner, body: { otp: second } };
    expect((await server.send("POST", "/api/user/step_up/", proof)).status).toBe(204);
  });

  test("parallel guesses do not pass the limit", async () => {
    await addApp(server, owner);
    const answers = await Promise.all(Array.from({ length: 12 }, () => signIn("000000")));
    expect(answers.filter(({ status }) => status === 401).length).toBe(5);
  });

  test("before the wall clock was set back by a day, they keep nobody out for a day", async () => {
    const app = await addApp(server, owner);
    step(1440 * minute);
    for (let at = 0; at < 5; at++) await signIn("000000");
    step(0);
    server.clock.ms += 11 * minute;
    expect(codeOf(await signIn(app.code()))).toEqual(ok);
  });

  test("are recorded as failed sign-ins", async () => {
    await addApp(server, owner);
    await signIn("000000");
    const sql = "SELECT org_id FROM events WHERE type = 'security.login_failed'";
    expect((await server.db.all(sql)).length).toBe(2);
  });
});

describe("adding and removing", () => {
  test("an app counts only after its first code, and the password is asked for the first", async () => {
    const noPassword = await server.send("POST", "/api/user/totp/", { token: owner, body: {} });
    expect(codeOf(noPassword)).toEqual([400, "validation_failed"]);
    const app = await beginApp(server, owner);
    expect(codeOf(await signIn())).toEqual(ok);
    const send = (otp: string) =>
      server.send("POST", "/api/user/totp/confirm/", { token: owner, body: { otp } });
    expect(codeOf(await send("000000"))).toEqual([401, "invalid_code"]);
    expect(codeOf(await send(app.code()))).toEqual(ok);
    expect(codeOf(await send(app.code(1)))).toEqual([404, "not_found"]);
    expect(codeOf(await signIn())).toEqual([401, "second_factor_required"]);
  });

  test("the first code cannot be guessed: after five wrong ones of a sign-in, the right one is refused", async () => {
    const app = await beginApp(server, owner);
    const send = (token: string, otp: string) =>
      server.send("POST", "/api/user/totp/confirm/", { token, body: { otp } });
    for (let at = 0; at < 5; at++) expect(codeOf(await send(owner, "000000"))).toEqual([401, "invalid_code"]);
    expect(codeOf(await send(owner, app.code()))).toEqual([429, "throttled"]);
    const other = pair(await signIn()).access;
    const again = await beginApp(server, other);
    expect(codeOf(await send(other, again.code()))).toEqual(ok);
  });

  test("a secret waits an hour for its first code", async () => {
    const app = await beginApp(server, owner);
    server.clock.ms += 60 * minute;
    const late = { token: owner, body: { otp: app.code() } };
    expect(codeOf(await server.send("POST", "/api/user/totp/confirm/", late))).toEqual([404, "not_found"]);
  });

  test("a new app replaces the former one with its first code; recovery codes stay", async () => {
    const former = await addApp(server, owner);
    const present = await addApp(server, owner);
    expect(present.recoveryCodes).toEqual([]);
    next();
    expect(codeOf(await signIn(former.code()))).toEqual([401, "invalid_code"]);
    expect(codeOf(await signIn(present.code()))).toEqual(ok);
  });

  test("new recovery codes end the former ones", async () => {
    const { recoveryCodes } = await addApp(server, owner);
    const made = await server.send("POST", "/api/user/recovery_codes/", { token: owner });
    const [fresh = ""] = (made.json as { recovery_codes: string[] }).recovery_codes;
    expect(codeOf(await signIn(recoveryCodes[0]))).toEqual([401, "invalid_code"]);
    expect(codeOf(await signIn(fresh))).toEqual(ok);
  });

  test("the last factor stays while an organization requires one; its recovery codes end with it", async () => {
    const { recoveryCodes } = await addApp(server, owner);
    const patch = (second_factor_required: boolean) =>
      server.send("PATCH", "/api/org/acme/", { token: owner, body: { second_factor_required } });
    expect(codeOf(await patch(true))).toEqual(ok);
    const remove = () => server.send("DELETE", "/api/user/totp/", { token: owner });
    expect(codeOf(await remove())).toEqual([409, "conflict"]);
    expect(codeOf(await patch(false))).toEqual(ok);
    expect((await remove()).status).toBe(204);
    expect(codeOf(await signIn())).toEqual(ok);
    expect(codeOf(await signIn(recoveryCodes[0]))).toEqual(ok);
    expect(await server.db.all("SELECT 1 FROM recovery_codes")).toEqual([]);
  });

  test("the operator removes all factors of a user who lost them, which ends the sessions", async () => {
    await addApp(server, owner);
    await resetFactors(server.app.services, { userId: 1, email }, operator);
    expect((await server.send("GET", "/api/user/", { token: owner })).status).toBe(401);
    expect(codeOf(await signIn())).toEqual(ok);
  });
});

describe("a required second factor", () => {
  test("an organization is closed to members without one, who are told how to add it", async () => {
    const token = await server.person("ada@example.org");
    await server.join(await orgOf("acme"), "ada@example.org", "member");
    const read = (by: string) => server.send("GET", "/api/org/acme/nodes/", { token: by });
    await server.db.write((tx) => tx.run("UPDATE organizations SET second_factor = 1"));
    const refused = await read(token);
    expect([codeOf(refused), refused.json]).toEqual([
      [403, "second_factor_missing"],
      expect.objectContaining({ hint: expect.stringContaining("factor add") }),
    ]);
    const factors = await server.send("GET", "/api/user/factors/", { token });
    expect(factors.json).toMatchObject({ totp: false, is_required: true });
    await addApp(server, token);
    expect(codeOf(await read(token))).toEqual(ok);
  });

  test("of an organization that requires one, the list has only id and slug until it is proven", async () => {
    const open = await server.organization("open", "10.78.0.0/16");
    await server.join(open, email, "member");
    const before = pair(await signIn()).access;
    await addApp(server, owner);
    await server.db.write((tx) =>
      tx.run("UPDATE organizations SET second_factor = 1, name = 'Secret' WHERE id = 1"),
    );
    const list = async (token: string, search = "") =>
      (await server.send("GET", `/api/org/?search=${search}`, { token })).json as {
        slug: string;
        name?: string;
      }[];
    const named = async (token: string, search = "") =>
      (await list(token, search)).map(({ slug, name }) => [slug, name]);
    expect((await list(before))[0]).toEqual({ id: 1, slug: "acme" } as never);
    expect(await named(before)).toEqual([
      ["acme", undefined],
      ["open", "open"],
    ]);
    expect([await named(before, "secret"), await named(owner, "secret")]).toEqual([[], [["acme", "Secret"]]]);
    const staff = await server.person("staff@example.org", { isStaff: true });
    expect(await named(staff)).toEqual([
      ["acme", undefined],
      ["open", "open"],
    ]);
    await server.db.write((tx) =>
      tx.run("INSERT INTO meta (key, value) VALUES ('staff_second_factor', '1')"),
    );
    expect(await named(staff)).toEqual([
      ["acme", undefined],
      ["open", undefined],
    ]);
    await addApp(server, staff);
    expect(await named(staff)).toEqual([
      ["acme", "Secret"],
      ["open", "open"],
    ]);
  });

  test("an app that one sign-in began is confirmed by no other", async () => {
    const other = pair(await signIn()).access;
    const app = await beginApp(server, owner);
    const confirm = (token: string) =>
      server.send("POST", "/api/user/totp/confirm/", { token, body: { otp: app.code() } });
    expect(codeOf(await confirm(other))).toEqual([404, "not_found"]);
    expect(codeOf(await confirm(owner))).toEqual(ok);
  });

  test("another sign-in from before the factor does not count", async () => {
    const before = pair(await signIn()).access;
    await addApp(server, owner);
    await server.db.write((tx) => tx.run("UPDATE organizations SET second_factor = 1"));
    const read = (token: string) => server.send("GET", "/api/org/acme/nodes/", { token });
    expect([codeOf(await read(owner)), codeOf(await read(before))]).toEqual([ok, [403, "step_up_required"]]);
  });

  test("requests of the same browser while the first one is added are never asked for a proof", async () => {
    await server.db.write((tx) => tx.run("UPDATE organizations SET second_factor = 1"));
    const browser = await signInBrowser(server, email);
    const body = { current_password: password };
    const begun = await browser.send("POST", "/api/user/totp/", { body });
    const app = appWith(server, (begun.json as { secret: string }).secret);
    const confirmed = browser.send("POST", "/api/user/totp/confirm/", { body: { otp: app.code() } });
    const ended = new AbortController();
    void confirmed.then(() => ended.abort());
    const seen = new Set<string | undefined>();
    // Each begins at another point of the other request.
    const readOn = async () => {
      for (; !ended.signal.aborted; await setImmediate())
        seen.add(codeOf(await browser.send("GET", "/api/org/acme/nodes/"))[1] as string);
    };
    await Promise.all(Array.from({ length: 8 }, readOn));
    expect((await confirmed).status).toBe(200);
    expect(seen).not.toContain("step_up_required");
    expect(codeOf(await browser.send("GET", "/api/org/acme/nodes/"))).toEqual(ok);
  });

  test("users without one cannot require it of all: they would lock themselves out", async () => {
    const staff = await server.person("staff@example.org", { isStaff: true });
    for (const [path, token, field] of [
      ["/api/org/acme/", owner, "second_factor_required"],
      ["/api/sign_in/", staff, "staff_second_factor"],
    ] as const) {
      const patch = (isOn: boolean) => server.send("PATCH", path, { token, body: { [field]: isOn } });
      const refused = await patch(true);
      expect([path, codeOf(refused), refused.json]).toEqual([
        path,
        [403, "second_factor_missing"],
        expect.objectContaining({
          detail: expect.stringContaining("lock yourself out"),
          hint: expect.stringContaining("factor add"),
        }),
      ]);
      expect((await server.send("GET", path, { token })).json).toMatchObject({ [field]: false });
      expect(codeOf(await patch(false))).toEqual(ok);
      await addApp(server, token);
      expect(codeOf(await patch(true))).toEqual(ok);
    }
    // The operator needs no sign-in, so cannot be locked out.
    await setStaffNeedFactor(server.app.services, false, operator);
    await setStaffNeedFactor(server.app.services, true, operator);
  });

  test("staff can require it of themselves", async () => {
    const token = await server.person("staff@example.org", { isStaff: true });
    await addApp(server, token);
    const other = await server.person("other@example.org", { isStaff: true });
    const patch = (body: object) => server.send("PATCH", "/api/sign_in/", { token, body });
    expect(codeOf(await patch({ staff_second_factor: true }))).toEqual(ok);
    const read = (path: string) => server.send("GET", path, { token: other });
    for (const path of ["/api/users/", "/api/schema/", "/api/org/acme/nodes/"])
      expect([path, ...codeOf(await read(path))]).toEqual([path, 403, "second_factor_missing"]);
    expect(codeOf(await server.send("GET", "/api/org/acme/nodes/", { token: owner }))).toEqual(ok);
    await addApp(server, other);
    expect(codeOf(await read("/api/users/"))).toEqual(ok);
    expect((await read("/api/sign_in/")).json).toEqual({ staff_second_factor: true });
  });
});

describe("a fresh proof", () => {
  test("from before the wall clock was set back does not count for longer", async () => {
    await addApp(server, owner);
    const create = (name: string) =>
      server.send("POST", "/api/org/acme/service_tokens/", { token: owner, body: { name, role: "admin" } });
    expect((await create("one")).status).toBe(201);
    step(-60 * minute);
    expect(codeOf(await create("two"))).toEqual([403, "step_up_required"]);
  });

  const changes: [string, string, object | undefined][] = [
    ["POST", "ca/rotate/", {}],
    ["POST", "firewall_rules/", { peer: { any: true }, target: { any: true } }],
    ["POST", "policy/apply/", { policy: "{}" }],
    ["POST", "members/", { email: "eve@example.org" }],
    ["PATCH", "members/1/", { role: "admin" }],
    ["DELETE", "members/1/", undefined],
    ["POST", "service_tokens/", { name: "ci", role: "admin" }],
    ["DELETE", "service_tokens/1/", undefined],
    ["DELETE", "registration_tokens/1/?revoke_nodes=true", undefined],
    ["PATCH", "", { second_factor_required: false }],
    ["DELETE", "", undefined],
  ];

  test.each(changes)("%s %s asks for one that is at most 10 minutes old", async (method, path, body) => {
    await addApp(server, owner);
    const send = () =>
      server.send(method, `/api/org/acme/${path}`, { token: owner, ...(body === undefined ? {} : { body }) });
    server.clock.ms += 11 * minute;
    const refused = await send();
    expect([codeOf(refused), refused.json]).toEqual([
      [403, "step_up_required"],
      expect.objectContaining({ methods: ["totp", "recovery_code"] }),
    ]);
  });

  const stepUp = (app: App, token: string, otp = app.code()) =>
    server.send("POST", "/api/user/step_up/", { token, body: { otp } });
  const change = async (token: string) =>
    codeOf(await server.send("PATCH", "/api/org/acme/", { token, body: { alive_interval: 2 } }));

  test("counts for 10 minutes after a code, in this family alone, also after a refresh", async () => {
    const app = await addApp(server, owner);
    next();
    const first = pair(await signIn(app.code()));
    next();
    const other = pair(await signIn(app.code()));
    expect([await change(first.access), await change(other.access)]).toEqual([ok, ok]);
    server.clock.ms += 11 * minute;
    expect(await change(first.access)).toEqual([403, "step_up_required"]);
    expect((await stepUp(app, first.access)).status).toBe(204);
    expect([await change(first.access), await change(other.access)]).toEqual([ok, [403, "step_up_required"]]);
    const refreshed = await server.send("POST", "/api/token/refresh/", { body: { refresh: first.refresh } });
    expect(await change(pair(refreshed).access)).toEqual(ok);
    server.clock.ms += 11 * minute;
    expect(await change(pair(refreshed).access)).toEqual([403, "step_up_required"]);
  });

  test("in a browser counts for its session alone", async () => {
    const app = await addApp(server, owner);
    next();
    const sessions = [];
    for (let at = 0; at < 2; at++, next()) {
      const answer = await postSession(server, { email, password, otp: app.code() });
      sessions.push(browserWith(server, cookieIn(answer, "__Host-session") ?? ""));
    }
    const [first, second] = sessions;
    if (first === undefined || second === undefined) throw new Error("no sessions");
    server.clock.ms += 11 * minute;
    const send = (browser: typeof first) =>
      browser.send("PATCH", "/api/org/acme/", { body: { alive_interval: 2 } });
    await first.send("POST", "/api/user/step_up/", { body: { otp: app.code() } });
    expect([codeOf(await send(first)), codeOf(await send(second))]).toEqual([ok, [403, "step_up_required"]]);
  });

  test("a wrong or replayed code is none, and five wrong ones end the attempt", async () => {
    const app = await addApp(server, owner);
    server.clock.ms += 11 * minute;
    const code = app.code();
    expect((await stepUp(app, owner, code)).status).toBe(204);
    expect(codeOf(await stepUp(app, owner, code))).toEqual([401, "invalid_code"]);
    for (let at = 0; at < 4; at++) await stepUp(app, owner, "000000");
    expect(codeOf(await stepUp(app, owner, app.code(1)))).toEqual([429, "throttled"]);
  });

  test("is not asked of people without a second factor, nor before what hurts less", async () => {
    expect(await change(owner)).toEqual(ok);
    expect(
      codeOf(await server.send("POST", "/api/user/step_up/", { token: owner, body: { otp: "1" } })),
    ).toEqual([403, "second_factor_missing"]);
    await addApp(server, owner);
    server.clock.ms += 11 * minute;
    for (const path of ["nodes/", "members/", "service_tokens/", "firewall_rules/"])
      expect(codeOf(await server.send("GET", `/api/org/acme/${path}`, { token: owner }))).toEqual(ok);
    const node = await server.send("POST", "/api/org/acme/nodes/", { token: owner, body: { name: "web" } });
    expect(node.status).toBe(201);
  });
});

async function orgOf(slug: string) {
  const row = await server.db.get("SELECT id FROM organizations WHERE slug = $1", [slug]);
  return { id: Number(row?.["id"]), slug } as Parameters<TestServer["join"]>[0];
}
