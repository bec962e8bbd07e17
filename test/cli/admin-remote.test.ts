// Admin commands on a control plane over the network: the same commands as on its data, with the rights of whoever is
// signed in. Which of both a command means: admin-target.test.ts.

import { Database } from "bun:sqlite";
import { afterAll, expect, setDefaultTimeout, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { renderUnicodeCompact } from "uqr";
import * as v from "valibot";
import { RegisterAnswer } from "../../src/protocol/registration.ts";
import { databasePath } from "../../src/server/store/data-directory.ts";
import { runAdmin } from "../support/admin.ts";
import { appWith } from "../support/factors.ts";
import { makeKeys } from "../support/nodes.ts";
import { makeRemoteAgent, password } from "../support/remote-agent.ts";

// Some tests run twenty commands: on a busy machine that takes longer than the default.
setDefaultTimeout(120_000);
const { path: directory, data, serving, agent, onTerminal, must, signIn, stop } = await makeRemoteAgent();
afterAll(stop);

test("signed in, every command works over the network, and each change names its target", async () => {
  expect(await signIn()).toEqual({
    profile: "plane",
    api_base: serving.url,
    email: "ada@example.org",
    stored_in: "file",
  });
  expect(await must("whoami")).toMatchObject({ target: "remote", email: "ada@example.org", is_staff: true });
  const made = await agent("admin org create acme --network 10.77.0.0/16");
  expect(made).toMatchObject({
    status: 0,
    err: `On ${serving.url} as ada@example.org:\nTo add a machine: \`agent admin token create acme\`\n`,
  });
  await must("admin group create acme web");
  await must("admin node create acme alpha --group web");
  await must("admin node update acme alpha --add-group db --relay");
  expect(await must("admin node show acme alpha")).toMatchObject({ groups: ["web", "db"], is_relay: true });
  await must("admin node rename acme alpha beta");
  expect(await must("admin rule create acme --peer node:beta --ports 22 --protocol tcp")).toMatchObject({
    peer: { node: 1 },
  });
  const rules = await agent("admin rule list acme");
  expect(rules.out).toContain("node:beta");
  expect(await must("admin token create acme --uses 2")).toMatchObject({
    command: expect.stringContaining(serving.url),
  });
  expect(await must("admin member create acme eve@example.org")).toMatchObject({ state: "invited" });
  await must("admin invitation delete acme eve@example.org");
  await must("admin user create joan@example.org --password-file -", password);
  expect(await must("admin user disable joan@example.org")).toMatchObject({ is_active: false });
  expect(await must("admin ca show acme")).toMatchObject({ rotation: { phase: "none" } });
  expect(await must("admin server list")).toEqual({ servers: [], warnings: [] });
  await must("admin node delete acme beta --reason lost");
  expect(await must("admin node list acme --revoked")).toMatchObject({ nodes: [{ name: "beta" }] });
  // What was done is recorded under the name of the person.
  const { events } = v.parse(
    v.object({ events: v.array(v.looseObject({ actor: v.unknown() })) }),
    await must("admin events acme"),
  );
  expect(events.every(({ actor }) => JSON.stringify(actor).includes('"kind":"person"'))).toBe(true);
});

test("diff shows what the next configuration of a registered node changes, in the network's words", async () => {
  await signIn();
  await must("admin org create deltas --network 10.78.0.0/16");
  const { token } = v.parse(v.looseObject({ token: v.string() }), await must("admin token create deltas"));
  const send = async (path: string, body: object, bearer?: string) => {
    const headers = {
      "Content-Type": "application/json",
      ...(bearer === undefined ? {} : { Authorization: `Bearer ${bearer}` }),
    };
    const init = { method: "POST", headers, body: JSON.stringify(body) };
    return (await fetch(`${serving.url}/api/org/deltas/nodes/${path}`, init)).json();
  };
  const request = { ...(await makeKeys()), name: "laptop", registration_token: token };
  const { node, api_token, config } = v.parse(RegisterAnswer, await send("register/", request));
  const waiting = await agent("admin diff deltas laptop");
  expect(waiting.out).toContain("does not know which files it has");
  await send(
    `${node.id}/checkin/`,
    {
      version: "1.0.0",
      uptime: 1,
      config_version: config.config_version,
    },
    api_token,
  );
  expect(await agent("admin diff deltas laptop")).toMatchObject({
    status: 0,
    out: `laptop has the newest configuration, ${config.config_version}: nothing changes.\n`,
  });
  await must("admin rule create deltas --protocol tcp --ports 8443");
  const { status, out } = await agent("admin diff deltas laptop");
  expect(status).toBe(0);
  expect(out).toContain(`laptop has configuration ${config.config_version} of`);
  expect(out).toMatch(/Its files change:\nconfig\.yml\n@@ .+\n/);
  expect(out).toMatch(/^\+.*8443/m);
  expect(await agent("admin diff deltas tablet")).toMatchObject({ status: 1 });
  const meant = await agent("admin node diff deltas laptop");
  expect(meant.err).toContain("agent admin diff deltas laptop");
});

test("the node whose certificate ends first is on top, those without one are below", async () => {
  await signIn();
  await must("admin org create ends --network 10.83.0.0/16");
  await must("admin node create ends later");
  for (const [name, flags] of [
    ["server", ""],
    ["job", " --ephemeral"],
  ] as const) {
    const { token } = v.parse(
      v.looseObject({ token: v.string() }),
      await must(`admin token create ends${flags}`),
    );
    const answer = await fetch(`${serving.url}/api/org/ends/nodes/register/`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ ...(await makeKeys()), name, registration_token: token }),
    });
    expect(answer.status).toBe(201);
  }
  const { out } = await agent("admin node list ends --certificates");
  const [head, ...rows] = out.trimEnd().split("\n");
  expect(head).toEndWith("CERTIFICATE ENDS");
  expect(rows.map((row) => /^\S+/.exec(row)?.[0])).toEqual(["job", "server", "later"]);
  expect(rows[0]).toMatch(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/);
  const names = v.object({ nodes: v.array(v.looseObject({ name: v.string() })) });
  const listed = v.parse(names, await must("admin node list ends --certificates"));
  expect(listed.nodes.map(({ name }) => name)).toEqual(["job", "server", "later"]);
});

