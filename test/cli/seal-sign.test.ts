// `agent admin seal sign`: the work of a signer in one command, with the real ssh-keygen.

import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { Database } from "bun:sqlite";
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { decodeBundle, encodePem } from "../../src/pki/bundle.ts";
import { fingerprintOfHostKey } from "../../src/pki/keys.ts";
import { decodeCaBundle, fingerprint, makeCa, verifyCertificate } from "../../src/pki/nebula.ts";
import { openTrusted } from "../../src/pki/seal.ts";
import { parseJoinKey } from "../../src/protocol/join-key.ts";
import { sealedKeyWords, wordsOfKey } from "../../src/protocol/key-words.ts";
import { adminJson, runAdmin } from "../support/admin.ts";
import { serveHere } from "../support/in-process.ts";
import { makeKeys, type Keys } from "../support/nodes.ts";
import { makeSshKey } from "../support/ssh-keys.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { until } from "../support/until.ts";

// The derivation of a key from a passphrase takes a second.
setDefaultTimeout(60_000);
const directory = temporaryDirectory();
const at = (name: string) => join(directory.path, name);
const data = at("data");
const passphrase = "a long passphrase";
afterAll(() => directory[Symbol.dispose]());
const ann = makeSshKey(at("ann"));
const keys = new Map<string, Keys>();
const tokens = new Map<string, { id: number; token: string }>();
const Registered = v.object({ node: v.object({ id: v.number() }), api_token: v.string() });

async function register(name: string): Promise<void> {
  const { token } = v.parse(
    v.object({ token: v.string() }),
    await adminJson(data, ["token", "create", "acme"]),
  );
  const own = await makeKeys(name);
  await using serving = await begin();
  const answer = await fetch(`${serving.url}/api/org/acme/nodes/register/`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ name, ...own, registration_token: token }),
  });
  const made = v.parse(Registered, await answer.json());
  keys.set(name, own);
  tokens.set(name, { id: made.node.id, token: made.api_token });
}

async function begin() {
  const serving = await serveHere(data);
  return { ...serving, [Symbol.asyncDispose]: () => serving.stop() };
}

async function filesOf(name: string): Promise<Record<string, string>> {
  const { id = 0, token = "" } = tokens.get(name) ?? {};
  await using serving = await begin();
  const answer = await fetch(`${serving.url}/api/org/acme/nodes/${id}/download_config/`, {
    headers: { Authorization: `Bearer ${token}` },
  });
  return v.parse(v.object({ files: v.record(v.string(), v.string()) }), await answer.json()).files;
}

/** Nodes confirm each step of the rotation. */
async function replaceCa(): Promise<void> {
  const started = await runAdmin(data, ["ca", "rotate", "acme", "--limited", "--now"]);
  expect([started.status, started.err]).toEqual([0, expect.any(String)]);
  await using serving = await begin();
  const checkin = async ({ id, token }: { id: number; token: string }, body: object) => {
    const answer = await fetch(`${serving.url}/api/org/acme/nodes/${id}/checkin/`, {
      method: "POST",
      headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
      body: JSON.stringify({ version: "0.2.0", uptime: 7, ...body }),
    });
    return v.parse(v.object({ config_version: v.number() }), await answer.json()).config_version;
  };
  const isOver = async () => {
    for (const node of tokens.values()) {
      const version = await checkin(node, {});
      await checkin(node, { config_version: version, confirmed_config_version: version });
    }
    return (await runAdmin(data, ["ca", "show", "acme"])).out.includes("rotation: none");
  };
  await until(isOver, { what: "the end of the rotation", ms: 30_000 });
}

