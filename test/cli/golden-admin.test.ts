// Golden files of the JSON documents of `serve` and of each admin command.
// To accept a change: GOLDEN=write bun test test/cli/golden-admin.test.ts

import { afterAll, expect, test } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Database } from "bun:sqlite";
import * as v from "valibot";
import { adminCommands } from "../../src/cli/admin/admin.ts";
import { runAdmin } from "../support/admin.ts";
import { documentOf, expectGolden } from "../support/golden.ts";
import { startHostileProvider } from "../support/hostile-provider.ts";
import { serveHere } from "../support/in-process.ts";
import { sealNamespace } from "../../src/protocol/seals/seal.ts";
import { makeSshKey, sshSign } from "../support/ssh-keys.ts";
import { makeKeys } from "../support/nodes.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const umask = process.umask();
const directory = temporaryDirectory();
const place = directory.path;
const data = join(place, "data");
const password = "correct horse battery";
afterAll(() => {
  directory[Symbol.dispose]();
  process.umask(umask);
});

test("JSON document of serve: its first line", async () => {
  const main = join(import.meta.dir, "../../src/main.ts");
  const where = ["--listen", "127.0.0.1:0", "--data-dir", data];
  const child = Bun.spawn([process.execPath, main, "serve", "--json", ...where], {
    env: {},
    stdin: "ignore",
    stderr: "ignore",
  });
  let stdout = "";
  for await (const chunk of child.stdout) {
    stdout += new TextDecoder().decode(chunk);
    if (stdout.endsWith("\n")) child.kill("SIGTERM");
  }
  expectGolden("serve.txt", documentOf(["serve"], { stdout, status: await child.exited, place }));
});

const documents: string[] = [];
const noted = new Set<string>();
async function note(
  line: string,
  { input, at = data }: { input?: string; at?: string } = {},
): Promise<unknown> {
  const words = line.split(" ");
  const { out, status } = await runAdmin(at, [...words, "--json"], input);
  const names = Object.keys(adminCommands).filter((name) => `admin ${line} `.startsWith(`${name} `));
  for (const name of names) noted.add(name);
  documents.push(
    documentOf(["admin", ...words], { stdout: out, status, place, fromFile: input !== undefined }),
  );
  return JSON.parse(out);
}

async function notePeople(): Promise<void> {
  await note("user create ada@example.org --staff --password-file - --dry-run", { input: password });
  await note("user create ada@example.org --staff --password-file -", { input: password });
  await note("user create ada@example.org --password-file -", { input: password });
  await note("user create bob@example.org --password-file -", { input: password });
  await note("user password bob@example.org --password-file -", { input: "another good password" });
  await note("user disable bob@example.org");
  await note("user list");
  await note("user enable bob@example.org");
  await note("org create acme --network 10.77.0.0/16 --owner ada@example.org");
  await note("org create beta --network 10.78.0.0/16 --network6 fd00:78::/64 --certificate-version 2");
  await note("org update acme --name Acme --ca-rotation manual");
  await note("org list");
  await note("org show acme");
  await note("org delete beta");
  await note("org delete beta --confirm beta");
  await note("member create acme bob@example.org --role admin");
  await note("member create acme eve@example.org");
  await note("member list acme");
  await note("invitation create acme joan@example.org");
  await note("invitation list acme");
  await note("invitation delete acme joan@example.org");
  await makeTokens("bob@example.org", "another good password");
  await note("member update acme bob@example.org --role member");
  await note("member delete acme bob@example.org");
  await note("token revoke acme 1 --service");
  await note("user disable bob@example.org --revoke-tokens");
}

