import { Database as Sqlite } from "bun:sqlite";
import { afterAll, expect, test } from "bun:test";
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { decodeBundle } from "../../../src/pki/bundle.ts";
import { fingerprint } from "../../../src/pki/nebula.ts";
import { makeHostKey } from "../../../src/pki/keys.ts";
import { paths } from "../../support/paths.ts";
import { RegisterAnswer } from "../../../src/protocol/registration.ts";
import { copyDatabase } from "../../../src/server/store/sqlite/files.ts";
import { openSqlite } from "../../../src/server/store/sqlite/sqlite.ts";
import { fixtureSql } from "../../support/fixture.ts";
import { handMade } from "../../support/hand-made.ts";
import { makeKeys } from "../../support/nodes.ts";
import {
  admin,
  checkin,
  json,
  makeToken,
  must,
  place,
  populate,
  post,
  register,
  serve,
  signIn,
  stop,
  useControlPlane,
} from "../../support/restoring.ts";

const umask = process.umask();
afterAll(() => void process.umask(umask));

useControlPlane();

const nodesOf = async (at: string) =>
  v.parse(v.object({ nodes: v.array(v.unknown()) }), await json("node list acme", at)).nodes;

test("a backup under load is verified, private and without the key; restored elsewhere, nodes continue", async () => {
  const { url, token, a } = await populate();
  let registered = 2;
  const over = new AbortController();
  const load = (async () => {
    for (; !over.signal.aborted; registered++)
      await register(url, `n${registered}`, (await makeToken(1)).token);
  })();
  await Bun.sleep(200);
  const made = await json(`backup ${place.backup}`);
  over.abort();
  await load;
  expect(made).toMatchObject({ file: place.backup, organizations: 1 });
  expect(statSync(place.backup).mode & 0o777).toBe(0o600);
  const bytes = readFileSync(place.backup);
  const key = readFileSync(join(place.data, "secret.key"), "utf8").trim();
  for (const secret of [key, token, "PRIVATE KEY", Buffer.from(key, "base64url")]) {
    expect(bytes.includes(secret)).toBe(false);
  }
  expect(readdirSync(place.path).sort()).toEqual(["backup.db", "data"]);
  expect((await admin(`backup ${place.backup}`)).err).toContain("there is a file already");

  const elsewhere = join(place.path, "elsewhere");
  mkdirSync(elsewhere, { mode: 0o700 });
  expect(await admin(`restore ${place.backup}`, elsewhere)).toMatchObject({
    status: 78,
    err: expect.stringContaining("secret.key"),
  });
  copyFileSync(join(place.data, "secret.key"), join(elsewhere, "secret.key"));
  const restored = v.parse(v.object({ nodes: v.number() }), await json(`restore ${place.backup}`, elsewhere));
  expect((await nodesOf(elsewhere)).length).toBe(restored.nodes);
  expect(restored.nodes).toBeLessThanOrEqual(registered);
  const second = await serve(elsewhere);
  expect((await checkin(second.url, a)).status).toBe(200);
  await register(second.url, "after", (await makeToken()).token).catch(() => undefined);
  await must("audit verify", elsewhere);
}, 120_000);

test("restore refuses an existing database, a running server, another key, and a damaged file", async () => {
  await populate();
  await must(`backup ${place.backup}`);
  expect(await admin(`restore ${place.backup} --replace`)).toMatchObject({
    status: 1,
    err: expect.stringContaining("A server is running"),
  });
  await stop();
  const before = await nodesOf(place.data);
  expect(await admin(`restore ${place.backup}`)).toMatchObject({
    status: 1,
    err: expect.stringContaining("--replace"),
  });

  const other = join(place.path, "other");
  mkdirSync(other, { mode: 0o700 });
  writeFileSync(
    join(other, "secret.key"),
    `${Buffer.from("another key that has 32 bytes ok").toString("base64url")}\n`,
    { mode: 0o600 },
  );
  expect((await admin(`restore ${place.backup}`, other)).status).toBe(78);

  const bytes = readFileSync(place.backup);
  const spoil = async (change: (path: string) => void) => {
    const path = join(place.path, "spoilt.db");
    writeFileSync(path, bytes);
    change(path);
    return admin(`restore ${path} --replace --unauthenticated`);
  };
  const cut = await spoil((path) => writeFileSync(path, bytes.subarray(0, bytes.length / 2)));
  const random = await spoil((path) =>
    writeFileSync(path, Buffer.from(bytes).fill(0x5a, Math.floor(bytes.length / 3), bytes.length / 2)),
  );
  const text = await spoil((path) => writeFileSync(path, "not a database"));
  const newer = await spoil((path) => {
    using sqlite = new Sqlite(path);
    sqlite.run("INSERT INTO migrations (version, applied_at) VALUES (999, 0)");
    sqlite.run("UPDATE meta SET value = '998' WHERE key = 'schema_readable_from'");
  });
  expect([cut, random, text].map(({ status }) => status)).toEqual([1, 1, 1]);
  expect([newer.status, newer.err]).toEqual([78, expect.stringContaining("version 999")]);
  expect(await nodesOf(place.data)).toEqual(before);
  expect(readdirSync(place.data).filter((name) => name.includes("restoring"))).toEqual([]);
  // Who vouches for an altered file gets it, and is told what is wrong in it.
  const altered = await spoil((path) => {
    using sqlite = new Sqlite(path);
    sqlite.run("UPDATE events SET subject = 'node/9' WHERE type = 'node.registered'");
  });
  expect([altered.status, altered.out]).toEqual([0, expect.stringContaining("The audit log was changed")]);
}, 120_000);