/** The CA of the control plane is another one than it was, as a thief replaces it. */
function forgeCa(change: Partial<Parameters<typeof makeCa>[0]>): () => void {
  using database = new Database(join(data, "control.db"));
  const where = "kind = 'overlay' AND state = 'active' AND offline = 0";
  const former = v.parse(
    v.object({ certificate: v.string(), fingerprint: v.string() }),
    database.query(`SELECT certificate, fingerprint FROM authorities WHERE ${where}`).get(),
  );
  const [ca] = decodeCaBundle(former.certificate);
  if (ca === undefined) throw new Error("no CA");
  const { certificate } = makeCa({ ...ca, ...change });
  const put = (pem: string, print: string) => {
    using opened = new Database(join(data, "control.db"));
    opened.run(`UPDATE authorities SET certificate = ?, fingerprint = ? WHERE ${where}`, [pem, print]);
  };
  put(encodePem(certificate), fingerprint(certificate));
  return () => put(former.certificate, former.fingerprint);
}

/** As their check-ins report it. */
async function setVersions(version: string): Promise<void> {
  using database = new Database(join(data, "control.db"));
  database.run("UPDATE nodes SET agent_version = ?", [version]);
}

async function setEngine(version: string, name: string): Promise<void> {
  using database = new Database(join(data, "control.db"));
  database.run("UPDATE nodes SET overlay_version = ? WHERE name = ?", [version, name]);
}

const Hash = v.object({ hash: v.string() });
const wordsFlag = (name: string) =>
  `${name}=${wordsOfKey(fingerprintOfHostKey(keys.get(name)?.host_public_key ?? ""), sealedKeyWords).join(" ")}`;
const sign = (more: string[] = [], records = "records") => {
  const ca = at(existsSync(at("second.key")) ? "second.key" : "offline.key");
  const files = Object.entries({ "--ca": ca, "--key": ann.file }).filter(([flag]) => !more.includes(flag));
  const always = [...files.flat(), "--records", at(records), "--passphrase-file", "-"];
  return runAdmin(data, ["seal", "sign", "acme", ...always, ...more], passphrase);
};
const node = (words: string[]) => runAdmin(data, ["node", ...words]);
const newestKept = () =>
  Math.max(
    ...readdirSync(at("records/acme")).flatMap((name) => (/^\d+\.seal$/.test(name) ? [parseInt(name)] : [])),
  );
const held = (number: number) => openTrusted(readFileSync(at(`records/acme/${number}.seal`), "utf8")).seal;

beforeAll(async () => {
  await runAdmin(
    data,
    ["user", "create", "o@c.example", "--password-file", "-"],
    "correct horse battery staple",
  );
  await adminJson(data, ["org", "create", "acme", "--network", "10.77.0.0/16", "--owner", "o@c.example"]);
  await register("store");
  await register("plain");
  await adminJson(data, ["group", "create", "acme", "db"]);
  await node(["update", "acme", "store", "--add-group", "db"]);
  await runAdmin(data, ["seal", "ca", "acme", at("offline.key"), "--passphrase-file", "-"], passphrase);
});

test("a signer signs certificates and the first seal, after the words of the host key", async () => {
  const flags = ["--privileged", "db"];
  const plan = await sign([...flags, "--dry-run"]);
  expect([plan.status, plan.err]).toEqual([
    0,
    expect.stringContaining("Would sign 1 node and seal 1 of acme"),
  ]);
  expect((await sign([...flags, "--yes"])).err).toContain("Give the words of the host key of store");
  const strange = await sign([
    ...flags,
    "--yes",
    "--words",
    "store=abacus abbey ability abroad absence absorb",
  ]);
  expect([strange.status, strange.err]).toEqual([
    6,
    expect.stringContaining("These are not the words of the key"),
  ]);
  expect(strange.err).not.toContain(wordsFlag("store").slice(6, 20));
  expect((await sign([...flags, "--words", wordsFlag("store")])).err).toContain(
    "repeat the command with --yes",
  );
  expect(existsSync(at("records"))).toBe(false);

  const done = await sign([...flags, "--yes", "--words", wordsFlag("store")]);
  expect([done.status, done.out]).toEqual([0, expect.stringContaining("Published seal 1")]);
  expect(done.err).toContain('+ privileged group "db": only an offline CA gives it');
  expect(done.err).toMatch(/\+ sealed node store \(10\.77\.\d+\.\d+\), open, host key [0-9a-f]{64}/);
  const { mode, state } = held(1);
  expect([mode, state.sealing?.privileged]).toEqual(["observe", ["db"]]);
  const [ca] = decodeCaBundle(readFileSync(at("offline.key.crt"), "utf8"));
  const files = await filesOf("store");
  const [own] = decodeBundle(files["host.crt"] ?? "");
  if (ca === undefined || own === undefined) throw new Error("no certificate");
  expect(own).toMatchObject({ name: "store", groups: ["db"], issuer: fingerprint(ca) });
  verifyCertificate(own, decodeCaBundle(files["ca.crt"] ?? ""), Date.now() / 1000);
  expect(decodeBundle((await filesOf("plain"))["host.crt"] ?? "")[0]?.issuer).not.toBe(fingerprint(ca));
  expect((await runAdmin(data, ["seal", "pending", "acme"])).err).toContain("No node waits");
  const again = await sign(["--yes"]);
  expect([again.status, again.err]).toEqual([0, expect.stringContaining("Nothing waits for your signature")]);
});

