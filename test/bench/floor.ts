// The floors of the benches: bare programs that do the same as the control plane, and nothing else, with the same libraries.
// `bun test/bench/floor.ts NAME DIRECTORY` prints its address. floor-rest.ts is not here, because it is compiled alone.

import { Database } from "bun:sqlite";
import { hash } from "node:crypto";
import { join } from "node:path";
import * as v from "valibot";
import { addressOf, parseNetwork } from "../../src/base/ip.ts";
import { encodePem } from "../../src/pki/bundle.ts";
import { readHostPublicKey } from "../../src/pki/keys.ts";
import { fingerprint, makeCa, signCertificate } from "../../src/pki/nebula.ts";
import { hashToken, makeOpaqueToken } from "../../src/pki/opaque.ts";
import { issueNodeX509, makeX509Ca, openIssuer, readCsr } from "../../src/pki/x509.ts";
import { CheckinRequest } from "../../src/protocol/checkin.ts";
import { RegisterRequest } from "../../src/protocol/registration.ts";
import { print } from "./measure.ts";

export function openDurable(path: string): Database {
  const database = new Database(path, { create: true, strict: true });
  for (const pragma of ["busy_timeout = 5000", "journal_mode = WAL", "synchronous = FULL"]) {
    database.run(`PRAGMA ${pragma}`);
  }
  return database;
}

/**
 * Works of one turn of the event loop run in one transaction that is on disk (synchronous=FULL) before any of them is
 * answered. `work` awaits nothing; what it throws is the server's end.
 */
function makeGroupCommit(database: Database): <T>(work: () => T) => Promise<T> {
  const begin = database.query("BEGIN IMMEDIATE");
  const commit = database.query("COMMIT");
  let waiting: (() => () => void)[] = [];
  const flush = () => {
    const batch = waiting;
    waiting = [];
    begin.run();
    const answers = batch.map((work) => work());
    commit.run();
    for (const answer of answers) answer();
  };
  return <T>(work: () => T) =>
    new Promise<T>((resolve) => {
      const run = () => {
        const result = work();
        return () => resolve(result);
      };
      if (waiting.push(run) === 1) setImmediate(flush);
    });
}

function serve(answer: (request: Request) => Promise<Response>, database?: Database): void {
  const server = Bun.serve({ hostname: "127.0.0.1", port: 0, development: false, fetch: answer });
  process.on("SIGTERM", () => void server.stop(true).then(() => database?.close()));
  print(JSON.stringify({ url: server.url.origin }));
}

/** Under the check-in: parses and validates the same body, and does nothing. */
function handler(): void {
  serve(async (request) => {
    const body = v.safeParse(CheckinRequest, await request.json());
    if (!body.success) return Response.json({ error: "Bad Request" }, { status: 400 });
    return Response.json({ uptime: body.output.uptime, config_version: body.output.config_version ?? 0 });
  });
}

/** Under durable writes: POST, parse, one UPDATE in a group commit, answer. */
function commit(directory: string): void {
  const database = openDurable(join(directory, "floor.db"));
  database.run("CREATE TABLE IF NOT EXISTS entries (id INTEGER PRIMARY KEY, value TEXT NOT NULL) STRICT");
  database.run(
    `WITH RECURSIVE ids (id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM ids WHERE id < 10000)
     INSERT OR IGNORE INTO entries SELECT id, '' FROM ids`,
  );

  const Body = v.strictObject({ id: v.number(), value: v.string() });
  const update = database.query("UPDATE entries SET value = $value WHERE id = $id");
  const together = makeGroupCommit(database);
  serve(async (request) => {
    const body = v.parse(Body, await request.json());
    const changes = await together(() => update.run(body).changes);
    return Response.json({ changes }, { status: changes === 1 ? 200 : 404 });
  }, database);
}

/** Under audited writes: the statements of a changed group (read, update, end of the chain of events, new event with its hash). */
function writes(directory: string): void {
  const database = openDurable(join(directory, "writes.db"));
  database.run(
    "CREATE TABLE groups (id INTEGER PRIMARY KEY, org_id INT, name TEXT, description TEXT, UNIQUE (org_id, name)) STRICT",
  );
  database.run(
    "CREATE TABLE events (id INTEGER PRIMARY KEY AUTOINCREMENT, org_id INT, at INT, type TEXT, actor TEXT, subject TEXT, before TEXT, after TEXT, hash TEXT) STRICT",
  );
  database.run("CREATE INDEX events_org ON events (org_id, id)");
  for (let at = 0; at < 100; at++)
    database.run("INSERT INTO groups (org_id, name) VALUES (1, ?)", [`group-${at}`]);

  const Body = v.strictObject({ description: v.string() });
  const Last = v.nullish(v.object({ hash: v.string() }));
  const find = database.query("SELECT id, name, description FROM groups WHERE org_id = ?1 AND name = ?2");
  const update = database.query("UPDATE groups SET description = ?3 WHERE org_id = ?1 AND name = ?2");
  const last = database.query("SELECT hash FROM events WHERE org_id = ?1 ORDER BY id DESC LIMIT 1");
  const insert = database.query(
    "INSERT INTO events (org_id, at, type, actor, subject, before, after, hash) VALUES (1, ?1, 'group.updated', ?2, ?3, NULL, NULL, ?4)",
  );
  const together = makeGroupCommit(database);
  const actor = JSON.stringify({ kind: "service", id: 1, ip: "127.0.0.1" });
  serve(async (request) => {
    const { description } = v.parse(Body, await request.json());
    const name = request.url.split("/").at(-2) ?? "";
    const group = await together(() => {
      const before = find.get(1, name);
      update.run(1, name, description);
      const at = Date.now();
      const text = JSON.stringify([1, at, "group.updated", actor, name, null, null]);
      const previous = v.parse(Last, last.get(1))?.hash ?? "";
      insert.run(at, actor, `group/${name}`, hash("sha256", `${previous}\n${text}`, "hex"));
      return before;
    });
    return Response.json(group, { status: group === null ? 404 : 200 });
  }, database);
}

