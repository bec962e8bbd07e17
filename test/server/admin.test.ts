// Every `agent admin` command, on the data of a running server. A change takes effect there within a second.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { makeLog } from "../../src/base/log.ts";
import { startServer, type Serving } from "../../src/server/serve.ts";
import { realSystem } from "../../src/base/system.ts";
import { runAdmin } from "../support/admin.ts";
import { makeKeys } from "../support/nodes.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const umask = process.umask();
const directory = temporaryDirectory();
const data = join(directory.path, "data");
const password = "correct horse battery";
let serving: Serving;
beforeAll(async () => {
  const log = makeLog({ verbose: false, write: () => undefined, now: Date.now, stamped: true });
  const listen = { hostname: "127.0.0.1", port: 0 };
  const lifetimes = { accessLifetimeS: 900, refreshLifetimeS: 86_400 };
  const options = { dataDirectory: data, listen, allowPlainHttp: false, trustedProxies: [], ...lifetimes };
  serving = await startServer(options, { system: realSystem(), log });
  await must("user create ada@example.org --staff --password-file -", password);
  await must("org create acme --network 10.77.0.0/16 --owner ada@example.org");
});
afterAll(async () => {
  await serving.stop();
  directory[Symbol.dispose]();
  process.umask(umask);
});

const admin = (words: string, input?: string) => runAdmin(data, words.split(" "), input);
/** The JSON object that the command prints. */
async function must(words: string, input?: string): Promise<unknown> {
  const { status, out, err } = await admin(`${words} --json`, input);
  expect(`${words}: ${status} ${status === 0 ? "" : out + err}`).toBe(`${words}: 0 `);
  return JSON.parse(out);
}
const refused = async (words: string, input?: string) => {
  const { status, err } = await admin(words, input);
  expect(`${words}: ${status}`).not.toBe(`${words}: 0`);
  return err;
};