test("a group that a sealed node gains waits for the signer, who needs no words again; a lost one revokes", async () => {
  await adminJson(data, ["group", "create", "acme", "web"]);
  await node(["update", "acme", "store", "--add-group", "web"]);
  expect((await runAdmin(data, ["seal", "pending", "acme"])).out).toMatch(/store +group db +outdated/);
  const done = await sign(["--yes"]);
  expect([done.status, done.err]).toEqual([
    0,
    expect.stringContaining('+ group "web" for the sealed node store'),
  ]);
  expect(decodeBundle((await filesOf("store"))["host.crt"] ?? "")[0]?.groups).toEqual(["db", "web"]);
  await node(["update", "acme", "store", "--remove-group", "web"]);
  // Certificates count whole seconds: the next one has the groups of the first one, and must be another one.
  await Bun.sleep(1000);
  const [, known = ""] =
    /hash ([0-9a-f]{64})/.exec((await runAdmin(data, ["seal", "show", "acme"])).out) ?? [];
  // A signer who did not make the certificate cannot revoke it.
  const other = await sign(["--known", known], "of another signer");
  expect(other.err).toContain("! store loses rights, and your records have no certificate of it to revoke");
  const lost = await sign(["--yes"]);
  expect(lost.err).not.toContain("loses rights");
  expect([lost.status, lost.err]).toEqual([0, expect.stringContaining("+ revoked certificate ")]);
  expect(held(3).state.sealing?.revoked).toHaveLength(1);
  const shown = await adminJson(data, ["seal", "show", "acme"]);
  expect(shown).toMatchObject({ number: 3, waits: { gained: [], lost: [] } });
});

test("another host key needs the words of its machine, though the control plane says that no certificate is due", async () => {
  const thief = await makeKeys("store");
  const replace = (key: string) => {
    using database = new Database(join(data, "control.db"));
    database.run("UPDATE nodes SET host_public_key = ? WHERE name = 'store'", [key]);
  };
  replace(thief.host_public_key);
  expect((await runAdmin(data, ["seal", "pending", "acme"])).err).toContain("No node waits");
  const refused = await sign(["--yes"]);
  expect([refused.status, refused.err]).toEqual([
    2,
    expect.stringContaining("Give the words of the host key of store"),
  ]);
  replace(keys.get("store")?.host_public_key ?? "");
  expect((await sign(["--yes"])).err).toContain("Nothing waits for your signature");
});

