// What commands of an administrator say where somebody took a wrong turn, and what comes next.

import { Database } from "bun:sqlite";
import { afterAll, expect, setDefaultTimeout, test } from "bun:test";
import { cpSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { AppError } from "../../src/base/errors.ts";
import { nodeByName } from "../../src/cli/admin/lookup.ts";
import { runAdmin } from "../support/admin.ts";
import { makeRemoteAgent } from "../support/remote-agent.ts";

setDefaultTimeout(60_000);
const { path: directory, data, agent, must, signIn, stop } = await makeRemoteAgent();
afterAll(stop);
await signIn();
await must("admin org create acme --network 10.77.0.0/16");
for (const name of ["web", "db"]) await must(`admin node create acme ${name} --group ${name}s`);

test("a node that was revoked is not called unknown", async () => {
  await must("admin node create acme gone");
  await must("admin node revoke acme gone");
  for (const line of ["show acme gone", "revoke acme gone", "rename acme gone went"]) {
    const { status, err } = await agent(`admin node ${line}`);
    expect([line, status]).toEqual([line, 1]);
    expect(err).toMatch(/gone was revoked at 2\S+Z\nTo restore it: `agent admin node restore acme gone`\./);
  }
  expect((await agent("admin node show acme never")).err).toContain("There is no node named never");
});

test("if the revoked nodes cannot be read, the failure is reported, not that the node is unknown", async () => {
  let requests = 0;
  const lost = new AppError("control_plane_unreachable", "The connection was lost");
  const all = async () => {
    requests += 1;
    if (requests === 2) throw lost;
    return [];
  };
  const call = () => Promise.reject(lost);
  expect(await nodeByName({ all, call }, "acme", "gone").catch((error: unknown) => error)).toBe(lost);
});

test("the revocation of the only lighthouse says how to make another one", async () => {
  for (const name of ["hub", "hub2"]) {
    await must(`admin node create acme ${name}`);
    await must(`admin node update acme ${name} --lighthouse --public-ip 192.0.2.${name.length}`);
  }
  const next = "Make another one: `agent admin token create acme --lighthouse`.";
  expect((await agent("admin node revoke acme hub")).err).not.toContain(next);
  expect((await agent("admin node revoke acme hub2")).err).toContain(next);
});

test("so does a change by which the only lighthouse is one no longer", async () => {
  const next = "Make another one: `agent admin token create acme --lighthouse`.";
  for (const name of ["hub3", "hub4"]) {
    await must(`admin node create acme ${name}`);
    await must(`admin node update acme ${name} --lighthouse --public-ip 192.0.2.${name.at(-1)}`);
  }
  expect((await agent("admin node update acme hub3 --no-lighthouse")).err).not.toContain(next);
  expect((await agent("admin node update acme hub3 --no-lighthouse")).err).not.toContain(next);
  expect((await agent("admin node update acme hub4 --no-lighthouse")).err).toContain(next);
});

test("nodes are listed by group and by contact, with their versions", async () => {
  const names = async (flags: string) =>
    ((await must(`admin node list acme ${flags}`)) as { nodes: { name: string }[] }).nodes.map(
      ({ name }) => name,
    );
  expect(await names("--group webs")).toEqual(["web"]);
  // Both are pending: they were never in contact, and nothing is wrong.
  expect(await names("--offline")).toEqual([]);
  expect((await agent("admin node list acme --offline --group webs")).err).toBe(
    "acme has no offline nodes in the group webs.\n",
  );
  const { out } = await agent("admin node list acme --versions");
  expect(out.split("\n")[0]).toMatch(/OWNER +ENGINE +AGENT +PLATFORM$/);
});

test("a host behind a router is no unknown node", async () => {
  await must("admin node update acme web --add-subnet 192.168.50.0/24");
  const { status, err } = await agent("admin policy test acme db 192.168.50.9 tcp/80");
  expect([status, err]).toEqual([
    1,
    expect.stringMatching(/192\.168\.50\.9 is no node, but a host behind web\nName web instead/),
  ]);
});

test("`policy test` says how to ask about the past where a node is gone, or every node is meant", async () => {
  for (const [from, first] of [
    ["former", "There is no node named former"],
    ["any", "There is no node named any"],
    ["gone", "gone was revoked at"],
  ] as const) {
    const { status, err } = await agent(`admin policy test acme ${from} db tcp/80`);
    expect([status, err]).toEqual([1, expect.stringContaining("Add `--at TIME`")]);
    expect(err).toContain(first);
  }
});

test("a join key is shown once: with --json not beside the JSON, and lists say who made it", async () => {
  const { out, err } = await agent("admin token create acme --name ci --json");
  const { token, join_key: key } = JSON.parse(out) as { token: string; join_key: string };
  expect([token, key].filter((secret) => err.includes(secret))).toEqual([]);
  expect((await agent("admin token list acme")).out).toMatch(/^\d+ +ci .* ada@example\.org$/m);
  await must("admin service-token create acme robot");
  expect((await agent("admin service-token list acme")).out).toMatch(/^\d+ +robot .* ada@example\.org$/m);
});

test("a lighthouse without a public address is said", async () => {
  const { err } = await agent("admin node update acme db --lighthouse");
  expect(err).toContain("`agent admin node update acme db --public-ip ADDRESS`");
  const { err: given } = await agent("admin node update acme db --public-ip 203.0.113.5");
  expect(given).not.toContain("no public address");
});

test("a service token says what it may and how it is used; its output is the token alone", async () => {
  const { out, err } = await agent("admin service-token create acme ci");
  expect(out).toMatch(/^\S{43}\n$/);
  expect(err).toContain("It has the role member and the scopes read.");
  expect(err).toContain("agent admin node list acme --api-base URL --access-token-file FILE");
  expect(err).not.toContain(out.trim());
  for (const [words, line] of [
    ["policy --scope webhooks", "agent admin rule list acme"],
    ["webhooks --role admin", "agent admin webhook list acme"],
  ] as const) {
    const { err: other } = await agent(`admin service-token create acme t-${line.length} --scope ${words}`);
    expect(other).toContain(line);
    expect(other).not.toContain("node list");
  }
  // Only admins may read or change webhooks.
  const { status, err: refused } = await agent("admin service-token create acme useless --scope webhooks");
  expect(status).toBe(1);
  expect(refused).toContain("Create one with the role admin.");
  expect((await agent("admin service-token list acme")).out).not.toContain("useless");
});

test.each([
  ["admin name create acme www", "Missing --to NODE: The node that the alias names"],
  ["admin token create acme --machines 10", 'Did you mean "--uses"?'],
  ["admin events acme --limit 3", 'Did you mean "--lines"?'],
  ["admin webhook create acme https://example.org/x --event nodes.gone", "node.*"],
  ["admin rule create acme --protocol tcp --port 22", 'Did you mean "--ports"?'],
] as const)("agent %s: %s", async (line, sentence) => {
  const { status, err } = await agent(line);
  expect(status).not.toBe(0);
  expect(err).toContain(sentence);
});

test("events of a family are found by its name alone", async () => {
  const { out } = await agent("admin events acme --type node");
  expect(out).toContain("node.created");
  expect(out).not.toContain("group.created");
});

test("an organization that was made on the data says that it has no owner", async () => {
  const { err } = await runAdmin(data, ["org", "create", "lone", "--network", "10.78.0.0/16"]);
  expect(err).toContain(
    `It has no owner yet: \`agent admin member create lone EMAIL --role owner --data-dir ${data}\``,
  );
  const owned = ["org", "create", "owned", "--network", "10.79.0.0/16", "--owner", "ada@example.org"];
  expect((await runAdmin(data, owned)).err).not.toContain("no owner");
});

test("a backup names the key that it needs", async () => {
  const { out } = await runAdmin(data, ["backup", join(directory, "backup.db")]);
  expect(out).toContain(`Keep a copy of ${join(data, "secret.key")} in another place.`);
});

test("what works only on the data names it, too, before it changes something", async () => {
  const file = join(directory, "other.db");
  await runAdmin(data, ["backup", file]);
  const elsewhere = join(directory, "elsewhere");
  mkdirSync(elsewhere, { mode: 0o700 });
  cpSync(join(data, "secret.key"), join(elsewhere, "secret.key"));
  for (const [place, words, input] of [
    [elsewhere, ["restore", file]],
    [elsewhere, ["key", "rotate"]],
    [data, ["user", "password", "bob@example.org", "--password-file", "-"], "correct horse battery"],
    [data, ["user", "reset-factors", "bob@example.org"]],
  ] as const) {
    const { status, err } = await runAdmin(place, [...words, "--verbose"], input);
    expect([words.join(" "), status, err]).toEqual([
      words.join(" "),
      0,
      expect.stringContaining(`On the local data in ${place}:`),
    ]);
    expect((await runAdmin(place, [...words, "--dry-run"], input)).err).not.toContain("On the local data");
  }
});

test("--dry-run says what would be revoked or changed, on local data and at a server", async () => {
  for (const [words, sentence] of [
    ["node revoke acme web", /^Would revoke node web \(10\.77\.0\.\d+\) and block its certificates$/m],
    ["rule delete acme 1", /^Would delete rule 1$/m],
    ["org delete acme", /^Would delete organization acme and revoke all its nodes$/m],
    ["group create acme more", /^Not checked: whether the control plane refuses /m],
    ["group create acme more", /^Would create group of acme: name more$/m],
    ["node update acme web --add-group webs", /^Would change node \d+ of acme: set groups webs$/m],
    ["org update acme --path-reports off", /^Would change organization acme: set path reports false$/m],
    ["alarm test acme", /^Would send a test alarm to the webhooks of acme that get alarms$/m],
    ["webhook send-again acme 1 16", /^Would send delivery 16 of webhook 1 again$/m],
    ["ca rotate acme --pause", /^Would carry out ca rotate of acme: action pause, now false$/m],
  ] as const) {
    const dry = [...words.split(" "), "--dry-run"];
    const here = await runAdmin(data, dry);
    expect([words, here.status, here.err]).toEqual([words, 0, expect.stringMatching(sentence)]);
    expect((await agent(`admin ${dry.join(" ")}`)).err).toMatch(sentence);
    expect((await runAdmin(data, [...dry, "--json"])).err).toBe("");
  }
  expect((await agent("admin node show acme web")).out).toContain("pending");
});

test("an alarm that goes nowhere is a failure, and the first receiver can be added on the data", async () => {
  const none = await runAdmin(data, ["alarm", "test", "acme"]);
  expect([none.status, none.err]).toEqual([
    1,
    expect.stringMatching(
      /No webhook of acme gets alarms\nCreate one: `agent admin webhook create acme mailto:/m,
    ),
  ]);
  expect((await agent("admin alarm show acme 0")).err).toContain('"0" is not an alarm\'s number.');
  expect((await agent("admin alarm show acme 7")).err).toContain(
    "`agent admin alarm list acme` lists what there is.",
  );
  const overApi = await agent("admin webhook create acme mailto:admin@example.org");
  expect([overApi.status, overApi.err]).toEqual([
    1,
    expect.stringContaining("its operator gives smtp-url in its settings"),
  ]);
  const made = await runAdmin(data, ["webhook", "create", "acme", "mailto:admin@example.org"]);
  expect([made.status, made.err]).toEqual([
    0,
    expect.stringContaining("Unless the control plane has smtp-url in its settings, deliveries fail."),
  ]);
  const moved = await runAdmin(data, ["webhook", "update", "acme", "1", "--url", "mailto:ops@example.org"]);
  expect([moved.status, moved.err]).toEqual([0, expect.stringContaining("smtp-url")]);
  expect((await runAdmin(data, ["alarm", "test", "acme"])).out).toBe(
    "A test alarm goes to 1 webhook of acme\n",
  );
});

test("a rule that is there already, and a group that a node is not in, are said", async () => {
  const words = "admin rule create acme --protocol tcp --ports 443 --target group:webs";
  expect((await agent(words)).err).not.toContain("permits the same");
  const { status, out, err } = await agent(`${words} --description again`);
  const [, id] = /^Created rule (\d+)$/m.exec(out) ?? [];
  expect(status).toBe(0);
  expect(err).toContain(`Rule ${Number(id) - 1} permits the same already`);
  expect(err).toContain(`\`agent admin rule delete acme ${id}\``);
  const other = await agent(words.replace("443", "444"));
  expect(other.err).not.toContain("permits the same");
  const removed = await agent("admin node update acme web --remove-group wbe --remove-subnet 192.0.2.0/24");
  expect(removed.err).toContain("web was not in the group wbe\nweb had no subnet 192.0.2.0/24\n");
  const fine = await agent("admin node update acme web --add-group more --remove-group webs");
  expect([fine.status, fine.err]).toEqual([0, expect.not.stringContaining("was not in")]);
  await must("admin node update acme web --add-group webs");
});

test("a rule that is changed keeps its number and what is not named; nothing to change is said", async () => {
  const { out } = await agent(
    "admin rule create acme --protocol tcp --ports 5000 --target group:webs --description shop",
  );
  const [, id = ""] = /^Created rule (\d+)$/m.exec(out) ?? [];
  const changed = await agent(`admin rule update acme ${id} --ports 5001 --peer node:web --json`);
  expect([changed.status, JSON.parse(changed.out)]).toEqual([
    0,
    expect.objectContaining({
      id: Number(id),
      ports: "5001",
      target: { group: "webs" },
      description: "shop",
    }),
  ]);
  expect(await agent(`admin rule update acme ${id}`)).toMatchObject({
    status: 2,
    err: expect.stringContaining("Say what to change"),
  });
  const wrong = await agent(`admin rule update acme ${id} --protocol icmp`);
  expect([wrong.status, wrong.err]).toEqual([1, expect.stringContaining("ICMP has no ports: enter any.")]);
});

test.each([
  ["rule update acme 999 --ports 1", "There is no such rule.\n`agent admin rule list acme` lists"],
  ["rule delete acme 999", "There is no such rule.\n`agent admin rule list acme` lists"],
  ["token revoke acme 999", "There is no such token.\n`agent admin token list acme` lists"],
  ["token revoke acme lost", "There is no token lost\n`agent admin token list acme` lists"],
  ["service-token revoke acme 999", "`agent admin service-token list acme` lists"],
  ["webhook delete acme 999", "There is no such webhook.\n`agent admin webhook list acme` lists"],
  ["name delete acme lost", "There is no alias lost\n`agent admin name list acme` lists"],
  ["domain delete acme lost.example", "`agent admin domain list acme` lists"],
  ["oidc delete lost", "`agent admin oidc list` lists"],
] as const)("agent admin %s names the command that lists them", async (line, sentence) => {
  const { status, err } = await agent(`admin ${line}`);
  expect([status, err]).toEqual([1, expect.stringContaining(sentence)]);
});

test("a forgotten first word is seen by how the others were taken", async () => {
  const { status, err } = await agent("admin policy plan p2.yaml");
  expect(status).toBe(2);
  expect(err).toContain("Missing FILE: The policy: YAML or JSON, - for standard input\n");
  expect(err).toContain('Taken as ORG "p2.yaml". The words are ORG FILE.');
});

test("overrides of all nodes at once name the command that tries them on one node first, and back", async () => {
  const overrides = '{"tun":{"mtu":1400}}';
  const { err } = await agent("admin org update acme --config-overrides -", overrides);
  expect(err).toContain("`agent admin rollout create acme --settings FILE`");
  const refused = await agent("admin rollout create acme --settings -", "{}");
  expect(refused.err).toContain("`agent admin org update acme --config-overrides FILE`");
  expect((await agent("admin org update acme --name Acme")).err).not.toContain("--settings");
});

test("a webhook to an address that is not public is warned of on local data, and refused by a server", async () => {
  const warning =
    "Unless the control plane allows this network, deliveries fail: The address must be public.";
  for (const words of [
    ["create", "acme", "http://192.0.2.5/hook"],
    ["update", "acme", "1", "--url", "https://10.0.0.7/hook"],
  ]) {
    const { status, err } = await runAdmin(data, ["webhook", ...words]);
    expect([words.join(" "), status, err]).toEqual([words.join(" "), 0, expect.stringContaining(warning)]);
  }
  const plain = await runAdmin(data, ["webhook", "create", "acme", "http://9.9.9.9/hook"]);
  expect(plain.err).toContain("deliveries fail: The URL must begin with https://.");
  const { err } = await runAdmin(data, ["webhook", "create", "acme", "https://9.9.9.9/hook"]);
  expect(err).not.toContain("deliveries fail");
  const refused = await agent("admin webhook create acme http://192.0.2.5/hook");
  expect([refused.status, refused.err]).toEqual([1, expect.stringContaining("The address must be public.")]);
});

test("a change on local data that fails prints its reason once; --verbose shows where", async () => {
  using database = new Database(join(data, "control.db"));
  database.run(
    "CREATE TRIGGER failing BEFORE INSERT ON node_groups BEGIN SELECT RAISE(ABORT, 'table is broken'); END",
  );
  const create = (...flags: string[]) => runAdmin(data, ["group", "create", "acme", "late", ...flags]);
  const failed = await create();
  const verbose = await create("--verbose");
  database.run("DROP TRIGGER failing");
  expect(failed).toEqual({ status: 1, out: "", err: "agent: Cannot finish the command: table is broken\n" });
  expect(verbose.err).toContain("Request failed");
});
