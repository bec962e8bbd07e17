// What receivers that are no programs of the administrator get: chats, mailboxes and syslog servers.

import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, describe, expect, test } from "bun:test";
import * as v from "valibot";
import { formatFor } from "../../../src/api/webhooks/delivery-formats.ts";
import { Delivery, NewWebhook, quietSpan } from "../../../src/api/webhooks/webhooks.ts";
import { operator, ourselves, record } from "../../../src/server/audit/record.ts";
import { createServiceToken } from "../../../src/server/users/service-tokens.ts";
import { networksOfFlag } from "../../../src/server/http/edge.ts";
import { quietUntil } from "../../../src/server/webhooks/quiet-hours.ts";
import { installMissing, runSync } from "../../support/debian.ts";
import { noExim, secret, startExim, user } from "../../support/exim.ts";
import { freePort } from "../../support/free-port.ts";
import { makeTestServer, type TestServerOptions } from "../../support/server.ts";
import { temporaryDirectory } from "../../support/temporary.ts";
import { until } from "../../support/until.ts";

const disposables: { [Symbol.asyncDispose](): PromiseLike<void> }[] = [];
afterEach(async () => {
  for (const each of disposables.splice(0).reverse()) await each[Symbol.asyncDispose]();
});

async function start(options: TestServerOptions = {}) {
  const webhookNetworks = networksOfFlag("", ["127.0.0.0/8", "::1"]);
  const server = await makeTestServer({ webhookNetworks, ...options });
  disposables.push(server);
  const org = await server.organization("acme");
  const maker = { userId: null, actor: operator };
  const { token } = await createServiceToken(server.app.services, org, { name: "it", role: "admin" }, maker);
  const send = (method: string, path: string, body?: unknown) =>
    server.send(method, `/api/org/acme/${path}`, { token, body });
  return {
    server,
    send,
    async hook(fields: object) {
      const answer = await send("POST", "webhooks/", fields);
      expect(`${answer.status} ${answer.text}`).toStartWith("201");
      return v.parse(NewWebhook, answer.json);
    },
    /** As the alarms do. */
    async tell(type: "alarm.raised" | "alarm.ended", n: number, more: object = {}) {
      const after = {
        name: `The node <web> & co ${n} is away`,
        text: "Since noon.\nNot reached by @all.",
        ...more,
      };
      await server.db.writeFor({ org: org.id }, (tx) =>
        record(tx, {
          orgId: org.id,
          at: server.clock.ms,
          type,
          actor: ourselves,
          subject: `alarm/${n}`,
          after,
        }),
      );
    },
    async deliveries(id: number) {
      return v.parse(v.array(Delivery), (await send("GET", `webhooks/${id}/deliveries/`)).json);
    },
  };
}

/**
 * Answers as the services document it: 400 for a body that is not theirs, so also for the JSON of other webhooks. Slack:
 * `no_text`; Mattermost: `text` or attachments are required; Discord: an empty message (50006), at most 2000 characters; Teams
 * workflows: adaptive cards alone; ntfy: JSON at the root alone, with the topic in it.
 */
const Line = v.pipe(v.string(), v.minLength(1));
const Card = v.looseObject({
  type: v.literal("AdaptiveCard"),
  version: Line,
  body: v.array(v.looseObject({ type: v.literal("TextBlock"), text: v.string() })),
});
const services = {
  slack: {
    path: "/services/T0/B0/x",
    at: "/services/T0/B0/x",
    status: 200,
    takes: v.strictObject({ text: Line }),
  },
  mattermost: { path: "/hooks/x", at: "/hooks/x", status: 200, takes: v.strictObject({ text: Line }) },
  discord: {
    path: "/api/webhooks/1/x",
    at: "/api/webhooks/1/x",
    status: 204,
    takes: v.strictObject({
      content: v.pipe(Line, v.maxLength(2000)),
      allowed_mentions: v.strictObject({ parse: v.tuple([]) }),
    }),
  },
  teams: {
    path: "/workflows/x?sig=1",
    at: "/workflows/x",
    status: 202,
    takes: v.strictObject({
      type: v.literal("message"),
      attachments: v.array(
        v.strictObject({
          contentType: v.literal("application/vnd.microsoft.card.adaptive"),
          contentUrl: v.null(),
          content: Card,
        }),
      ),
    }),
  },
  ntfy: {
    path: "/push/alerts?auth=abc",
    at: "/push/",
    status: 200,
    takes: v.strictObject({
      topic: v.literal("alerts"),
      title: Line,
      message: Line,
      priority: v.picklist([3, 5]),
    }),
  },
} as const;