test("a node whose engine reads it gets an address of the sealed network, and keeps it whatever the control plane says", async () => {
  const [former] = decodeBundle((await filesOf("store"))["host.crt"] ?? "");
  expect((await sign(["--yes"])).err).toContain("! store is open without a sealed address");
  await setEngine("1.12.0", "store");
  // Of the other node no engine is known: it might read no certificate with such an address.
  expect((await sign(["--yes"])).err).toContain("! store is open without a sealed address");
  await setEngine("1.12.0", "plain");
  const done = await sign(["--yes"]);
  expect([done.status, done.err]).toEqual([0, expect.stringContaining("certificate for store (group db)")]);
  expect(done.err).not.toContain("without a sealed address");
  const { sealing, nodes } = held(4).state;
  const address6 = nodes.find(({ name }) => name === "store")?.identity?.address6 ?? "";
  expect(sealing?.network6).toMatch(/^fd[0-9a-f:]+::\/64$/);
  expect(address6.startsWith((sealing?.network6 ?? "").replace("::/64", ":"))).toBeTrue();
  const networks = [...(former?.networks ?? []), `${address6}/64`];
  expect(decodeBundle((await filesOf("store"))["host.crt"] ?? "")).toMatchObject([
    { version: 2, groups: ["db"], networks },
  ]);
  expect((await runAdmin(data, ["seal", "pending", "acme"])).err).toContain("No node waits");
  await setEngine("1.6.1", "store");
  const lie = await sign(["--yes"]);
  expect([lie.status, lie.err]).toEqual([0, expect.stringContaining("Nothing waits for your signature")]);
  expect((await sign(["--yes", "--enforce"])).err).toContain(
    "store needs an engine from 1.10 on, and has 1.6.1",
  );
  await setEngine("1.12.0", "store");
  // A closed node reaches open ones by its address.
  const closed = await sign(["--yes", "--closed", "store"]);
  expect([closed.status, closed.err]).toEqual([0, expect.stringContaining("+ sealed node store")]);
  expect(held(5).state.nodes.find(({ name }) => name === "store")?.identity).toMatchObject({
    kind: "closed",
    address6,
  });
  expect((await sign(["--yes", "--open", "store"])).status).toBe(0);
});

test("no seal is signed whose sealed network overlaps a route", async () => {
  const set = (subnets: string) => {
    using database = new Database(join(data, "control.db"));
    database.run("UPDATE nodes SET subnets = ? WHERE name = 'plain'", [subnets]);
  };
  set('["fd00::/8"]');
  const refused = await sign(["--yes", "--words", wordsFlag("plain")]);
  expect([refused.status, refused.err]).toEqual([
    1,
    expect.stringContaining("fd00::/8 overlaps the sealed network fd"),
  ]);
  set("[]");
});