/** One token of each kind, through the API: tokens that commands create belong to no user. */
async function makeTokens(email: string, secret: string): Promise<void> {
  const serving = await serveHere(data);
  const post = async (path: string, body: object, token?: string) => {
    const headers = {
      "Content-Type": "application/json",
      ...(token === undefined ? {} : { Authorization: `Bearer ${token}` }),
    };
    const answer = await fetch(serving.url + path, { method: "POST", headers, body: JSON.stringify(body) });
    expect(answer.ok).toBe(true);
    return answer.json();
  };
  const signedIn = await post("/api/token/", { email, password: secret });
  const { access } = v.parse(v.object({ access: v.string() }), signedIn);
  await post("/api/org/acme/registration_tokens/", { uses: 2 }, access);
  await post("/api/org/acme/service_tokens/", { name: "ci", role: "admin" }, access);
  await serving.stop();
}

async function noteNodes(): Promise<void> {
  await note("group create acme web --description servers");
  await note("group create acme db");
  await note("group list acme");
  await note("group update acme db --description databases");
  await note("group delete acme db");
  await note("node create acme laptop --group web");
  await note("node create acme phone --ip-address 10.77.0.9");
  await note("node list acme");
  await note("node show acme laptop");
  await note("node show acme nothing");
  await note("node update acme phone --config-overrides -", { input: '{"tun":{"mtu":1400}}' });
  await note("node rename acme phone mobile");
  await note("node update acme mobile --name phone --add-group web --add-subnet 192.0.2.0/24 --relay");
  await note("node update acme phone --remove-group web --remove-subnet 192.0.2.0/24 --no-relay");
  await note("node transfer acme phone --to ada@example.org");
  await note("node revoke acme phone --reason lost");
  await note("node restore acme phone");
  await note("node renew acme phone");
  await note("token create acme --uses 3 --expires 2h --group web --lighthouse --name ci");
  const made = await note("token create acme --node laptop");
  await register("laptop", v.parse(v.object({ token: v.string() }), made).token);
  await note("node show acme laptop");
  await note("token list acme");
  await note("token create acme --ephemeral --silence 2m --group web");
  await note("token revoke acme 2");
  await note("token create acme --node tablet");
  await note("rule create acme --protocol tcp --ports 443 --peer group:web --target node:laptop");
  await note("rule create acme --peer 192.0.2.0/24 --description office");
  await note("rule list acme");
  await note("rule update acme 1 --description echo");
  await note("rule delete acme 1");
  await note("name create acme files --to laptop");
  await note("name create acme laptop --to laptop");
  await note("name list acme");
  await note("name delete acme files");
  await note("name delete acme files");
  await note("org update acme --path-reports off --names all");
  await note("org update acme --path-reports on --names rules");
  await note("path list acme --node laptop --probe broken");
  await note("flow list acme");
  await note("org update acme --flows on");
  await note("flow list acme --since 24h");
  await note("policy propose acme");
  await note("org update acme --flows off");
  await note("relay limit acme phone 500GB");
  await note("node update acme phone --relay --public-ip 203.0.113.9");
  await note("relay limit acme phone 500GB");
  await note("relay list acme");
  await note("route create acme 192.168.7.0/24 --via phone --via laptop --metric 50");
  await note("route create acme 192.168.7.0/24");
  await note("route list acme");
  await note("route show acme 192.168.7.0/24");
  await note("route show acme 192.168.9.0/24");
  await note("route update acme 192.168.7.0/24 --via phone --maintenance");
  await note("route update acme 192.168.7.0/24");
  await note("route delete acme 192.168.7.0/24 --via phone");
  await note("route delete acme 192.168.7.0/24");
  await note("service-token create acme reader --role member --expires 90d");
  await note("service-token list acme");
  await note("service-token revoke acme reader");
  await note("alarm test acme");
  new Database(join(data, "control.db")).run(
    `INSERT INTO alarms (org_id, kind, heads, rest, title, text, since, raised_at)
      SELECT id, 'node', '["1"]', '[]', 'The node laptop is away', 'Since noon.', created_at, created_at FROM organizations
      WHERE slug = 'acme'`,
  );
  await note("alarm list acme");
  await note("alarm show acme 1");
  await note("webhook create acme http://127.0.0.1:9/hook");
  await note("webhook create acme https://9.9.9.9/hook --event node.*");
  await note("webhook list acme");
  await note("webhook update acme 1 --event *");
  await note("webhook deliveries acme 1");
  await note("webhook send-again acme 1 1");
  await note("webhook delete acme 1");
  await note("node create acme short");
  await note("node delete acme short");
  await note("events acme --lines 2");
}