describe("chats", () => {
  for (const [format, { path, at, status, takes }] of Object.entries(services))
    test(`${format} gets what it accepts, and the JSON of other webhooks would be refused`, async () => {
      const bodies: string[] = [];
      const answers: number[] = [];
      const listener = Bun.serve({
        hostname: "127.0.0.1",
        port: 0,
        async fetch(request) {
          const text = await request.text();
          bodies.push(text);
          const isTaken =
            v.safeParse(takes as v.GenericSchema, JSON.parse(text)).success &&
            new URL(request.url).pathname === at;
          answers.push(isTaken ? status : 400);
          return new Response(null, { status: answers.at(-1) ?? 500 });
        },
      });
      disposables.push({ [Symbol.asyncDispose]: () => listener.stop(true) });
      const { hook, tell, deliveries } = await start();
      const url = `http://127.0.0.1:${listener.port}${path}`;
      const chat = await hook({ url, format });
      expect(chat).toMatchObject({ format, events: ["alarm.*"] });
      // A line of a node's log, for example.
      const text = "Since noon.\nNot reached by @all. [Sign in](https://evil.example)";
      await tell("alarm.raised", 1, { urgent: true, text });
      await until(async () => (await deliveries(chat.id)).some(({ state }) => state === "delivered"));
      expect(answers).toEqual([status]);
      expect(bodies[0]).toContain("is away");
      expect(bodies[0]).toContain("Since noon.");
      if (format === "slack") expect(bodies[0]).toContain("&lt;web&gt; &amp; co");
      if (format === "mattermost") expect(bodies[0]).not.toContain("@all");
      // No link whose text hides where it leads.
      if (["mattermost", "teams", "discord"].includes(format)) expect(bodies[0]).not.toContain("](");
      // As until now.
      const plain = await hook({ url, format: "json", events: ["alarm.*"] });
      await tell("alarm.raised", 2);
      await until(async () => (await deliveries(plain.id)).some((each) => each.status === 400));
    });
});

test("a delivery whose request cannot be made has an outcome, and is tried again", async () => {
  const { server, hook, tell, deliveries } = await start();
  const { id } = await hook({ url: "http://127.0.0.1:9/topic", format: "ntfy", events: ["alarm.*"] });
  // Earlier versions stored such a URL: the percent-encoding of its topic is cut off.
  await server.db.write((tx) => tx.run("UPDATE webhooks SET url = 'http://127.0.0.1:9/%E0%A4%A'"));
  await tell("alarm.raised", 1);
  await until(async () => (await deliveries(id)).some(({ message }) => message !== null));
  expect(await deliveries(id)).toMatchObject([{ state: "waiting", attempts: 1, status: null }]);
});