test("a backup of a broken audit log is made and restored, and says what is broken; so do all chains", async () => {
  await populate();
  await stop();
  await must("org create other --network 10.78.0.0/16");
  const spoil = (where: string) => {
    using sqlite = new Sqlite(join(place.data, "control.db"));
    sqlite.run(`UPDATE events SET subject = 'forged' WHERE ${where}`);
    return sqlite
      .query<{ id: number }, []>(`SELECT id FROM events WHERE ${where}`)
      .all()
      .map(({ id }) => id);
  };
  const ids = [
    "id = 1",
    "type = 'node.registered'",
    "org_id = (SELECT id FROM organizations WHERE slug = 'other')",
  ].flatMap(spoil);
  const Faults = v.object({ audit_faults: v.array(v.string()) });
  const { audit_faults: faults } = v.parse(Faults, await json(`backup ${place.backup}`));
  expect(faults.map((each) => Number(/event (\d+)/.exec(each)?.[1])).sort((x, y) => x - y)).toEqual(
    ids.sort((x, y) => x - y),
  );
  const restored = await admin(`restore ${place.backup} --replace`);
  expect([restored.status, restored.out]).toEqual([0, expect.stringContaining("The audit log was changed")]);
  const verified = await admin("audit verify");
  expect(verified.status).toBe(1);
  for (const fault of faults) expect(verified.err).toContain(fault);
  // A break that was examined fails no more; the same place in another state does.
  const known = faults.map((each) => `--known ${/\((\w+)\)/.exec(each)?.[1]}`).join(" ");
  await must(`audit verify ${known}`);
  {
    using sqlite = new Sqlite(join(place.data, "control.db"));
    sqlite.run("UPDATE events SET subject = 'again' WHERE id = 1");
  }
  const changedAgain = await admin(`audit verify ${known}`);
  expect([changedAgain.status, changedAgain.err]).toEqual([1, expect.stringContaining("event 1,")]);
}, 120_000);

test("what was revoked after the backup stays revoked, and no id is used twice", async () => {
  const { url, token, a, b, keys } = await populate();
  const spent = await makeToken(1);
  const dead = await makeToken(5);
  const access = await signIn(url);
  await must(`backup ${place.backup}`);

  // Tokens have whole seconds: those of the second in which sessions end would still be valid.
  await Bun.sleep(1100);
  await must("node revoke acme a --reason stolen");
  await must("member delete acme bob@example.org");
  await must(`token revoke acme ${dead.id}`);
  const c = await register(url, "c", spent.token);
  const d = await register(url, "d", token);
  await must("node revoke acme d");
  const renewed = await register(url, "b", token, keys);
  expect([renewed.node.id, (await checkin(url, b)).status]).toEqual([b.node.id, 401]);
  const before = v.parse(
    v.array(v.object({ config_version: v.number() })),
    await (await fetch(`${url}/api/org/`, { headers: { Authorization: `Bearer ${access}` } })).json(),
  );
  await stop();

  const restored = await json(`restore ${place.backup} --replace`);
  expect(restored).toMatchObject({
    revoked_nodes: 2,
    lost_nodes: ["c"],
    set_aside: expect.stringContaining("control.db.replaced-"),
  });
  const again = await serve();
  for (const gone of [a, d]) {
    const answer = await checkin(again.url, gone);
    expect([answer.status, await answer.json()]).toEqual([
      403,
      expect.objectContaining({ code: "node_revoked", order: expect.any(String) }),
    ]);
  }
  expect((await checkin(again.url, c)).status).toBe(401);
  expect((await checkin(again.url, b)).status).toBe(401);
  expect((await checkin(again.url, renewed)).status).toBe(200);
  const download = await fetch(again.url + paths.downloadConfig("acme", b.node.id), {
    headers: { Authorization: `Bearer ${renewed.api_token}` },
  });
  const text = await download.text();
  for (const gone of [a, d]) {
    const [certificate] = decodeBundle(gone.config.files["host.crt"] ?? "");
    expect(text).toContain(certificate === undefined ? "none" : fingerprint(certificate));
  }
  expect(
    Number(
      download.headers.get("x-config-version") ??
        v.parse(v.object({ config_version: v.number() }), JSON.parse(text)).config_version,
    ),
  ).toBeGreaterThan(before[0]?.config_version ?? 0);

  // The used token, the revoked token, the member and the session are gone.
  const body = { name: "x", host_public_key: makeHostKey().publicPem };
  for (const each of [spent.token, dead.token]) {
    expect(
      (await post(again.url, paths.register("acme"), { ...body, registration_token: each })).status,
    ).toBe(401);
  }
  expect(await json("member list acme")).toMatchObject({ members: [{ email: "ada@example.org" }] });
  expect(
    (await fetch(`${again.url}/api/org/`, { headers: { Authorization: `Bearer ${access}` } })).status,
  ).toBe(401);

  const next = await register(again.url, "next", (await makeToken()).token);
  expect(next.node.id).toBeGreaterThan(d.node.id);
  // Addresses that certificates of other nodes still name are not given.
  expect([a, b, d].map(({ node }) => node.ip_address)).not.toContain(next.node.ip_address);
  await must("audit verify");
}, 120_000);

