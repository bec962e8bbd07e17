// Administration with the compiled executable: over the network with TLS, on the data beside the running server, and what
// each says about its target.

import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { buildAgent, runAgent, startControlPlane, type ControlPlane } from "../support/agent.ts";
import { temporaryDirectory } from "../support/temporary.ts";

setDefaultTimeout(60_000);
const directory = temporaryDirectory();
const home = join(directory.path, "home");
const password = "correct horse battery";
let plane: ControlPlane;
const agent = (line: string, input = "") => runAgent(line.split(" "), { env: { HOME: home }, input });
async function must(line: string, input?: string): Promise<unknown> {
  const { status, stdout, stderr } = await agent(`${line} --json`, input);
  expect(`${line}: ${status} ${status === 0 ? "" : stdout + stderr}`).toBe(`${line}: 0 `);
  return JSON.parse(stdout);
}

beforeAll(async () => {
  buildAgent();
  mkdirSync(home, { mode: 0o700 });
  plane = await startControlPlane(join(directory.path, "server"), ["--tls", "auto"]);
  await plane.admin(["user", "create", "ada@example.org", "--staff", "--password-file", "-"], password);
}, 120_000);
afterAll(async () => {
  await plane.stop();
  directory[Symbol.dispose]();
});

test("the same commands work over the network and on the data, and each sees at once what the other changed", async () => {
  const fingerprint = /sha256:[0-9a-f]{64}/.exec(plane.log())?.[0] ?? "";
  const words = `--api-base ${plane.url} --ca-fingerprint ${fingerprint} --email ada@example.org`;
  await must(`login ${words} --password-file -`, password);
  const made = await agent("admin org create acme --network 10.77.0.0/16");
  expect([made.status, made.stderr]).toEqual([
    0,
    `On ${plane.url} as ada@example.org:\nTo add a machine: \`agent admin token create acme\`\n`,
  ]);
  await must("admin node create acme laptop --group staff");
  const local = await plane.admin(["node", "rename", "acme", "laptop", "desk"]);
  expect([local.status, local.stderr]).toEqual([0, ""]);
  expect(await must("admin node show acme desk")).toMatchObject({ name: "desk", groups: ["staff"] });
  expect((await agent("admin node list acme")).stdout).toMatch(
    /^NAME +ADDRESS +STATE.*\ndesk +10\.77\.0\.1 +pending/,
  );
  const events = await agent("admin events acme");
  expect(events.stdout).toMatch(/^TIME +TYPE +SUBJECT +BY +CHANGES\n/);
  expect(events.stdout).toMatch(/node desk +ada@example\.org from 127\.0\.0\.1 /);
  expect(events.stdout).toMatch(new RegExp(`node desk +the operator \\(uid ${process.getuid?.()}\\) `));
});

test("what needs the keys of the control plane says where it works", async () => {
  const refused = await agent(`admin backup ${join(directory.path, "b.db")}`);
  expect(refused.status).toBe(2);
  expect(refused.stderr).toContain("works only on the machine of the control plane");
  expect((await plane.admin(["backup", join(directory.path, "b.db")])).status).toBe(0);
});

test("a wide rule, a public network and a side without its kind are told before anything happens", async () => {
  const warned = await agent("admin org create dns --network 8.8.8.0/24");
  expect([warned.status, warned.stderr]).toEqual([
    0,
    expect.stringContaining("8.8.8.0/24 is a public range"),
  ]);
  const named = await agent("admin org update dns --name Names");
  expect(named.stdout).toBe("dns: name is now Names\n");
  const side = await agent("admin rule create acme --peer alpha");
  expect(side.stderr).toContain("Write node:alpha for the node");
  const gone = await agent("admin org delete dns --confirm acme");
  expect([gone.status, gone.stderr]).toEqual([2, expect.stringContaining("--confirm dns")]);
  await must("admin org delete dns --confirm dns");
});

test("no secret of the sign-in is in the output, the log or the list of profiles", async () => {
  const profiles = join(home, ".config/overlay-agent/profiles");
  const list = readFileSync(join(profiles, "profiles.json"), "utf8");
  const name = /"current": "([^"]+)"/.exec(list)?.[1] ?? "";
  const session = readFileSync(join(profiles, `${name}.session`), "utf8");
  const { stderr } = await agent("admin org list --verbose");
  for (const [, secret = ""] of session.matchAll(/"(?:refresh|access)":"([^"]+)"/g)) {
    for (const text of [list, plane.log(), stderr]) expect(text).not.toContain(secret);
  }
  await must("logout");
  const after = await agent(`admin org list --api-base ${plane.url}`);
  expect([after.status, after.stderr]).toEqual([4, expect.stringContaining("agent login --api-base")]);
});