test("the format follows from the URL, and both must fit", async () => {
  expect(formatFor("https://hooks.slack.com/services/a")).toBe("slack");
  expect(formatFor("https://discord.com/api/webhooks/1/x")).toBe("discord");
  expect(formatFor("https://prod-1.westeurope.logic.azure.com:443/workflows/x")).toBe("teams");
  expect(formatFor("https://ntfy.sh/topic")).toBe("ntfy");
  expect(formatFor("https://hooks.slack.com.example.org/")).toBe("json");
  expect(formatFor("mailto:a@example.org")).toBe("mail");
  expect(formatFor("syslogs://logs.example.org")).toBe("syslog");
  expect(formatFor("mailto:a@example.org", "slack")).toBe(undefined);
  expect(formatFor("https://example.org", "mail")).toBe(undefined);
  const { send } = await start();
  const create = async (fields: object) => (await send("POST", "webhooks/", fields)).status;
  for (const url of [
    "mailto:a@b?bcc=c@d",
    "mailto:a@b,c@d",
    "mailto:a@b%0d%0aBcc:c@d",
    "syslog://a",
    "mailto:",
    "mailto:a@b",
    "mailto:a@b.",
    "mailto:a@-b.org",
    "ftp://a",
  ])
    expect(`${url} ${await create({ url })}`).toBe(`${url} 400`);
  // This control plane sends no mail.
  expect((await send("POST", "webhooks/", { url: "mailto:a@example.org" })).text).toContain(
    "sends no e-mail",
  );
  expect(await create({ url: "http://127.0.0.1:9/", format: "mail" })).toBe(400);
  expect(await create({ url: "syslogs://10.0.0.1" })).toBe(400);
  const digits = "d0".repeat(32);
  for (const query of [
    "?fingerprint=sha256:zz",
    "?fingerprint=sha256:D0:1B",
    `?fingerprint=sha1:${digits}`,
    `?fingerprnt=sha256:${digits}`,
    `?fingerprint=sha256:${digits}&port=1`,
    `?fingerprint=sha256:${digits}&fingerprint=sha256:${digits}`,
  ])
    expect([query, await create({ url: `syslogs://127.0.0.1${query}` })]).toEqual([query, 400]);
  for (const text of [digits, digits.toUpperCase().replace(/..(?=.)/g, "$&:")])
    expect(await create({ url: `syslogs://127.0.0.1?fingerprint=sha256:${text}` })).toBe(201);
});

test("quiet hours: what is not urgent waits for their end, and what is over by then is told once", async () => {
  expect(quietSpan("22:00-07:00 Europe/Berlin")).toEqual({ from: 1320, to: 420, zone: "Europe/Berlin" });
  for (const text of ["22-7", "22:00-07:00", "22:00-22:00 UTC", "24:00-07:00 UTC", "22:00-07:00 Mars/Base"])
    expect(quietSpan(text)).toBe(undefined);
  const at = (text: string) => Date.parse(`2026-07-01T${text}Z`);
  // Berlin is two hours ahead in July.
  expect(quietUntil("22:00-07:00 Europe/Berlin", at("21:30:20"))).toBe(Date.parse("2026-07-02T05:00Z"));
  expect(quietUntil("22:00-07:00 Europe/Berlin", at("03:00:00"))).toBe(at("05:00:00"));
  expect(quietUntil("22:00-07:00 Europe/Berlin", at("05:00:00"))).toBe(undefined);
  expect(quietUntil("12:00-13:00 UTC", at("12:59:59"))).toBe(at("13:00:00"));
  // Clocks are set back from 3:00 to 2:00 on 25 October, and ahead from 2:00 to 3:00 on 29 March.
  for (const [hours, now, end] of [
    ["22:00-07:00", "2026-10-24T21:00", "2026-10-25T06:00"],
    ["22:00-07:00", "2026-03-28T22:00", "2026-03-29T05:00"],
    ["22:00-02:30", "2026-03-28T22:00", "2026-03-29T01:00"],
    ["22:00-02:30", "2026-10-24T21:00", "2026-10-25T00:30"],
    ["01:30-02:59", "2026-03-29T00:40", "2026-03-29T01:00"],
  ] as const)
    expect(
      `${hours} ${new Date(quietUntil(`${hours} Europe/Berlin`, Date.parse(`${now}Z`)) ?? 0).toISOString().slice(0, 16)}`,
    ).toBe(`${hours} ${end}`);
  expect(quietUntil("02:00-03:00 Europe/Berlin", Date.parse("2026-03-29T01:00Z"))).toBe(undefined);

  const told: string[] = [];
  const listener = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    async fetch(request) {
      told.push(String(JSON.parse(await request.text()).text.split("\n")[0]));
      return new Response("ok");
    },
  });
  disposables.push({ [Symbol.asyncDispose]: () => listener.stop(true) });
  const { server, hook, tell, send } = await start();
  server.clock.ms = Date.parse("2026-11-22T23:00Z");
  const url = `http://127.0.0.1:${listener.port}/`;
  const { id } = await hook({ url, format: "slack", quiet_hours: "22:00-07:00 UTC" });
  await tell("alarm.raised", 1, { name: "one" });
  await tell("alarm.raised", 2, { name: "two" });
  await tell("alarm.raised", 3, { name: "three", urgent: true });
  await until(() => told.length === 1);
  expect(told).toEqual(["three"]);
  server.clock.ms += 3_600_000;
  await tell("alarm.ended", 1, { name: "end of one" });
  expect((await send("POST", "alarms/test/", {})).json).toEqual({ webhooks: 1 });
  await until(() => told.length === 2);
  expect(told[1]).toContain("A test of the alarms of acme");
  server.clock.ms = Date.parse("2026-11-23T07:00:01Z");
  await until(() => told.length === 4);
  expect(told.slice(2)).toEqual(["two", "end of one"]);
  expect((await send("PATCH", `webhooks/${id}/`, { quiet_hours: null })).json).toMatchObject({
    quiet_hours: null,
    format: "slack",
  });
});