test("enforcement waits until each sealed node has its certificate", async () => {
  await node(["update", "acme", "plain", "--add-group", "db"]);
  const early = await sign(["--yes", "--enforce", "--words", wordsFlag("plain")]);
  expect([early.status, early.err]).toEqual([
    1,
    expect.stringContaining("plain has no certificate of the offline CA yet"),
  ]);
  expect((await sign(["--yes", "--words", wordsFlag("plain")])).status).toBe(0);
  const old = await sign(["--yes", "--enforce"]);
  expect([old.status, old.err]).toEqual([
    1,
    expect.stringContaining("2 nodes with the agent of an unknown version must have 0.2.0"),
  ]);
  await runAdmin(data, [
    "rule",
    "create",
    "acme",
    "--protocol",
    "tcp",
    "--ports",
    "5432",
    "--peer",
    "group:db",
  ]);
  expect((await sign(["--yes"])).status).toBe(0);
  expect((await filesOf("plain"))["config.yml"]).not.toContain("ca_sha");
  const before = v.parse(
    v.object({ join_key: v.string() }),
    await adminJson(data, ["token", "create", "acme"]),
  );
  expect(parseJoinKey(before.join_key).seal).toBeUndefined();
  await setVersions("0.1.0");
  const former = await sign(["--yes", "--enforce"]);
  expect(former.err).toContain("2 nodes with the agent 0.1.0 must have 0.2.0");
  await setVersions("0.2.0");
  // A thief may know the key of the CA that was there before the offline one.
  const unlimited = await sign(["--yes", "--enforce"]);
  expect([unlimited.status, unlimited.err]).toEqual([
    1,
    expect.stringContaining(
      "it certifies any network, not 10.77.0.0/16 alone; it certifies any network behind",
    ),
  ]);
  expect(unlimited.err).toContain("admin ca rotate acme --limited");
  await replaceCa();
  const enforced = await sign(["--yes", "--enforce"]);
  expect(enforced.err).toMatch(
    /CA [0-9a-f]{64}: "acme overlay CA"; version 1; networks: 10\.77\.0\.0\/16; networks behind nodes: none/,
  );
  expect([enforced.status, enforced.err]).toEqual([0, expect.stringContaining("+ ENFORCE: nodes refuse")]);
  const [ca] = decodeCaBundle(readFileSync(at("offline.key.crt"), "utf8"));
  if (ca === undefined) throw new Error("no CA");
  const config = (await filesOf("plain"))["config.yml"] ?? "";
  expect(config.match(/ca_sha: "?(\w+)/)?.[1]).toBe(fingerprint(ca));
  expect(config.match(/ca_sha/g)).toHaveLength(1);
  const token = await adminJson(data, ["token", "create", "acme"]);
  const { join_key: key, command } = v.parse(v.object({ join_key: v.string(), command: v.string() }), token);
  const { hash } = v.parse(Hash, await adminJson(data, ["seal", "show", "acme"]));
  expect([parseJoinKey(key).seal, command]).toEqual([hash, expect.stringContaining(`--seal ${hash} `)]);
  // The control plane gives a privileged group no more.
  await register("late");
  await node(["update", "acme", "late", "--add-group", "db"]);
  expect(decodeBundle((await filesOf("late"))["host.crt"] ?? "")[0]?.groups).toEqual([]);
  await node(["update", "acme", "late", "--remove-group", "db"]);
  const wider = await runAdmin(data, ["org", "update", "acme", "--network6", "fd77::/48"]);
  expect([wider.status, wider.err]).toEqual([1, expect.stringContaining("cannot enforce its seal")]);
});

test("a CA that a thief puts in the place of the limited one is not signed", async () => {
  const forged: [Parameters<typeof forgeCa>[0], string][] = [
    [{ networks: ["10.0.0.0/8"] }, "it certifies 10.0.0.0/8, not 10.77.0.0/16 alone"],
    [{ unsafeNetworks: [] }, "it certifies any network behind nodes"],
    [{ notAfter: 4_000_000_000 }, "days, not at most 730"],
    [{ networks: [], unsafeNetworks: [] }, "it certifies any network, not"],
  ];
  for (const [change, reason] of forged) {
    const restore = forgeCa(change);
    try {
      const { status, err } = await sign(["--yes"]);
      expect([status, err]).toEqual([6, expect.stringContaining(reason)]);
      expect(err).toContain("Do not sign");
      const known = at("records/acme/" + String(newestKept()) + ".seal");
      const review = await runAdmin(data, ["seal", "review", "acme", "--known", known]);
      expect([review.status, review.out]).toEqual([6, ""]);
    } finally {
      restore();
    }
  }
  expect((await sign(["--yes"])).err).toContain("Nothing waits for your signature");
});

test("an offline CA is replaced: first its certificates, then nobody trusts it", async () => {
  const print = (name: string) =>
    decodeCaBundle(readFileSync(at(`${name}.crt`), "utf8"))
      .map(fingerprint)
      .join();
  const issuers = async () =>
    decodeBundle((await filesOf("store"))["host.crt"] ?? "").map(({ issuer }) => issuer);
  const trusted = async () => decodeCaBundle((await filesOf("plain"))["ca.crt"] ?? "").map(fingerprint);
  await runAdmin(data, ["seal", "ca", "acme", at("second.key"), "--passphrase-file", "-"], passphrase);
  const [old, own] = [print("offline.key"), print("second.key")];
  const replace = (ended: string) => sign(["--yes", "--end-ca", ended]);
  expect((await replace(own)).err).toContain("is not the fingerprint of another offline CA of the seal");
  const first = await replace(old);
  expect([first.status, first.err]).toEqual([0, expect.stringContaining("Repeat the command with --end-ca")]);
  expect(first.err).toContain("certificate for store");
  expect([await issuers(), held(newestKept()).state.sealing?.offline]).toEqual([[own], [old, own]]);
  const second = await replace(old);
  expect([second.status, second.err]).toEqual([0, expect.stringContaining(`- offline CA ${old}`)]);
  expect(held(newestKept()).state.authorities).not.toContain(old);
  expect(await trusted()).toContain(own);
  expect(await trusted()).not.toContain(old);
  expect((await sign(["--yes"])).err).toContain("Nothing waits for your signature");
});

test.each([
  ["--privileged", "dbb", "this is no group of acme"],
  ["--not-privileged", "web", "this is no privileged group"],
  ["--open", "stor", "this is no sealed node"],
  ["--closed", "stor", "this is no sealed node"],
])("%s %s, which names nothing, is refused", async (flag, word, why) => {
  const { status, err } = await sign(["--dry-run", flag, word]);
  expect([status, err]).toEqual([2, expect.stringContaining(`${flag} ${word}: ${why}`)]);
});

test("a group that leaves the privileged ones shows first what it opens to the control plane", async () => {
  await node(["update", "acme", "plain", "--add-group", "db"]);
  expect((await sign(["--yes"])).status).toBe(0);
  const { status, err } = await sign(["--not-privileged", "db", "--dry-run"]);
  expect(status).toBe(0);
  const lines = err.split("\n");
  const first = lines.findIndex((line) => line.startsWith("+ access: "));
  expect(lines[first]).toContain("tcp/5432 from ANYONE who has the control plane to ");
  expect(lines.findIndex((line) => line.startsWith("+ rule"))).toBeGreaterThan(first);
});

test("a seal that was signed and not published is sent again, and no second one gets its number", async () => {
  await node(["update", "acme", "plain", "--remove-group", "db"]);
  expect((await sign(["--yes"])).status).toBe(0);
  const { number } = v.parse(
    v.object({ number: v.number() }),
    await adminJson(data, ["seal", "show", "acme"]),
  );
  // As if the control plane had lost it: a thief who hides a seal gets the same one again.
  const { hash } = v.parse(v.object({ hash: v.string() }), await adminJson(data, ["seal", "show", "acme"]));
  for (const name of [`${number + 1}.seal`, `${number + 1}.seal.sig`])
    writeFileSync(
      at(`records/acme/${name}`),
      readFileSync(at(`records/acme/${name.replace(/^\d+/, String(number))}`)),
    );
  const sent = await sign(["--yes"]);
  expect(sent.out).toContain(hash);
  for (const name of [`${number + 1}.seal`, `${number + 1}.seal.sig`]) rmSync(at(`records/acme/${name}`));
  // A signer without records says which seal is known.
  expect((await sign(["--yes"], "others")).err).toContain("give the last one that you know with --known");
  const nothing = await sign(["--yes", "--known", hash], "others");
  expect(nothing.err).toContain("Nothing waits");
  expect(nothing.err).not.toContain("Your records are in");
  // As after the restore of an old backup: the control plane would refuse the newest seal for another reason.
  for (const name of [`${number + 2}.seal`, `${number + 2}.seal.sig`])
    writeFileSync(
      at(`records/acme/${name}`),
      readFileSync(at(`records/acme/${name.replace(/^\d+/, String(number))}`)),
    );
  const old = await sign(["--yes"]);
  expect([old.status, old.err]).toEqual([
    1,
    expect.stringContaining(`lacks the seals ${number + 1} to ${number + 2} of acme`),
  ]);
  for (const name of [`${number + 2}.seal`, `${number + 2}.seal.sig`]) rmSync(at(`records/acme/${name}`));
});

test("a wrong key and a missing CA are told before any question", async () => {
  const stranger = makeSshKey(at("stranger"));
  const other = await sign(["--key", stranger.file]);
  expect([other.status, other.err]).toEqual([
    2,
    expect.stringContaining("--key is not the key of a signer of seal "),
  ]);
  expect(other.err.match(/^signer .*, SHA256:[\w+/]{43}$/gm)).toHaveLength(1);
  const none = await sign(["--ca", at("nothing.key")]);
  expect([none.status, none.err]).toEqual([2, expect.stringContaining(`there is no ${at("nothing.key")}`)]);
});