/** Under registrations: a use of a token, an address, the check of a CSR, an overlay and an X.509 certificate, and the two commits that they need, because one cannot sign inside of a transaction. */
async function registration(directory: string): Promise<void> {
  const random = (bytes: number) => crypto.getRandomValues(new Uint8Array(bytes));
  const now = Date.now();
  const day = 86_400_000;
  const network = parseNetwork("10.64.0.0/10");
  if (network === undefined) throw new Error("10.64.0.0/10 is no network");
  const ipOf = addressOf.bind(undefined, network);
  const life = { notBefore: Math.floor(now / 1000) - 300, notAfter: Math.floor((now + 90 * day) / 1000) };
  const ca = makeCa({ version: 1, name: "floor", ...life });
  const x509Life = { notBefore: now - 300_000, notAfter: now + 90 * day };
  const issuer = await openIssuer(
    await makeX509Ca({ organization: "floor", ...x509Life, serial: random(16) }),
  );

  const database = openDurable(join(directory, "registrations.db"));
  database.run("CREATE TABLE tokens (hash TEXT PRIMARY KEY, uses INT, used INT) STRICT");
  database.run("CREATE TABLE counter (next INT) STRICT");
  database.run("INSERT INTO counter VALUES (1)");
  database.run(
    "CREATE TABLE nodes (id INTEGER PRIMARY KEY, name TEXT UNIQUE, ip TEXT UNIQUE, host_key TEXT, csr TEXT, token TEXT) STRICT",
  );
  database.run(
    "CREATE TABLE certificates (id INTEGER PRIMARY KEY, node INT, fingerprint TEXT, pem TEXT) STRICT",
  );
  database.run("INSERT INTO tokens VALUES ($hash, 1000000, 0)", [hashToken("floor")]);

  const Host = v.object({ host: v.number() });
  const Id = v.object({ id: v.number() });
  const use = database.query("UPDATE tokens SET used = used + 1 WHERE hash = ?1 AND used < uses");
  const next = database.query("UPDATE counter SET next = next + 1 RETURNING next - 1 AS host");
  const insertNode = database.query(
    "INSERT INTO nodes (name, ip, host_key, csr) VALUES (?1, ?2, ?3, ?4) RETURNING id",
  );
  const insertCertificate = database.query(
    "INSERT INTO certificates (node, fingerprint, pem) VALUES (?1, ?2, ?3)",
  );
  const finish = database.query("UPDATE nodes SET token = ?2 WHERE id = ?1");
  const together = makeGroupCommit(database);

  async function register(request: RegisterRequest) {
    const publicKey = readHostPublicKey(request.host_public_key);
    const csr = request.node_csr ?? "";
    const { publicKey: csrKey } = await readCsr(csr);
    const { id, ip } = await together(() => {
      if (use.run(hashToken(request.registration_token ?? "")).changes !== 1)
        throw new Error("no such token");
      const ip = ipOf(v.parse(Host, next.get()).host);
      return { ip, ...v.parse(Id, insertNode.get(request.name, ip, request.host_public_key, csr)) };
    });
    const overlay = signCertificate(
      {
        version: 1,
        name: request.name,
        networks: [`${ip}/10`],
        unsafeNetworks: [],
        groups: [],
        publicKey,
        ...life,
      },
      ca,
    );
    const names = { name: request.name, organization: "floor", nodeId: id, addresses: [ip] };
    const nodeCrt = await issueNodeX509(
      { publicKey: csrKey, ...names, ...x509Life, serial: random(16) },
      issuer,
    );
    const token = makeOpaqueToken(random);
    const hostCrt = encodePem(overlay);
    await together(() => {
      insertCertificate.run(id, fingerprint(overlay), hostCrt);
      insertCertificate.run(id, "", nodeCrt);
      finish.run(id, hashToken(token));
    });
    return { id, ip, token, hostCrt, nodeCrt };
  }
  serve(
    async (request) =>
      Response.json(await register(v.parse(RegisterRequest, await request.json())), { status: 201 }),
    database,
  );
}

if (import.meta.main) {
  const floors: Record<string, (directory: string) => void | Promise<void>> = {
    handler,
    commit,
    writes,
    registration,
  };
  const [name = "", directory = "."] = process.argv.slice(2);
  await floors[name]?.(directory);
}