test("a delivery by mail that fails tells an administrator nothing of the operator's network", async () => {
  const mail = { url: "smtp://localhost:1", from: "overlay@company.example" };
  const { server, hook, tell, deliveries } = await start({ mail });
  const { id } = await hook({ url: "mailto:ops@company.example" });
  await tell("alarm.raised", 1);
  await until(async () => (await deliveries(id)).some(({ message }) => message !== null));
  const { state, message } = (await deliveries(id))[0] ?? {};
  expect(state).toBe("waiting");
  expect(message).toContain("mail server of this control plane");
  expect(message).not.toMatch(/localhost|127\.0\.0\.1|::1|ECONNREFUSED/);
  expect(server.log.join("\n")).toContain("Cannot send an alarm by e-mail");
});

describe.skipIf(noExim !== undefined)("mail", () => {
  test("an alarm arrives at a real mail server, with an id of its own; events that are no alarms are refused", async () => {
    const exim = await startExim();
    disposables.push(exim);
    const mail = {
      url: `smtp://localhost:${exim.port}`,
      from: "overlay@company.example",
      user,
      password: secret,
      trust: exim.certificate,
    };
    const { hook, tell, send, deliveries } = await start({ mail });
    const refused = await send("POST", "webhooks/", { url: "mailto:ops@company.example", events: ["*"] });
    expect(`${refused.status} ${refused.text}`).toContain("alarms alone");
    const { id, format } = await hook({ url: "mailto:ops@company.example" });
    expect(format).toBe("mail");
    await tell("alarm.raised", 1);
    await until(async () => (await deliveries(id)).some(({ state }) => state === "delivered"));
    const [message = ""] = exim.messages();
    expect(message).toContain("To: ops@company.example");
    expect(message).toContain("Subject: The node <web> & co 1 is away");
    expect(message).toMatch(/Message-I[Dd]: <msg_\d+\.\d+@control\.example>/);
    expect(message).toContain("Since noon.");
  });
});

const noRsyslog =
  process.getuid?.() === 0 ? installMissing(["/usr/sbin/rsyslogd", "/usr/bin/openssl"]) : "not root";

