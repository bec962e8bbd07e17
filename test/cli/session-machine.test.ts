// A stolen laptop: its session of `agent login` ends with its node, and its user is signed out everywhere.

import { Database } from "bun:sqlite";
import { afterAll, expect, setDefaultTimeout, test } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { RegisterAnswer } from "../../src/protocol/registration.ts";
import { databasePath } from "../../src/server/store/data-directory.ts";
import { runAdmin } from "../support/admin.ts";
import { makeKeys } from "../support/nodes.ts";
import { makeRemoteAgent, password } from "../support/remote-agent.ts";

setDefaultTimeout(120_000);
const { path: directory, data, serving, agent, must, signIn, stop } = await makeRemoteAgent();
afterAll(stop);

const Token = v.looseObject({ token: v.string() });
const Sessions = v.object({
  sessions: v.array(
    v.looseObject({
      id: v.number(),
      kind: v.string(),
      device: v.string(),
      nodes: v.array(v.looseObject({ name: v.string() })),
    }),
  ),
});

/** Registers a machine, and writes what it keeps of that below a configuration root. */
async function registerAt(configRoot: string, name: string): Promise<void> {
  const made = await runAdmin(data, ["token", "create", "acme", "--json"]);
  const { token } = v.parse(Token, JSON.parse(made.out));
  const answer = await fetch(`${serving.url}/api/org/acme/nodes/register/`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ name, ...(await makeKeys(name)), registration_token: token }),
  });
  const { node, api_token } = v.parse(RegisterAnswer, await answer.json());
  const place = join(configRoot, "acme");
  mkdirSync(place, { recursive: true });
  const credentials = { api_base: serving.url, org_slug: "acme", node_id: node.id, api_token };
  writeFileSync(join(place, "credentials.json"), JSON.stringify(credentials), { mode: 0o600 });
  writeFileSync(join(place, "node-config.json"), "{}");
}

test("the session of a stolen laptop ends with its node, and the output says what is left to do", async () => {
  await runAdmin(data, ["org", "create", "acme", "--network", "10.77.0.0/16", "--owner", "ada@example.org"]);
  const configRoot = join(directory, "etc");
  await registerAt(configRoot, "laptop");
  const login = `login --api-base ${serving.url} --email ada@example.org --password-file - --config-root ${configRoot}`;
  await must(`${login} --profile laptop`, password);
  // On another machine.
  await signIn();
  const { sessions } = v.parse(Sessions, await must("admin session list"));
  expect(
    sessions.map(({ kind, device, nodes }) => [
      kind,
      /^agent \S+ on \S+$/.test(device),
      nodes.map(({ name }) => name),
    ]),
  ).toEqual([
    ["command_line", true, ["laptop"]],
    ["command_line", true, []],
  ]);
  const onLaptop = (line: string) => agent(`${line} --profile laptop`);
  expect((await onLaptop("admin node list acme")).status).toBe(0);
  const revoked = await agent("admin node revoke acme laptop --reason stolen");
  expect(revoked).toMatchObject({ status: 0, out: "Revoked node laptop\n" });
  expect(revoked.err).toContain("1 session of `agent login` on its machine ended too.");
  expect(revoked.err).toContain("`agent admin session list --org acme --user EMAIL`");
  expect(revoked.err).toContain("docs/stolen-laptop.md");
  const again = await onLaptop("admin token create acme");
  expect([again.status, again.err]).toEqual([4, expect.stringContaining("has ended")]);
  expect((await agent("admin node list acme")).status).toBe(0);
});

test("a machine that is registered after the sign-in is proven when the tokens are renewed", async () => {
  const configRoot = join(directory, "later");
  mkdirSync(configRoot);
  const options = `--profile later --config-root ${configRoot}`;
  await must(
    `login --api-base ${serving.url} --email ada@example.org --password-file - ${options}`,
    password,
  );
  await registerAt(configRoot, "later");
  const file = join(directory, "home/overlay-agent/profiles/later.session");
  const session = JSON.parse(await Bun.file(file).text());
  // As after 15 minutes.
  expect(JSON.stringify(session)).toContain("until");
  writeFileSync(file, JSON.stringify(session).replace(/"until":\d+/, '"until":1'), { mode: 0o600 });
  await must(`admin node list acme ${options}`);
  const { sessions } = v.parse(Sessions, await must(`admin session list ${options}`));
  expect(sessions.map(({ nodes }) => nodes.map(({ name }) => name).join())).toContain("later");
});

test("an administrator signs a member out, of one session or everywhere", async () => {
  await runAdmin(data, ["member", "create", "acme", "bob@example.org"]);
  await must(
    `login --api-base ${serving.url} --email bob@example.org --password-file - --profile bob`,
    password,
  );
  const ofBob = "--org acme --user bob@example.org";
  await signIn();
  const { sessions } = v.parse(Sessions, await must(`admin session list ${ofBob}`));
  expect(sessions.length).toBe(1);
  expect((await agent("whoami --profile bob")).status).toBe(0);
  expect((await agent(`admin session revoke ${ofBob}`)).status).toBe(2);
  expect((await agent("admin session revoke --all")).status).toBe(2);
  expect((await agent("admin session list --org acme")).status).toBe(2);
  expect(await must(`admin session revoke --all ${ofBob}`)).toEqual({ user: "bob@example.org", all: true });
  expect((await agent("admin node list acme --profile bob")).status).toBe(4);
  const db = new Database(databasePath({ dataDirectory: data }), { readonly: true });
  expect(db.query("SELECT type FROM events WHERE type = 'member.signed_out'").all().length).toBe(1);
  db.close();
});

test("staff sign a user out who is in no organization", async () => {
  await runAdmin(data, ["user", "create", "eve@example.org", "--password-file", "-"], password);
  const login = `login --api-base ${serving.url} --email eve@example.org --password-file - --profile eve`;
  await must(login, password);
  const onData = async (...words: string[]) => (await runAdmin(data, ["session", ...words])).out;
  const { sessions } = v.parse(
    Sessions,
    JSON.parse(await onData("list", "--user", "eve@example.org", "--json")),
  );
  expect(sessions.length).toBe(1);
  const one = String(sessions[0]?.id);
  expect(await onData("revoke", one, "--user", "eve@example.org")).toBe(`Session ${one} has ended\n`);
  expect((await agent("admin org list --profile eve")).status).toBe(4);
  await must(login, password);
  expect(await onData("revoke", "--all", "--user", "eve@example.org")).toBe(
    "All sessions of eve@example.org have ended\n",
  );
  expect((await agent("admin org list --profile eve")).status).toBe(4);
});

test("a disabled user is no active member in the list", async () => {
  await runAdmin(data, ["user", "disable", "bob@example.org"]);
  const { out } = await runAdmin(data, ["member", "list", "acme"]);
  expect(out).toMatch(/^bob@example\.org +member +disabled /m);
  expect(out).toMatch(/^ada@example\.org +owner +active /m);
});
