// Invitations and new passwords by e-mail, over Debian's exim.

import { afterAll, beforeAll, beforeEach, afterEach, describe, expect, test } from "bun:test";
import { reauthenticate } from "../../../src/server/nodes/lifecycle/reauthentication.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { AppError } from "../../../src/base/errors.ts";
import { inCi } from "../../support/debian.ts";
import {
  noExim,
  secret as mailPassword,
  startExim,
  user as mailUser,
  type Exim,
} from "../../support/exim.ts";
import { addApp } from "../../support/factors.ts";
import { registerNode } from "../../support/nodes.ts";
import { makeAcme, signInTo } from "../../support/people.ts";
import { makeTestServer, password, type TestServer } from "../../support/server.ts";
import { until } from "../../support/until.ts";

if (noExim !== undefined && inCi) throw new Error(noExim);

const email = "owner@example.org";
const linkIn = (message: string, path: string) =>
  new RegExp(`https://control\\.example/${path}/#([\\w-]{43})`).exec(message)?.[1] ?? "";

describe.skipIf(noExim !== undefined)("with an SMTP server", () => {
  let exim: Exim;
  let server: TestServer;
  let owner: string;
  let acme: Organization;
  const mailOptions = () => ({
    url: `smtp://localhost:${exim.port}`,
    from: "vpn@example.org",
    user: mailUser,
    password: mailPassword,
    trust: exim.certificate,
  });

  beforeAll(async () => {
    exim = await startExim();
  });
  afterAll(() => exim[Symbol.asyncDispose]());
  beforeEach(async () => {
    server = await makeTestServer({ mail: mailOptions(), accessLifetimeS: 86_400 });
    ({ acme, owner } = await makeAcme(server));
  });
  afterEach(() => server[Symbol.asyncDispose]());

  const post = (path: string, body: object, token?: string) =>
    server.send("POST", path, { body, ...(token === undefined ? {} : { token }) });
  const messagesTo = (address: string) => exim.messages().filter((each) => each.includes(`To: ${address}`));
  const messageTo = async (address: string) => {
    await until(() => Promise.resolve(messagesTo(address).length > 0));
    return messagesTo(address).at(-1) ?? "";
  };

  test("an invitation goes to its address, and the inviter does not see the link", async () => {
    const invited = await post("/api/org/acme/members/", { email: "joan@example.org" }, owner);
    expect([invited.status, invited.json]).toEqual([201, expect.objectContaining({ is_emailed: true })]);
    expect(invited.text).not.toContain("/join/");
    const message = await messageTo("joan@example.org");
    expect(message).toContain("From: vpn@example.org");
    expect(message).toContain("invitation to acme");
    const joined = await post("/api/join/", { secret: linkIn(message, "join"), password });
    expect(joined.json).toEqual({ email: "joan@example.org", org_slug: "acme" });
    expect(server.log.join("\n")).not.toContain(linkIn(message, "join"));
  });

  test("an organization sends at most 200 an hour, as invitations and alarms together; others are not delayed", async () => {
    const hook = { url: "mailto:alarms@example.org" };
    expect((await post("/api/org/acme/webhooks/", hook, owner)).status).toBe(201);
    const invite = async (slug: string, address: string) =>
      (await post(`/api/org/${slug}/members/`, { email: address }, owner)).json;
    expect(await invite("acme", "grace@example.org")).toMatchObject({ is_emailed: true });
    const testAlarm = async () => (await post("/api/org/acme/alarms/test/", {}, owner)).status;
    expect(await testAlarm()).toBe(202);
    await messageTo("alarms@example.org");
    for (let sent = 2; sent < 200; sent++) server.app.services.throttle.count("mails", "acme");
    const link = expect.stringContaining("/join/#");
    expect(await invite("acme", "mary@example.org")).toMatchObject({ is_emailed: false, link });
    expect(await testAlarm()).toBe(202);
    const messages = async () =>
      (await server.db.all("SELECT message FROM deliveries ORDER BY id")).map(({ message }) => message);
    await until(async () => String((await messages()).at(-1)).includes("sent too many e-mails"));
    expect(messagesTo("alarms@example.org")).toHaveLength(1);
    const other = await server.organization("umbrella");
    await server.join(other, email, "admin");
    expect(await invite("umbrella", "mary@example.org")).toMatchObject({ is_emailed: true });
  });

  test("a user is told in one e-mail which nodes to confirm again; a server that is away stops nothing", async () => {
    for (const name of ["laptop", "phone"]) await registerNode(server, acme, name);
    const user = "keeper@example.org";
    await server.person(user);
    const late = async () =>
      server.db.write(async (tx) => {
        await tx.run("UPDATE organizations SET reauthenticate_days = 30");
        await tx.run("UPDATE nodes SET owner_id = (SELECT max(id) FROM users), registered_at = 1");
        await tx.run("DELETE FROM owner_proofs");
      });
    await late();
    await reauthenticate(server.app.services);
    const message = await messageTo(user);
    expect(message).toContain("laptop: until ");
    expect(message).toContain("phone: until ");
    expect(message).toContain("https://control.example/console/acme/");
    server.app.services.mail = { ...mailOptions(), url: "smtp://localhost:1" };
    await late();
    await reauthenticate(server.app.services);
    expect(server.log.join("\n")).toContain("Cannot tell a user that machines have to be confirmed");
  });

  const ask = async (address: string) => (await post("/api/password_reset/", { email: address })).status;
  const confirm = (secret: string, chosen = "the new password") =>
    post("/api/password_reset/confirm/", { secret, password: chosen });

  test("a link sets a new password once, ends all sessions, and keeps the second factor", async () => {
    const app = await addApp(server, owner);
    expect(await ask("OWNER@example.org")).toBe(204);
    const secret = linkIn(await messageTo(email), "reset");
    const answers = await Promise.all([confirm(secret), confirm(secret)]);
    expect(answers.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([204, 404]);
    expect((await server.send("GET", "/api/user/", { token: owner })).status).toBe(401);
    expect((await signInTo(server, email)).status).toBe(401);
    const asked = await signInTo(server, email, "the new password");
    expect(asked.json).toMatchObject({ code: "second_factor_required" });
    server.clock.ms += 60_000;
    const signed = await post("/api/token/", { email, password: "the new password", otp: app.code() });
    expect(signed.status).toBe(200);
    expect((await server.db.all("SELECT secret_hash FROM password_resets")).length).toBe(0);
  });

  test("a link stays valid if too many users wait for their turn", async () => {
    await server.person("joe@example.org");
    await ask("joe@example.org");
    const secret = linkIn(await messageTo("joe@example.org"), "reset");
    const { services } = server.app;
    const { passwords } = services;
    const full = new AppError("throttled", "Too many users are signing in.", { retryAfter: 2 });
    services.passwords = { ...passwords, hash: () => Promise.reject(full) };
    expect((await confirm(secret)).status).toBe(429);
    services.passwords = passwords;
    expect((await confirm(secret)).status).toBe(204);
    expect((await confirm(secret)).status).toBe(404);
  });

  test("a link sets no second password, even if it is used between the reads of another request", async () => {
    await server.person("may@example.org");
    await ask("may@example.org");
    const secret = linkIn(await messageTo("may@example.org"), "reset");
    const { get } = server.db;
    let first: number | undefined;
    const between: typeof get = async (sql, params) => {
      if (sql.includes(" FROM users ")) {
        Object.assign(server.db, { get });
        first = (await confirm(secret)).status;
      }
      return get(sql, params);
    };
    Object.assign(server.db, { get: between });
    const second = await confirm(secret, "another password");
    expect([first, second.status]).toEqual([204, 404]);
    expect((await signInTo(server, "may@example.org", "the new password")).status).toBe(200);
  });

  test("a link ends after an hour, and with a newer one", async () => {
    await server.person("ada@example.org");
    await ask("ada@example.org");
    const first = linkIn(await messageTo("ada@example.org"), "reset");
    await ask("ada@example.org");
    await until(() => Promise.resolve(messagesTo("ada@example.org").length === 2));
    const links = messagesTo("ada@example.org").map((each) => linkIn(each, "reset"));
    const second = links.find((each) => each !== first) ?? "";
    expect((await confirm(first)).status).toBe(404);
    server.clock.ms += 3_600_000;
    expect((await confirm(second)).status).toBe(404);
  });

  test("an unknown and a disabled user get no message, and the same answer", async () => {
    await server.person("off@example.org");
    await server.db.write((tx) => tx.run("UPDATE users SET is_active = 0 WHERE email = 'off@example.org'"));
    expect([await ask("nobody@example.org"), await ask("off@example.org")]).toEqual([204, 204]);
    await server.person("known@example.org");
    await ask("known@example.org");
    await messageTo("known@example.org");
    expect([messagesTo("nobody@example.org"), messagesTo("off@example.org")]).toEqual([[], []]);
  });

  test("a user gets at most three an hour, and a network asks at most ten times", async () => {
    await server.person("eve@example.org");
    const answers = [];
    for (let at = 0; at < 11; at++) answers.push(await ask("eve@example.org"));
    expect(answers).toEqual([...Array<number>(10).fill(204), 429]);
    await until(() => Promise.resolve(messagesTo("eve@example.org").length === 3));
  });

  test("if the message cannot be sent, the inviter gets the link; the reason is in the log", async () => {
    const { services } = server.app;
    for (const wrong of [{ password: "wrong" }, { trust: undefined }, { url: "smtp://localhost:1" }]) {
      services.mail = { ...mailOptions(), ...wrong } as ReturnType<typeof mailOptions>;
      const invited = await post("/api/org/acme/members/", { email: "late@example.org" }, owner);
      expect(invited.json).toMatchObject({ is_emailed: false, link: expect.stringContaining("/join/#") });
    }
    expect(server.log.join("\n")).toContain("Cannot send an invitation");
    expect(server.log.join("\n")).not.toContain(mailPassword);
  });
});

test("without an SMTP server, the link is handed over as before, and no password is reset", async () => {
  const server = await makeTestServer();
  const { owner } = await makeAcme(server);
  const invited = await server.send("POST", "/api/org/acme/members/", {
    token: owner,
    body: { email: "joan@example.org" },
  });
  expect(invited.json).toMatchObject({ link: expect.stringContaining("/join/#") });
  expect(invited.text).not.toContain("is_emailed");
  const reset = await server.send("POST", "/api/password_reset/", { body: { email } });
  expect([reset.status, reset.json]).toEqual([
    409,
    expect.objectContaining({ hint: expect.stringContaining("admin user password") }),
  ]);
  await server[Symbol.asyncDispose]();
});