test("a rotation and a network behind a node say what comes next", async () => {
  await signIn();
  await must("admin org create nexts --network 10.84.0.0/16");
  const shown = await agent("admin ca show nexts");
  expect(shown.out.split("\n")[0]?.split(/ {2,}/)).toEqual(["CA", "STATE", "VALID UNTIL", "FINGERPRINT"]);
  expect(shown.out).toMatch(/^overlay {2}active {2}20\S+Z {2,}[0-9a-f]{64}$/m);
  const rotated = await agent("admin ca rotate nexts");
  expect(rotated.err).toContain("To watch: `agent admin ca show nexts`");
  expect(rotated.err).toContain("tunnels stay up");
  // It interrupts tunnels, so nothing of what it says may promise the contrary.
  const hasty = await agent("admin ca rotate nexts --now");
  expect([hasty.status, hasty.err.replaceAll(/\s+/g, " ")]).toEqual([
    0,
    expect.stringMatching(/can lose packets for some seconds.* This takes some seconds, .* To watch:/),
  ]);
  expect(hasty.err).not.toMatch(/stay up|two minutes/);
  await must("admin node create nexts router");
  const routed = await agent("admin node update nexts router --add-subnet 192.168.5.0/24");
  expect(routed).toMatchObject({ status: 0, out: "Updated node router\n" });
  expect(routed.err).toContain("On router, root makes the machine ready: `sudo agent up nexts --advertise");
  const naming = await agent("admin node update nexts router --names");
  expect(naming.err).toContain("On router, root has to allow it: `sudo agent names --on --peers`");
  expect(naming.err).toContain(
    "`agent admin rule create nexts --protocol udp --ports 53 --target node:router`",
  );
  expect((await agent("admin node show nexts router")).out).toMatch(/role +name server/);
  expect((await agent("admin node update nexts router --no-names")).err).not.toContain("--peers");
  const same = await agent("admin node update nexts router --remove-subnet 192.168.5.0/24");
  expect(same.err).not.toContain("forwarding");
});