/** Debian's rsyslog, which takes TLS alone, and writes each message with its parts. */
async function startRsyslog() {
  const directory = temporaryDirectory();
  const at = (name: string) => join(directory.path, name);
  runSync([
    ..."openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost -keyout".split(
      " ",
    ),
    at("key.pem"),
    "-out",
    at("cert.pem"),
  ]);
  mkdirSync(at("spool"));
  const port = freePort();
  const form =
    "%pri%|%protocol-version%|%timestamp:::date-rfc3339%|%hostname%|%app-name%|%procid%|%msgid%|%structured-data%|%msg%\\n";
  writeFileSync(
    at("rsyslog.conf"),
    `global(workDirectory="${at("spool")}" defaultNetstreamDriver="gtls" defaultNetstreamDriverCAFile="${at("cert.pem")}"
  defaultNetstreamDriverCertFile="${at("cert.pem")}" defaultNetstreamDriverKeyFile="${at("key.pem")}")
module(load="imtcp" StreamDriver.Name="gtls" StreamDriver.Mode="1" StreamDriver.Authmode="anon")
template(name="parts" type="string" string="${form}")
ruleset(name="in") { action(type="omfile" file="${at("messages")}" template="parts") }
input(type="imtcp" port="${port}" address="127.0.0.1" ruleset="in")
`,
  );
  const child = Bun.spawn(["/usr/sbin/rsyslogd", "-n", "-f", at("rsyslog.conf"), "-i", at("pid")], {
    stdout: "ignore",
    stderr: "ignore",
  });
  disposables.push({
    async [Symbol.asyncDispose]() {
      child.kill();
      await child.exited;
      directory[Symbol.dispose]();
    },
  });
  await until(() =>
    Bun.connect({ hostname: "127.0.0.1", port, socket: { data: () => undefined } }).then(
      (socket) => (socket.end(), true),
      () => false,
    ),
  );
  const digest = runSync(["openssl", "x509", "-in", at("cert.pem"), "-noout", "-fingerprint", "-sha256"]);
  return {
    port,
    fingerprint: digest.split("=")[1]?.trim() ?? "",
    lines: () =>
      existsSync(at("messages")) ? readFileSync(at("messages"), "utf8").trimEnd().split("\n") : [],
  };
}

describe.skipIf(noRsyslog !== undefined)("syslog over TLS", () => {
  test("an alarm arrives at a real rsyslog in all its parts, with the pinned certificate alone", async () => {
    const rsyslog = await startRsyslog();
    const { server, hook, tell, deliveries } = await start();
    const url = `syslogs://localhost:${rsyslog.port}?fingerprint=sha256:${rsyslog.fingerprint}`;
    const { id } = await hook({ url });
    const other = await hook({ url: url.replace(/=sha256:../, "=sha256:ff") });
    const unknown = await hook({ url: `syslogs://localhost:${rsyslog.port}` });
    await tell("alarm.raised", 1, { urgent: true });
    await until(async () => (await deliveries(id)).some(({ state }) => state === "delivered"));
    await until(() => rsyslog.lines().length > 0);
    const [line = ""] = rsyslog.lines();
    const [pri, version, time, host, app, proc, msgid, data, message] = line.split("|");
    expect([pri, version, host, app, proc, msgid]).toEqual([
      "130",
      "1",
      "control.example",
      "overlay-agent",
      "-",
      "alarm.raised",
    ]);
    expect(Date.parse(time ?? "")).toBe(server.clock.ms);
    expect(data).toMatch(/^\[meta sequenceId="\d+"\]$/);
    expect(message).toContain("The node <web> & co 1 is away Since noon. Not reached by @all.");
    for (const refused of [other, unknown])
      await until(async () => (await deliveries(refused.id)).some((each) => (each.message ?? "") !== ""));
    expect((await deliveries(other.id))[0]?.message).toContain("another fingerprint");
    expect(rsyslog.lines()).toHaveLength(1);
  });
});
