// The floor under registrations: a use of a token, an address, the check of a CSR, an overlay and an X.509 certificate
// by the product's own libraries, and the two commits that they need, because one cannot sign inside a transaction.
// `bun floor-registration.ts DIRECTORY`.

import { join } from "node:path";
import * as v from "valibot";
import { readHostPublicKey } from "../../src/pki/keys.ts";
import { encodePem } from "../../src/pki/bundle.ts";
import { fingerprint, makeCa, signCertificate } from "../../src/pki/nebula.ts";
import { hashToken, makeOpaqueToken } from "../../src/pki/opaque.ts";
import { issueNodeX509, makeX509Ca, openIssuer, readCsr } from "../../src/pki/x509.ts";
import { RegisterRequest } from "../../src/protocol/registration.ts";
import { addressOf, parseNetwork } from "../../src/base/ip.ts";
import { makeGroupCommit, openDurable } from "./group-commit.ts";

const random = (bytes: number) => crypto.getRandomValues(new Uint8Array(bytes));
const now = Date.now();
const day = 86_400_000;
const network = parseNetwork("10.64.0.0/10");
if (network === undefined) throw new Error("10.64.0.0/10 is no network");
const ipOf = addressOf.bind(undefined, network);
const life = { notBefore: Math.floor(now / 1000) - 300, notAfter: Math.floor((now + 90 * day) / 1000) };
const ca = makeCa({ version: 1, name: "floor", ...life });
const x509Life = { notBefore: now - 300_000, notAfter: now + 90 * day };
const issuer = await openIssuer(await makeX509Ca({ organization: "floor", ...x509Life, serial: random(16) }));

const database = openDurable(join(process.argv[2] ?? ".", "registrations.db"));
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
    if (use.run(hashToken(request.registration_token ?? "")).changes !== 1) throw new Error("no such token");
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

const server = Bun.serve({
  hostname: "127.0.0.1",
  port: 0,
  development: false,
  fetch: async (request) =>
    Response.json(await register(v.parse(RegisterRequest, await request.json())), { status: 201 }),
});
process.on("SIGTERM", () => void server.stop(true).then(() => database.close()));
process.stdout.write(`${JSON.stringify({ url: server.url.origin })}\n`);