test("where the user is signed in is listed, and ends one by one", async () => {
  await signIn();
  const signed = await fetch(`${serving.url}/api/session/`, {
    method: "POST",
    headers: {
      Origin: serving.url,
      "Sec-Fetch-Site": "same-origin",
      "Content-Type": "application/json",
      "User-Agent": "Firefox",
    },
    body: JSON.stringify({ email: "ada@example.org", password }),
  });
  const [cookie = ""] = signed.headers.getSetCookie();
  const whoAmI = () => fetch(`${serving.url}/api/user/`, { headers: { Cookie: cookie.split(";")[0] ?? "" } });
  expect((await whoAmI()).status).toBe(200);
  const Listed = v.object({ sessions: v.array(v.looseObject({ id: v.number(), kind: v.string() })) });
  const { sessions } = v.parse(Listed, await must("admin session list"));
  expect(sessions.filter(({ is_current }) => is_current === true)).toMatchObject([{ kind: "command_line" }]);
  const id = sessions.find(({ device }) => device === "Firefox")?.id ?? 0;
  expect(await must(`admin session revoke ${id}`)).toEqual({ id });
  expect((await whoAmI()).status).toBe(401);
  expect(await agent(`admin session revoke ${id}`)).toMatchObject({
    status: 1,
    err: expect.stringContaining("no such session"),
  });
  expect(await agent("admin session revoke Firefox")).toMatchObject({
    status: 1,
    err: expect.stringContaining("There is no session Firefox"),
  });
});

test("a second factor is added, asked for at sign-in and before what needs a fresh proof", async () => {
  await runAdmin(data, ["user", "create", "may@example.org", "--staff", "--password-file", "-"], password);
  await signIn("may@example.org");
  // A camera reads it from a terminal; programs and files get the text alone.
  const shown = await onTerminal("admin factor add --password-file -", password);
  const url = /^otpauth:\S+$/m.exec(shown.out)?.[0] ?? "";
  expect(shown.out).toContain(renderUnicodeCompact(url, { border: 2 }));
  expect((await agent("admin factor add --password-file -", password)).out).not.toMatch(/[▀▄█]/);
  const { secret } = v.parse(
    v.object({ secret: v.string(), otpauth_url: v.string() }),
    await must("admin factor add --password-file -", password),
  );
  const app = appWith({ clock: { ms: Date.now() } }, secret);
  const { recovery_codes: codes } = v.parse(
    v.object({ recovery_codes: v.array(v.string()) }),
    await must(`admin factor add --code ${app.code()}`),
  );
  expect(await must("admin factor list")).toEqual({
    totp: true,
    passkeys: 0,
    recovery_codes_left: 10,
    is_required: false,
  });
  const passwordPath = join(directory, "password");
  writeFileSync(passwordPath, password, { mode: 0o600 });
  const login = `login --api-base ${serving.url} --email may@example.org --profile plane --password-file ${passwordPath}`;
  const refused = await agent(login);
  expect([refused.status, refused.err]).toEqual([5, expect.stringContaining("--otp-file")]);
  await must(`${login} --otp-file -`, codes[0]);
  await must("admin org create proven --network 10.79.0.0/16");
  const rename = "admin org update proven --path-reports off";
  await must(rename);
  const db = new Database(databasePath({ dataDirectory: data }));
  db.run("UPDATE refresh_tokens SET factor_at = 1");
  db.close();
  const stale = await agent(rename);
  expect([stale.status, stale.err]).toEqual([5, expect.stringContaining("--otp-file")]);
  expect((await agent(`${rename} --otp-file -`, "000000")).err).toContain("wrong");
  expect(await must(`${rename} --otp-file -`, codes[1])).toMatchObject({ path_reports: false });
  await must(rename);
  await runAdmin(data, ["user", "reset-factors", "may@example.org", "--local"]);
  await must(login);
});

test("a change on the data records the number of the machine's user, and the operator needs no account", async () => {
  await runAdmin(data, ["group", "create", "acme", "local"]);
  const { out } = await runAdmin(data, ["events", "acme", "--lines", "1", "--json"]);
  expect(JSON.parse(out)).toMatchObject({
    events: [
      { type: "group.created", actor: { kind: "operator", id: process.getuid?.() ?? null, ip: null } },
    ],
  });
});