/** What concerns the own sign-in is refused to the operator; test/cli/admin-remote.test.ts has it signed in. */
async function noteSignIn(): Promise<void> {
  await note("session list");
  await note("session revoke 1");
  await note("factor list");
  await note("factor add --code 123456");
  await note("factor remove");
  await note("factor codes");
  await using provider = await startHostileProvider();
  await note(`oidc create Company ${provider.issuer} --client-id agent --role vpn=acme:member`);
  await note("oidc list");
  await note("oidc update Company --users create --domain example.org");
  await note("oidc delete Company");
  await note("domain create acme domain.invalid");
  await note("domain list acme");
  await note("domain check acme domain.invalid");
  await note("domain vouch acme domain.invalid");
  await note("domain delete acme domain.invalid");
  await note("factor staff required");
  await note("factor staff optional");
  await note("user reset-factors ada@example.org");
}

async function notePolicy(): Promise<void> {
  const policy =
    "groups: {web: {members: [node:laptop]}, ops: {}}\nrules:\n  - {peer: group:ops, target: group:web}\n";
  await note("policy plan acme -", { input: policy });
  await note("policy apply acme - --prune --confirm 10m", { input: policy });
  await note("policy revert acme");
  await note("policy apply acme - --confirm 10m", { input: policy });
  await note("policy confirm acme");
  await note("policy get acme");
  await note("policy test acme");
  await note("policy test acme laptop laptop icmp");
  await note("policy update acme --by-file on");
  await note("policy update acme --by-file off");
  const acl =
    '{"groups": {"group:ops": ["a@example.org"]}, "acls": [{"action": "accept", "src": ["group:ops"], "dst": ["*:22"]}]}';
  await note("policy import --from headscale -", { input: acl });
}

async function noteSeal(): Promise<void> {
  const key = makeSshKey(join(place, "signer"));
  const secret = { input: "a long passphrase" };
  await note(`seal ca acme ${join(place, "offline.key")} --passphrase-file -`, secret);
  await note("seal pending acme");
  await note(
    `seal sign acme --ca ${join(place, "offline.key")} --key ${key.file} --records ${place} --dry-run`,
  );
  await note("seal show acme");
  const made = await note(`seal init acme --observe --signer ${key.file}.pub`);
  const { text } = v.parse(v.object({ text: v.string() }), made);
  const file = join(place, "acme.seal");
  writeFileSync(file, text);
  writeFileSync(`${file}.sig`, sshSign(key.file, Buffer.from(text), sealNamespace));
  const { hash } = v.parse(v.object({ hash: v.string() }), await note(`seal publish acme ${file}`));
  await note("seal show acme");
  await note("rule create acme --ports 22 --protocol tcp --peer group:ops");
  await note(`seal review acme --known ${hash}`);
  await note("seal forget acme --yes --dry-run");
  await note("seal forget acme --yes");
}

async function noteApproval(): Promise<void> {
  await note("org update acme --approval all");
  const made = await note("token create acme --uses 2 --approved");
  const { token } = v.parse(v.object({ token: v.string() }), made);
  for (const name of ["scanner", "printer"]) await register(name, token, 202);
  await note("registration list acme");
  await note("registration approve acme 1");
  await note("registration list acme --approved");
  await note("registration refuse acme 2");
  await note("registration refuse acme printer");
  await note("registration refuse acme 1 --approved");
  await note("org update acme --approval none");
}

