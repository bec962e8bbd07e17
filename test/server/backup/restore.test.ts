// `agent admin restore` never grants more than before the restore.

import { Database as Sqlite } from "bun:sqlite";
import { expect, test } from "bun:test";
import { readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { decodeBundle } from "../../../src/pki/bundle.ts";
import { fingerprint } from "../../../src/pki/nebula.ts";
import { hashToken } from "../../../src/pki/opaque.ts";
import { DownloadAnswer } from "../../../src/protocol/download.ts";
import { paths } from "../../support/paths.ts";
import type { RegisterAnswer } from "../../../src/protocol/registration.ts";
import { makeKeys } from "../../support/nodes.ts";
import { until } from "../../support/until.ts";
import {
  admin,
  checkin,
  json,
  must,
  password,
  place,
  populate,
  post,
  register,
  serve,
  signIn,
  stop,
  useControlPlane,
} from "../../support/restoring.ts";

useControlPlane();

const send = (url: string, method: string, path: string, token: string, body?: unknown) =>
  fetch(url + path, {
    method,
    headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });

async function download(url: string, { node, api_token }: RegisterAnswer): Promise<DownloadAnswer> {
  const answer = await send(url, "GET", paths.downloadConfig("acme", node.id), api_token);
  expect(answer.status).toBe(200);
  return v.parse(DownloadAnswer, await answer.json());
}

function certificateIn(bundle: string) {
  const [certificate] = decodeBundle(bundle);
  if (certificate === undefined) throw new Error("There is no certificate");
  return certificate;
}
const printOf = (bundle: string) => fingerprint(certificateIn(bundle));

/** Reads a database that no server uses. */
function rows(sql: string): unknown[] {
  using sqlite = new Sqlite(join(place.data, "control.db"));
  return sqlite.query(sql).all();
}
const lastEvent = async (url: string, token: string) =>
  v
    .parse(
      v.array(v.object({ id: v.number() })),
      await (await send(url, "GET", "/api/org/acme/events/?limit=1000", token)).json(),
    )
    .at(-1)?.id ?? 0;

test("after the loss of a database, ids and addresses given since the backup are not given again", async () => {
  const { url, token } = await populate();
  await must(`backup ${place.backup}`);
  const c = await register(url, "c", token);
  await must("user create eve@example.org --password-file -", place.data, password);
  const eve = await signIn(url, "eve@example.org");
  const event = await lastEvent(url, await signIn(url));
  await stop();
  for (const end of ["", "-wal", "-shm"]) rmSync(join(place.data, `control.db${end}`), { force: true });
  await must(`restore ${place.backup}`);

  const again = await serve();
  await must("user create mallory@example.org --staff --password-file -", place.data, password);
  expect((await send(again.url, "GET", "/api/org/", eve)).status).toBe(401);
  expect((await register(again.url, "d", token)).node.id).toBeGreaterThan(c.node.id);
  // Also for a table that was empty at the backup.
  const ada = await signIn(again.url);
  const events = await lastEvent(again.url, ada);
  expect(events).toBeGreaterThan(event + 1000);
  const made = await send(again.url, "POST", "/api/org/acme/service_tokens/", ada, {
    name: "ci",
    role: "member",
  });
  expect(made.status).toBe(201);
  await must("audit verify");
  await stop();
  const [first] = v.parse(v.array(v.object({ id: v.number() })), rows("SELECT id FROM service_tokens"));
  expect(first?.id).toBeGreaterThan(1000);
}, 120_000);

test("a certificate issued after the backup is blocked with its node, and lost nodes register again", async () => {
  const { url, token, a, b, keys } = await populate();
  const applied = { version: "1", uptime: 1, config_version: b.config.config_version };
  expect((await post(url, paths.checkin("acme", b.node.id), applied, b.api_token)).status).toBe(200);
  // The report is written within a second.
  const Applied = v.object({ applied_config_version: v.nullable(v.number()) });
  await until(async () => v.parse(Applied, await json("node show acme b")).applied_config_version);
  await must(`backup ${place.backup}`);
  const renewal = await send(url, "POST", paths.renewCert("acme", b.node.id), await signIn(url), {});
  expect(renewal.status).toBe(200);
  const renewed = await register(url, "b", token, keys);
  const prints = [b, renewed].map(({ config }) => printOf(config.files["host.crt"] ?? ""));
  expect(new Set(prints).size).toBe(2);
  const keysOfC = await makeKeys("c");
  const c = await register(url, "c", token, keysOfC);
  await stop();
  expect(await json(`restore ${place.backup} --replace`)).toMatchObject({
    revoked_nodes: 0,
    lost_nodes: ["c"],
    register_again: ["acme/c"],
    authorities_lost: [],
  });

  const again = await serve();
  expect((await checkin(again.url, c)).status).toBe(401);
  const before = (await download(again.url, a)).files["config.yml"];
  expect(before).toContain(printOf(c.config.files["host.crt"] ?? ""));
  for (const print of prints) expect(before).not.toContain(print);
  // The backup knows older files than the nodes have.
  const diff = await fetch(`${again.url}/api/org/acme/nodes/${b.node.id}/diff/`, {
    headers: { Authorization: `Bearer ${await signIn(again.url)}` },
  });
  expect(await diff.json()).toMatchObject({ is_known: false, changes: [] });
  // The newest certificate is still current.
  expect(printOf((await download(again.url, renewed)).files["host.crt"])).toBe(prints[1] ?? "");
  // Other nodes may still grant the name the rights of the node that was created after the backup.
  const byName = { name: "c", ...keysOfC, registration_token: token };
  const refused = await post(again.url, paths.register("acme"), byName);
  expect([refused.status, await refused.json()]).toEqual([
    409,
    expect.objectContaining({ code: "name_held" }),
  ]);
  const bound = v.parse(v.object({ token: v.string() }), await json("token create acme --node c"));
  const next = await register(again.url, "c", bound.token, keysOfC);
  expect([next.node.id, next.node.ip_address]).not.toContain(c.node.id);
  expect(next.node.ip_address).not.toBe(c.node.ip_address);
  const bundle = next.config.files["host.crt"] ?? "";
  expect((await download(again.url, a)).files["config.yml"]).not.toContain(printOf(bundle));

  await must("node revoke acme b");
  const after = (await download(again.url, a)).files["config.yml"];
  for (const print of prints) expect(after).toContain(print);
}, 120_000);

test("a name that became free after the backup is held, also if it was held at the backup", async () => {
  const { url, token, a, b } = await populate();
  // The other nodes wait for this one.
  await register(url, "peer", token);
  const remove = async (at: string, { node }: RegisterAnswer) => {
    const answer = await send(at, "DELETE", paths.node("acme", node.id), await signIn(at));
    expect(answer.status).toBe(204);
  };
  const rename = await send(url, "PATCH", paths.node("acme", a.node.id), await signIn(url), {
    name: "former",
  });
  expect(rename.status).toBe(200);
  await must(`backup ${place.backup}`);
  await remove(url, a);
  await remove(url, b);
  await stop();
  await json(`restore ${place.backup} --replace`);
  const again = await serve();
  for (const name of ["a", "former", "b"]) {
    const body = { name, ...(await makeKeys()), registration_token: token };
    const answer = await post(again.url, paths.register("acme"), body);
    expect([name, answer.status, await answer.json()]).toEqual([
      name,
      409,
      expect.objectContaining({ code: "name_held" }),
    ]);
  }
}, 120_000);

test("a node has at most its groups of before the restore, and a valid certificate", async () => {
  const { url, a, b } = await populate();
  const ada = await signIn(url);
  const give = async (at: string, { node }: RegisterAnswer, groups: string[]) => {
    const token = await signIn(at);
    expect((await send(at, "PATCH", paths.node("acme", node.id), token, { groups })).status).toBe(200);
  };
  for (const name of ["web", "db"]) {
    expect((await send(url, "POST", "/api/org/acme/groups/", ada, { name })).status).toBe(201);
  }
  const setNames = async (is_name_server: boolean) =>
    expect((await send(url, "PATCH", paths.node("acme", a.node.id), ada, { is_name_server })).status).toBe(
      200,
    );
  await give(url, a, ["db", "web"]);
  await setNames(true);
  await must(`backup ${place.backup}`);
  await give(url, a, ["web"]);
  await setNames(false);
  // The old certificate of a is blocked when a has confirmed the new one.
  const { config_version } = await download(url, a);
  await post(
    url,
    paths.checkin("acme", a.node.id),
    { version: "1", uptime: 1, config_version, confirmed_config_version: config_version },
    a.api_token,
  );
  await give(url, b, ["db"]);
  const gained = printOf((await download(url, b)).files["host.crt"]);
  await stop();
  await must(`restore ${place.backup} --replace`);

  const again = await serve();
  const ofA = await download(again.url, a);
  expect(await json("node show acme a")).toMatchObject({ is_name_server: false });
  expect([ofA.node.groups, certificateIn(ofA.files["host.crt"]).groups]).toEqual([["web"], ["web"]]);
  expect(ofA.files["config.yml"]).not.toContain(printOf(ofA.files["host.crt"]));
  const ofB = await download(again.url, b);
  expect([ofB.node.groups, certificateIn(ofB.files["host.crt"]).groups]).toEqual([[], []]);
  await stop();
  expect(
    rows(`SELECT state, block_after > 0 AS ends FROM certificates WHERE fingerprint = '${gained}'`),
  ).toEqual([{ state: "former", ends: 1 }]);
}, 120_000);

test("a node gets a new certificate if the CA of its current one is lost", async () => {
  const { url, token, b, keys } = await populate();
  await must(`backup ${place.backup}`);
  const renewed = await register(url, "b", token, keys);
  await stop();
  {
    using sqlite = new Sqlite(join(place.data, "control.db"));
    sqlite.run(
      `INSERT INTO authorities (org_id, kind, fingerprint, certificate, private_key_sealed, state, not_before, not_after, created_at)
       SELECT org_id, kind, 'another', certificate, private_key_sealed, 'next', not_before, not_after, created_at
       FROM authorities WHERE kind = 'overlay'`,
    );
    sqlite.run(
      "UPDATE certificates SET authority_id = last_insert_rowid() WHERE state = 'current' AND kind = 'overlay'",
    );
  }
  const restored = await admin(`restore ${place.backup} --replace`);
  expect(restored).toMatchObject({ status: 0, out: expect.stringContaining("agent admin ca rotate acme") });
  const again = await serve();
  expect(printOf((await download(again.url, renewed)).files["host.crt"])).not.toBe(
    printOf(b.config.files["host.crt"] ?? ""),
  );
}, 120_000);

test("the replaced database decides which certificate of a node is current", async () => {
  const { url, token, b, keys } = await populate();
  await must(`backup ${place.backup}`);
  const lost = await register(url, "b", token, keys);
  const later = join(place.path, "later.db");
  await must(`backup ${later}`);
  await stop();
  for (const end of ["", "-wal", "-shm"]) rmSync(join(place.data, `control.db${end}`), { force: true });
  await must(`restore ${place.backup}`);
  const second = await serve();
  // Two certificates of the same second with the same content are equal.
  await Bun.sleep(1100);
  const present = await register(second.url, "b", token, keys);
  await stop();
  await must(`restore ${later} --replace`);

  const again = await serve();
  expect((await checkin(again.url, lost)).status).toBe(401);
  const { files } = await download(again.url, present);
  expect(decodeBundle(files["host.crt"]).map(fingerprint)).toEqual([
    printOf(present.config.files["host.crt"] ?? ""),
  ]);
  await must("node revoke acme b");
  await stop();
  expect(
    rows("SELECT DISTINCT state FROM certificates WHERE kind = 'overlay' AND node_id = " + b.node.id),
  ).toEqual([{ state: "blocked" }]);
}, 120_000);

test("a node that was restored after the backup gets an order that it accepts", async () => {
  const { url, b } = await populate();
  const refusal = async (at: string) => {
    const answer = await checkin(at, b);
    expect(answer.status).toBe(403);
    const { order } = v.parse(v.object({ order: v.string() }), await answer.json());
    const payload: unknown = JSON.parse(Buffer.from(order.split(".")[1] ?? "", "base64url").toString());
    return v.parse(v.object({ action: v.literal("revoke"), seq: v.number() }), payload).seq;
  };
  await must("node revoke acme b");
  await refusal(url);
  await must(`backup ${place.backup}`);
  await must("node restore acme b");
  await stop();
  const second = await serve();
  expect((await checkin(second.url, b)).status).toBe(200);
  await stop();
  const restoredAt = Date.now();
  expect(await must(`restore ${place.backup} --replace`)).toContain(
    "token create ORG --node NAME`: acme/b\n",
  );
  expect(await refusal((await serve()).url)).toBeGreaterThanOrEqual(restoredAt);
}, 120_000);

test("tokens that only the replaced database knows do not count as guesses", async () => {
  const { url, token, b, keys } = await populate();
  const bound = v.parse(v.object({ token: v.string() }), await json("token create acme --node pending"));
  await must("node revoke acme b");
  await must(`backup ${place.backup}`);
  const pending = await register(url, "pending", bound.token, await makeKeys());
  const created = await register(url, "created", token);
  await must("node restore acme b");
  const again = await register(url, "b", token, keys);
  const made = { name: "ci", role: "member" };
  const service = await send(url, "POST", "/api/org/acme/service_tokens/", await signIn(url), made);
  const ofService = v.parse(v.object({ token: v.string() }), await service.json()).token;
  await stop();
  await must(`restore ${place.backup} --replace`);

  const second = await serve();
  for (const node of [pending, created, again]) expect((await checkin(second.url, node)).status).toBe(401);
  expect((await send(second.url, "GET", "/api/org/", ofService)).status).toBe(401);
  expect((await checkin(second.url, b)).status).toBe(403);
  await stop();
  const retired = v.parse(
    v.array(v.object({ hash: v.string() })),
    rows("SELECT token_hash AS hash FROM retired_tokens"),
  );
  const lost = [pending, created, again].map(({ api_token }) => hashToken(api_token));
  expect(retired.map(({ hash }) => hash).sort()).toEqual([...lost, hashToken(ofService)].sort());
}, 120_000);

test("invitations and webhooks that ended after the backup do not come back", async () => {
  const { url } = await populate();
  const ada = await signIn(url);
  for (const name of ["gone", "kept"]) await must(`member create acme ${name}@example.org --role member`);
  const hooks: number[] = [];
  for (const name of ["gone", "moved", "kept"]) {
    const made = await send(url, "POST", "/api/org/acme/webhooks/", ada, {
      url: `https://9.9.9.9/${name}`,
      events: ["node.revoked"],
    });
    hooks.push(v.parse(v.object({ id: v.number() }), await made.json()).id);
  }
  await stop();
  {
    using sqlite = new Sqlite(join(place.data, "control.db"));
    for (const id of hooks) {
      sqlite.run(
        "INSERT INTO deliveries (webhook_id, event_id, next_at, created_at) VALUES (?, 1, 1e15, 1)",
        [id],
      );
    }
  }
  await must(`backup ${place.backup}`);
  const second = await serve();
  const again = await signIn(second.url);
  await must("member delete acme gone@example.org");
  await must("member delete acme bob@example.org");
  const path = (at: number) => `/api/org/acme/webhooks/${hooks[at]}/`;
  expect((await send(second.url, "DELETE", path(0), again)).status).toBe(204);
  const moved = { url: "https://9.9.9.9/elsewhere" };
  expect((await send(second.url, "PATCH", path(1), again, moved)).status).toBe(200);
  // After a second invitation, the first link is invalid.
  await must("member create acme gone@example.org --role member");
  await stop();
  await must(`restore ${place.backup} --replace`);

  expect(rows("SELECT email FROM memberships ORDER BY id")).toEqual([
    { email: "ada@example.org" },
    { email: "kept@example.org" },
  ]);
  expect(
    rows(
      `SELECT w.url, w.deleted_at IS NULL AS lives, d.next_at IS NULL AS ended FROM webhooks w
       JOIN deliveries d ON d.webhook_id = w.id ORDER BY w.id`,
    ),
  ).toEqual([
    { url: "https://9.9.9.9/gone", lives: 0, ended: 1 },
    { url: moved.url, lives: 1, ended: 1 },
    { url: "https://9.9.9.9/kept", lives: 1, ended: 0 },
  ]);
}, 120_000);

test("restore refuses a database that another process uses, and a leftover write-ahead log", async () => {
  const { url, token } = await populate();
  await must(`backup ${place.backup}`);
  await register(url, "c", token);
  await stop();
  const names = () => rows("SELECT name FROM nodes ORDER BY id");
  const before = names();
  {
    using other = new Sqlite(join(place.data, "control.db"));
    other.query("SELECT count(*) FROM nodes").get();
    expect(await admin(`restore ${place.backup} --replace`)).toMatchObject({
      status: 1,
      err: expect.stringContaining("Another process uses"),
    });
  }
  expect(names()).toEqual(before);
  expect(readdirSync(place.data).filter((name) => /restoring|replaced/.test(name))).toEqual([]);
  await must(`restore ${place.backup} --replace`);
  expect(names()).toContainEqual({ name: "c" });

  for (const end of ["", "-wal", "-shm"]) rmSync(join(place.data, `control.db${end}`), { force: true });
  writeFileSync(join(place.data, "control.db-wal"), "another's");
  expect(await admin(`restore ${place.backup}`)).toMatchObject({
    status: 1,
    err: expect.stringContaining("without its database"),
  });
  rmSync(join(place.data, "control.db-wal"));
  await must(`restore ${place.backup}`);
}, 120_000);

test("a CA that was replaced after the backup and is trusted again is reported", async () => {
  await populate();
  await must(`backup ${place.backup}`);
  await must("ca rotate acme");
  await stop();
  expect(await json(`restore ${place.backup} --replace`)).toMatchObject({ authorities_lost: ["acme"] });
}, 120_000);

test("after all staff of a backup was disabled, the restored database says that there is none", async () => {
  await populate();
  await must(`backup ${place.backup}`);
  await must("user create eve@example.org --staff --password-file -", place.data, password);
  await must("user disable ada@example.org");
  await stop();
  expect(await json(`restore ${place.backup} --replace`)).toMatchObject({ staff_missing: true });
  expect(await json("user list")).toMatchObject({
    users: expect.arrayContaining([
      expect.objectContaining({ email: "ada@example.org", is_staff: true, is_active: false }),
    ]),
  });
  expect(await must(`restore ${place.backup} --replace`)).toContain(
    "`agent admin user create EMAIL --staff`",
  );
  await must("user enable ada@example.org");
  expect(await json(`restore ${place.backup} --replace`)).toMatchObject({ staff_missing: false });
}, 120_000);