test("events of several types and of a span of time", async () => {
  const types = async (words: string) => {
    const { status, out } = await agent(`admin events acme --json ${words}`);
    expect(status).toBe(0);
    const { events } = v.parse(
      v.object({ events: v.array(v.looseObject({ type: v.string() })) }),
      JSON.parse(out),
    );
    return [...new Set(events.map(({ type }) => type.replace(/\..*/, "")))].sort();
  };
  await signIn();
  expect(await types("--type group.* --type node.created")).toEqual(["group", "node"]);
  expect(await types("--type group.* --since 1h")).toEqual(["group"]);
  expect(await types("--since 2020-01-01 --until 2020-01-02")).toEqual([]);
  expect(await types("--until 2020-01-02T08:00:00Z")).toEqual([]);
  const day = new Date(Date.now() + 86_400_000).toISOString().slice(0, 10);
  expect(await types(`--since ${day}`)).toEqual([]);
  expect(await agent("admin events acme --since 2020-01-01 --until 2020-01-02")).toMatchObject({
    out: "",
    err: "acme has no such events.\n",
  });
  // Of no organization, for staff.
  expect((await agent("admin events --type user.created")).out).toContain("user/ada@example.org");
  expect(await agent("admin events --until 2020-01-02")).toMatchObject({
    out: "",
    err: "The control plane has no such events.\n",
  });
  for (const [words, sentence] of [
    ["--since yesterday", "--since must be a time such as 24h"],
    ["--since 2026-02-30", "--since must be a time such as 24h"],
    ["--until 2026-11-23 --follow", "--until does not go with --follow"],
  ])
    expect(await agent(`admin events acme ${words}`)).toMatchObject({
      status: 2,
      err: expect.stringContaining(sentence ?? ""),
    });
});
test("a user without the right is told under which name, and a service token what it cannot do", async () => {
  await signIn("bob@example.org");
  expect(await agent("admin events")).toMatchObject({ out: "", status: 5 });
  const refused = await agent("admin user list");
  expect(refused).toMatchObject({
    status: 5,
    err: expect.stringContaining(`${serving.url} as bob@example.org`),
  });
  expect((await agent("admin node list acme")).err).toContain("There is no organization acme");
  const made = await runAdmin(data, ["service-token", "create", "acme", "ci", "--role", "admin", "--json"]);
  const { token } = v.parse(v.looseObject({ token: v.string() }), JSON.parse(made.out));
  const file = join(directory, "token");
  writeFileSync(file, token);
  const by = `--api-base ${serving.url} --access-token-file ${file}`;
  expect(await must(`admin group create acme by-token ${by}`)).toMatchObject({ name: "by-token" });
  expect((await agent(`admin member list acme ${by}`)).err).toContain(
    "service token has no rights over users",
  );
  expect((await agent(`admin rollout create acme --engine 1.12.0 ${by}`)).err).toContain(
    "A service token does not give",
  );
  // A plan that the role does not permit is none.
  const reader = await runAdmin(data, ["service-token", "create", "acme", "reader", "--json"]);
  writeFileSync(file, v.parse(v.looseObject({ token: v.string() }), JSON.parse(reader.out)).token);
  expect(await agent(`admin group create acme planned --dry-run ${by}`)).toMatchObject({
    status: 5,
    out: "",
    err: expect.stringContaining("This needs the role admin, and yours is member"),
  });
  // A user's token in a file is no service token.
  const signedIn = await fetch(`${serving.url}/api/token/`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ email: "bob@example.org", password }),
  });
  writeFileSync(file, v.parse(v.looseObject({ access: v.string() }), await signedIn.json()).access);
  const byUser = (await agent(`admin user list ${by}`)).err;
  expect(byUser).toContain("Ask an owner of the organization");
  expect(byUser).not.toContain("service token");
  writeFileSync(file, token);
  // The same as a profile.
  await must(`login --api-base ${serving.url} --profile ci --access-token-file ${file}`);
  expect(await must("admin node list acme")).toEqual({ nodes: [] });
  await must("logout");
});

test("a signed-in user sets the own password with the current one, and no other user's", async () => {
  await signIn("bob@example.org");
  const next = "another good password";
  const [old, fresh] = [join(directory, "old"), join(directory, "new")];
  writeFileSync(old, password);
  writeFileSync(fresh, next);
  const files = `--current-password-file ${old} --password-file ${fresh}`;
  expect((await agent(`admin user password ada@example.org ${files}`)).err).toContain("only your own");
  await must(`admin user password bob@example.org ${files}`);
  expect((await agent(`login --profile plane --password-file ${old}`)).status).toBe(5);
  await must(`login --profile plane --password-file ${fresh}`);
});

test("nothing in a request over the network makes the caller the operator", async () => {
  for (const headers of [
    { Operator: "1", "X-Operator": "0" },
    { Authorization: "Bearer operator" },
    { Authorization: "operator" },
  ]) {
    const answer = await fetch(`${serving.url}/api/users/`, {
      headers: new Headers(Object.entries(headers)),
    });
    expect(answer.status).toBe(401);
  }
});