test("a migration keeps a copy of the database as it was", async () => {
  mkdirSync(place.data, { mode: 0o700 });
  chmodSync(place.data, 0o700);
  const path = join(place.data, "control.db");
  {
    using old = new Sqlite(path);
    old.run(fixtureSql);
    old.run("INSERT INTO meta (key, value) VALUES ('from', 'the old one')");
  }
  const now = () => Date.UTC(2026, 10, 21, 12);
  for (let opened = 0; opened < 2; opened++) await (await openSqlite({ path, now, role: "server" })).close();
  const kept = readdirSync(place.data).filter((name) => name.startsWith("control.db.v"));
  expect(kept).toEqual(["control.db.v5-2026-11-21T12-00-00Z"]);
  using copy = new Sqlite(join(place.data, kept[0] ?? ""), { readonly: true });
  expect(copy.query("SELECT max(version) AS version FROM migrations").get()).toEqual({ version: 5 });
  expect(copy.query("SELECT value FROM meta WHERE key = 'from'").get()).toEqual({ value: "the old one" });
  expect(existsSync(path)).toBe(true);
});

test("of the copies from before migrations, the newest of two versions stay", async () => {
  mkdirSync(place.data, { mode: 0o700 });
  const path = join(place.data, "control.db");
  {
    using old = new Sqlite(path);
    old.run(fixtureSql);
  }
  const others = ["control.db.replaced-2026-01-01T00-00-00Z", "control.db.very-old"];
  const copies = ["v10-2026-03-01T00-00-00Z", "v2-2026-01-01T00-00-00Z", "v2-2026-01-01T00-00-00Z-wal"];
  for (const name of [
    ...others,
    ...[...copies, "v9-2026-02-01T00-00-00Z", "v5-2026-11-20T12-00-00Z"].map((name) => `control.db.${name}`),
  ])
    writeFileSync(join(place.data, name), "");
  await (await openSqlite({ path, now: () => Date.UTC(2026, 10, 21, 12), role: "server" })).close();
  expect(readdirSync(place.data).sort()).toEqual(
    [
      "control.db",
      ...others,
      "control.db.v10-2026-03-01T00-00-00Z",
      "control.db.v5-2026-11-21T12-00-00Z",
    ].sort(),
  );
});

test("a copy never replaces or removes a file that is there", () => {
  mkdirSync(place.data, { mode: 0o700 });
  const [path, copy] = [join(place.data, "control.db"), join(place.data, "copy.db")];
  {
    using old = new Sqlite(path);
    old.run(fixtureSql);
  }
  writeFileSync(copy, "of a start in the same second");
  expect(() => copyDatabase(path, copy)).toThrow(/copy\.db/);
  expect(readFileSync(copy, "utf8")).toBe("of a start in the same second");
});

test("a machine of an imported network that registered after the backup is named, and registers again", async () => {
  await populate();
  const network = join(place.path, "network");
  const { makeNetwork } = handMade(
    () => network,
    () => Math.floor(Date.now() / 1000),
  );
  const { host } = makeNetwork();
  for (const [at, name] of ["one", "two"].entries())
    host(`${name}.crt`, { name, networks: [`10.42.0.${at + 1}/16`] });
  await must(`import hand ${network} --owner ada@example.org`);
  const claim = async (url: string) => {
    const made = await json("token create hand --node one");
    const { token } = v.parse(v.object({ token: v.string() }), made);
    const body = { name: "one", ...(await makeKeys("one")), registration_token: token };
    return post(url, paths.register("hand"), body);
  };
  await must(`backup ${place.backup}`);
  await stop();
  const second = await serve();
  const claimed = await claim(second.url);
  const { node, api_token } = v.parse(RegisterAnswer, await claimed.json());
  await stop();
  // The other machine has not registered: nothing of it is lost.
  expect(await json(`restore ${place.backup} --replace`)).toMatchObject({ lost_nodes: ["one"] });

  const third = await serve();
  const refused = await post(
    third.url,
    paths.checkin("hand", node.id),
    { version: "1", uptime: 1 },
    api_token,
  );
  expect(refused.status).toBe(401);
  expect((await claim(third.url)).status).toBe(201);
}, 120_000);