async function send(method: string, path: string, body?: object, token?: string): Promise<Response> {
  return fetch(serving.url + path, {
    method,
    headers: {
      ...(body === undefined ? {} : { "Content-Type": "application/json" }),
      ...(token === undefined ? {} : { Authorization: `Bearer ${token}` }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
}
const signIn = async (email: string, secret = password) => {
  const answer = await send("POST", "/api/token/", { email, password: secret });
  const pair: unknown = await answer.json();
  return {
    status: answer.status,
    token: v.parse(v.object({ access: v.optional(v.string(), "") }), pair).access,
  };
};
/** A change of another process takes effect within a second; a busy machine gets more time. */
async function soon(isSo: () => Promise<boolean>): Promise<void> {
  for (const end = Date.now() + 20_000; Date.now() < end; await Bun.sleep(20)) if (await isSo()) return;
  throw new Error("Not in force");
}

test("users", async () => {
  await must("user create grace@example.org --password-file -", password);
  expect(await refused("user create grace@example.org --password-file -", password)).toContain("already");
  const { token } = await signIn("grace@example.org");
  const me = async () => (await send("GET", "/api/user/", undefined, token)).status;
  expect(await me()).toBe(200);
  await must("user disable grace@example.org");
  await soon(async () => (await me()) === 401);
  expect(await must("user list")).toMatchObject({
    users: [
      { email: "ada@example.org", is_staff: true },
      { email: "grace@example.org", is_active: false },
    ],
  });
  await must("user enable grace@example.org");
  await must("user password grace@example.org --password-file -", "another good one");
  expect((await signIn("grace@example.org")).status).toBe(401);
  expect((await signIn("grace@example.org", "another good one")).status).toBe(200);
  expect(await refused("user disable ada@example.org")).toContain("last staff");
});

test("members and groups", async () => {
  await must("user create joan@example.org --password-file -", password);
  const { token } = await signIn("joan@example.org");
  const reads = async () => (await send("GET", "/api/org/acme/", undefined, token)).status;
  expect(await reads()).toBe(404);
  await must("member create acme joan@example.org --role admin");
  await soon(async () => (await reads()) === 200);
  expect(await must("member create acme new@example.org")).toMatchObject({
    state: "invited",
    link: expect.stringMatching(/\/join\/#[\w-]{43}$/),
  });
  expect(await must("member list acme")).toMatchObject({
    members: [{ role: "owner" }, { email: "joan@example.org", role: "admin" }, { state: "invited" }],
  });
  expect(await refused("member delete acme ada@example.org")).toContain("last owner");
  await send("POST", "/api/org/acme/service_tokens/", { name: "ci", role: "member" }, token);
  await send("POST", "/api/org/acme/registration_tokens/", {}, token);
  await changesRoles(token);
  const left = await admin("member delete acme joan@example.org");
  expect([left.status, left.out]).toEqual([0, "Removed joan@example.org from acme\n"]);
  await soon(async () => (await reads()) === 404);
  const [, ...lines] = left.err.trim().split("\n");
  const offered = lines.map(
    (line) => /`agent admin (token revoke acme \d+(?: --service)?) --data-dir [^`]+`$/.exec(line)?.[1],
  );
  expect(left.err).toContain("service token 1 (ci) of acme");
  await must(offered[1] ?? "");
  const ended = await admin("user disable joan@example.org --revoke-tokens");
  expect([ended.out, ended.err]).toEqual([
    `User joan@example.org is disabled\nRevoked ${/registration token \d+ of acme/.exec(lines[0] ?? "")?.[0]}\n`,
    "",
  ]);

  await must("group create acme db --description databases");
  expect(await must("group list acme")).toMatchObject({ groups: [{ name: "db", description: "databases" }] });
  await must("group delete acme db");
  expect(await must("group list acme")).toEqual({ groups: [] });
});

test("a user that an invitation created becomes owner by its id, and the error shows the command", async () => {
  const email = "$(reboot)@example.org";
  const { link } = v.parse(v.object({ link: v.string() }), await must(`member create acme ${email}`));
  const body = { secret: link.split("#")[1], password: "the squatter's choice" };
  expect((await send("POST", "/api/join/", body)).status).toBe(200);
  const network = "--network 10.81.0.0/16 --owner";
  const err = await refused(`org create board ${network} ${email}`);
  const line = /`agent (admin org create board [^`]+ --owner-id \d+)`/.exec(err)?.[1] ?? "";
  expect(line).toContain(`--owner '${email}' --owner-id `);
  expect(await must("org list")).not.toMatchObject({ organizations: [{}, { slug: "board" }] });
  const id = /\d+$/.exec(line)?.[0] ?? "";
  expect(await refused(`org create board --network 10.81.0.0/16 --owner-id ${id}`)).toContain("give both");
  expect(await refused(`org create board ${network} ada@example.org --owner-id ${id}`)).toContain(
    `not user ${id}`,
  );
  expect(await must(line.replace("admin ", "").replaceAll("'", ""))).toMatchObject({ role: "owner" });
  // In its own organization the operator, who invited it, needs no confirmation.
  expect(await must(`member update acme ${email} --role owner`)).toMatchObject({ role: "owner" });
  await must(`member delete acme ${email}`);
});

test("commands that create groups implicitly name the new groups", async () => {
  await must("org create slips --network 10.79.0.0/16");
  const told = async (words: string) => /^New groups?: .*$/m.exec((await admin(words)).err)?.[0];
  expect(await told("token create slips --group web --group db --group web")).toBe("New groups: web, db");
  expect(await told("token create slips --group web")).toBeUndefined();
  expect(await told("node create slips one --group wbe")).toBe("New group: wbe");
  const rule = await admin("rule create slips --peer group:web --target group:bd");
  expect(rule.err).toContain("New group: bd\n");
  expect(rule.err).toContain(
    "No node is in bd yet: `agent admin node update slips NODE --add-group bd --data-dir ",
  );
  // A refused command creates no group.
  expect(await told("node create slips one --group never")).toBeUndefined();
  const scripted = await admin("token create slips --group web --group wbe2 --json");
  expect(JSON.parse(scripted.out)).toMatchObject({ groups: ["web", "wbe2"], new_groups: ["wbe2"] });
  expect(scripted.err).not.toContain("New group");
  expect(await must("group list slips")).toMatchObject({
    groups: ["web", "db", "wbe", "bd", "wbe2"].map((name) => ({ name })),
  });
});

describe("nodes, tokens and rules", () => {
  const Token = v.looseObject({ id: v.number(), token: v.string(), command: v.string() });
  const Registered = v.looseObject({ api_token: v.string(), node: v.looseObject({ id: v.number() }) });
  const register = async (name: string, token: string) =>
    send("POST", "/api/org/acme/nodes/register/", {
      name,
      ...(await makeKeys(name)),
      registration_token: token,
    });

  test("a node is created, claimed by its own token, gets new rules through its poll, and is revoked", async () => {
    await must("node create acme laptop --ip-address 10.77.1.1 --group staff");
    const made = v.parse(Token, await must("token create acme --node laptop"));
    expect(made.command).toContain(`--api-base ${serving.url} --org-slug acme`);
    const { api_token, node } = v.parse(Registered, await (await register("laptop", made.token)).json());
    expect(await must("node show acme laptop")).toMatchObject({
      ip_address: "10.77.1.1",
      groups: ["staff"],
      state: "active",
    });

    const path = `/api/org/acme/nodes/${node.id}/checkin/`;
    const checkin = { version: "1", uptime: 1 };
    const Version = v.looseObject({ config_version: v.number() });
    const told = async (words: string) => {
      const now = v.parse(Version, await (await send("POST", path, checkin, api_token)).json());
      // The change answers the poll, whether it comes before the poll or while it is held.
      const answer = fetch(serving.url + path, {
        method: "POST",
        headers: {
          "Content-Type": "application/json",
          Authorization: `Bearer ${api_token}`,
          Prefer: "wait=50",
        },
        body: JSON.stringify({ ...checkin, config_version: now.config_version }),
      });
      await Bun.sleep(100);
      const from = performance.now();
      await must(words);
      const { status } = await answer;
      // Without news the poll would be held for 50 s.
      expect(performance.now() - from).toBeLessThan(20_000);
      return status;
    };
    const rule = "rule create acme --protocol tcp --ports 22 --peer group:staff --target node:laptop";
    expect(await told(rule)).toBe(200);
    const { rules } = v.parse(
      v.object({ rules: v.array(v.looseObject({ id: v.number() })) }),
      await must("rule list acme"),
    );
    expect(rules).toHaveLength(3);
    expect(rules[2]).toMatchObject({ peer: { group: "staff" }, target: { node: node.id }, ports: "22" });
    expect(await told(`rule delete acme ${rules[2]?.id}`)).toBe(200);

    expect(await told("node revoke acme laptop --reason stolen")).toBe(403);
    expect(await must("node list acme")).toEqual({ nodes: [] });
    expect(await must("node list acme --revoked")).toMatchObject({
      nodes: [{ name: "laptop", state: "revoked", revoked_at: expect.any(String) }],
    });
    await must("node restore acme laptop");
    expect(await must("node list acme --revoked")).toEqual({ nodes: [] });
    await soon(async () => (await send("POST", path, checkin, api_token)).status === 200);
    expect(await must("node list acme")).toMatchObject({ nodes: [{ name: "laptop", state: "active" }] });
  }, 120_000);

  test("a token has uses and groups, and its revocation takes effect at once", async () => {
    const made = v.parse(
      Token,
      await must("token create acme --uses 2 --expires 1h --group web --name rack"),
    );
    expect((await register("one", made.token)).status).toBe(201);
    expect(await must("token list acme")).toMatchObject({
      tokens: [{ used: 1 }, { id: made.id, name: "rack", uses: 2, used: 1, groups: ["web"] }],
    });
    await must(`token revoke acme ${made.id}`);
    expect((await register("two", made.token)).status).toBe(401);
  });
});

/** The last owner cannot be demoted. When joan is owner too, ada can become a member and owner again. */
async function changesRoles(joansToken: string): Promise<void> {
  const twice = await admin("member create acme joan@example.org --role owner");
  expect(twice.err).toContain("`agent admin member update acme joan@example.org --role ROLE --data-dir ");
  const refusedLast = await admin("member update acme ada@example.org --role member");
  expect(refusedLast.err).toContain("`agent admin member update ORG EMAIL --role owner --data-dir ");
  expect(await must("member update acme joan@example.org --role owner")).toMatchObject({ role: "owner" });
  expect(await must("member update acme ada@example.org --role member")).toMatchObject({ role: "member" });
  expect(await must("member update acme ada@example.org --role owner")).toMatchObject({ role: "owner" });
  // Tokens of a demoted user keep working.
  const demoted = await admin("member update acme joan@example.org --role member");
  expect([demoted.status, demoted.out]).toEqual([0, "joan@example.org is now member of acme\n"]);
  expect(demoted.err).toContain("service token 1 (ci) of acme");
  const invites = { email: "eve@example.org", role: "member" };
  await soon(async () => (await send("POST", "/api/org/acme/members/", invites, joansToken)).status === 403);
  expect(await refused("member update acme joan@example.org")).toContain("--role");
  const stranger = await admin("member update acme nobody@example.org --role admin");
  expect(stranger.err).toContain("`agent admin member create acme EMAIL --role ROLE --data-dir ");
  const invited = await admin("member update acme new@example.org --role admin");
  expect(invited.out).toBe("new@example.org is invited as admin of acme\n");
}

test("--dry-run creates nothing and refuses what the command refuses", async () => {
  const elsewhere = join(directory.path, "elsewhere");
  const dry = (words: string, at = elsewhere) =>
    runAdmin(at, [...words.split(" "), "--dry-run", "--json"], password);
  for (const words of [
    "user create x@example.org --password-file -",
    "org create other --network 10.1.0.0/16",
  ]) {
    const { status, out } = await dry(words);
    expect(`${words}: ${status} ${out}`).toContain(`${words}: 0 {"plan":[`);
    expect(out).toContain("secret.key");
    expect(existsSync(elsewhere)).toBe(false);
  }
  for (const words of [
    "member create acme x@example.org",
    "member update acme new@example.org --role admin",
    "group create acme web",
    "node create acme x",
    "node revoke acme laptop",
    "rule create acme --peer node:laptop",
    "rule delete acme 1",
    "token create acme",
    "token revoke acme 1",
  ]) {
    const { status, out } = await dry(words, data);
    expect(`${words}: ${status} ${out}`).toContain(`${words}: 0 {"plan":[`);
    expect((await dry(words)).out).toContain("There is no control plane data");
    expect((await dry(words.replace("acme", "nope"), data)).out).toContain("no organization");
    expect(existsSync(elsewhere)).toBe(false);
  }
  for (const words of ["node revoke acme x", "member update acme x@example.org --role admin"])
    expect((await dry(words, data)).status).toBe(1);
  for (const words of ["rule create acme --ports 99999", "group create acme any", "node create acme Big"]) {
    expect((await dry(words)).status).not.toBe(0);
    expect(existsSync(elsewhere)).toBe(false);
  }
});

test("keys are exported under a long enough passphrase, or in plain text on request", async () => {
  const out = join(directory.path, "plain");
  for (const short of ["x", "elevenchars"]) {
    expect(await refused(`export acme ${out} --passphrase-file -`, short)).toContain("fewer than 12");
    expect(existsSync(out)).toBe(false);
  }
  expect(await must(`export acme ${out} --passphrase-file -`, "twelve chars")).toMatchObject({
    keys_encrypted: true,
  });
  expect(await must(`export acme ${out}-too --plain`)).toMatchObject({ keys_encrypted: false });
});

test("values that a node reports cannot control the operator's terminal", async () => {
  const { token } = await signIn("ada@example.org");
  const body = { name: "loud", ...(await makeKeys("loud")), platform: "\u001b]0;owned\u0007\u009b2J" };
  expect((await send("POST", "/api/org/acme/nodes/register/", body, token)).status).toBe(201);
  const { status, out } = await admin("node show acme loud");
  expect(status).toBe(0);
  expect(out).toContain("platform       ]0;owned 2J\n");
});

test("a directory without a control plane's data is refused and not changed", async () => {
  const mistyped = join(directory.path, "mistyped");
  const network = join(directory.path, "network");
  for (const words of ["user list", "org list", "node list acme", "key rotate", `backup ${mistyped}.bak`]) {
    const { status, err } = await runAdmin(mistyped, words.split(" "));
    expect(`${words}: ${status} ${err}`).toContain(`${words}: 1 agent: There is no control plane data in`);
    expect(err).toContain("--data-dir");
    expect(existsSync(mistyped)).toBe(false);
  }
  const dry = await runAdmin(mistyped, ["import", "acme", network, "--dry-run"]);
  expect(dry.err).toContain("no control plane data");
  const restored = await runAdmin(mistyped, ["restore", join(directory.path, "nothing")]);
  expect(restored).toMatchObject({
    status: 1,
    err: expect.stringContaining("nothing: no such file or directory"),
  });
  expect(existsSync(mistyped)).toBe(false);
});

test("a rule that opens everything is created only with explicit arguments", async () => {
  expect(await refused("rule create acme")).toContain("--peer any");
  expect(await refused("rule create acme --direction inbound --description all")).toContain("--peer any");
  expect(await must("rule create acme --peer any --dry-run")).toMatchObject({ plan: [{ step: "file" }] });
});

test("the plan of a key rotation names the files of both keys", async () => {
  const plan = ["control.db", "secret.key", "secret.key.former"].map((name) => ({ path: join(data, name) }));
  expect(await must("key rotate --dry-run")).toMatchObject({ plan });
});

test("errors for missing objects say where to look, and a revocation says how to undo it", async () => {
  expect(await refused("node show acme zz")).toContain("admin node list");
  expect(await refused("node list nope")).toContain("admin org list");
  expect(await refused("user disable zz@example.org")).toContain("admin user create");
  await must("node create acme lent");
  const { status, err } = await admin("node revoke acme lent");
  expect({ status, err }).toMatchObject({
    status: 0,
    err: expect.stringContaining("node restore acme lent"),
  });
});

test("the operator replaces and removes overrides of an organization and a node from standard input or a file", async () => {
  await must("node create acme tuned");
  for (const target of ["org update acme", "node update acme tuned"]) {
    const set = (text: string) => must(`${target} --config-overrides -`, text);
    expect(await set('{"handshakes":{"try_interval":"1s"}}\n')).toMatchObject({
      config_overrides: { handshakes: { try_interval: "1s" } },
    });
    expect(await refused(`${target} --config-overrides -`, '{"sshd":{}}')).toContain("sshd");
    for (const text of ["", "no"])
      expect(await refused(`${target} --config-overrides -`, text)).toContain("standard input is not JSON");
    const file = join(directory.path, "overrides.json");
    await Bun.write(file, "{}");
    expect(await must(`${target} --config-overrides ${file}`)).toMatchObject({ config_overrides: {} });
  }
  expect(await refused("node update acme tuned")).toContain("--config-overrides");
});

test("line feeds, tabs and bidi controls of foreign text stay in their line and cell", async () => {
  const text = (word: string) => `${word}\n9\troot\u202e`;
  // These commands split their words at spaces only.
  await must(`rule create acme --protocol tcp --ports 7 --peer any --description ${text("rule")}`);
  const { out } = await admin("rule list acme");
  expect(out).toMatch(/^\d.*  rule 9 root/m);
  expect(out).not.toContain("\u202e");
  // Names do not hold them at all.
  expect((await admin(`token create acme --name ${text("token")}`)).err).toContain("Control characters");
});