/** Like a machine. */
/** `permits`: root of its machine permits updates of the engine, which is 1.11.1. */
async function register(name: string, token: string, status = 201, permits = false): Promise<void> {
  const serving = await serveHere(data);
  const answer = await fetch(`${serving.url}/api/org/acme/nodes/register/`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ name, ...(await makeKeys(name)), registration_token: token }),
  });
  expect(answer.status).toBe(status);
  if (permits) {
    const made = v.parse(
      v.object({ node: v.object({ id: v.number() }), api_token: v.string() }),
      await answer.json(),
    );
    const updates = { may: ["engine"], order: 0, zone: 0 };
    await fetch(`${serving.url}/api/org/acme/nodes/${made.node.id}/checkin/`, {
      method: "POST",
      headers: { "Content-Type": "application/json", Authorization: `Bearer ${made.api_token}` },
      body: JSON.stringify({ version: "0.2.0", uptime: 1, overlay_version: "1.11.1", updates }),
    });
  }
  await serving.stop();
}

async function noteRollouts(): Promise<void> {
  await note("rollout create acme --engine 1.12.0");
  const made = v.parse(v.object({ token: v.string() }), await note("token create acme"));
  await register("kiosk", made.token, 201, true);
  // The second hours always hold: what the ring waits for must not depend on the time of the test.
  await note("rollout create acme --engine 1.12.0 --hours sat,sun:22-5 --hours 0-24 --watch 1h");
  await note("rollout list acme");
  await note("rollout show acme");
  await note("rollout pause acme 1");
  await note("rollout resume acme 1");
  await note("rollout abort acme 1");
}

async function noteDrills(): Promise<void> {
  await note("drill show acme");
  await note("drill abort acme");
  await note("drill relay-away acme");
  await note("drill lighthouse-away acme --for 5s");
  await note("drill control-plane-away acme --for 20m");
}

async function noteData(): Promise<void> {
  const elsewhere = join(place, "elsewhere");
  await note("ca show acme");
  await note("ca rotate acme");
  await note("ca rotate acme --pause");
  await note("ca rotate acme --resume");
  await note("ca rotate acme --rollback");
  await note("ca rotate acme --rollback");
  await note("key rotate");
  await note("audit verify");
  await note(`policy get acme --at 0s --report ${place}/report`);
  await note("policy test acme any laptop tcp/443 --at 0s");
  const nodeConfig = join(place, "report.json");
  const [report = ""] = readFileSync(join(place, "report"), "utf8").split("\n");
  writeFileSync(nodeConfig, JSON.stringify(v.parse(v.looseObject({}), JSON.parse(report))));
  await note(`audit verify-report ${place}/report --key ${nodeConfig}`);
  await note("server list");
  await note("clock confirm");
  await note(`export acme ${place}/plain --passphrase-file - --dry-run`, { input: "a long passphrase" });
  await note(`export acme ${place}/plain --passphrase-file -`, { input: "a long passphrase" });
  await note(`import acme ${place}/plain --passphrase-file -`, { input: "a long passphrase", at: elsewhere });
  const made = v.parse(v.object({ token: v.string() }), await note("token create acme"));
  await register("plotter", made.token);
  await note("diff acme plotter");
  await noteRollouts();
  await noteDrills();
  await note(`backup ${place}/backup.db --dry-run`);
  await note(`backup ${place}/backup.db`);
  await note(`restore ${place}/backup.db`);
  await note("node revoke acme laptop");
  await note(`restore ${place}/backup.db --replace`);
}

test("JSON documents of every admin command", async () => {
  await notePeople();
  await noteNodes();
  await noteApproval();
  await notePolicy();
  await noteSeal();
  await noteSignIn();
  await noteData();
  expect([...noted].sort()).toEqual(Object.keys(adminCommands).sort());
  expectGolden("admin.txt", documents.join("\n"));
  // A hundred commands: 10 seconds on an idle machine.
}, 120_000);
