// `--tls-ca`: machines pin the root of an authority that they do not know, as they pin the server's own CA.

import { expect, test } from "bun:test";
import { join } from "node:path";
import { writeFileSync } from "node:fs";
import { messageOf } from "../../../src/base/errors.ts";
import { makeLog } from "../../../src/base/log.ts";
import { readApiCaByFingerprint } from "../../../src/node/enroll/register-input.ts";
import { makeClient } from "../../../src/node/contact/requests/client.ts";
import { parseJoinKey } from "../../../src/protocol/join-key.ts";
import { issueServerX509, makeX509Ca, openIssuer } from "../../../src/pki/x509.ts";
import { publicUrlOf, rememberPublicUrl } from "../../../src/server/store/meta.ts";
import { openData } from "../../../src/server/store/data-directory.ts";
import { openListeners } from "../../../src/server/tls/listener-set.ts";
import { readForeignCa } from "../../../src/server/tls/foreign-ca.ts";
import { realSystem } from "../../../src/base/system.ts";
import { runAdmin } from "../../support/admin.ts";
import { freePort } from "../../support/free-port.ts";
import { serveHere } from "../../support/in-process.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

const system = realSystem();
const day = 86_400_000;
const dates = () => ({ notBefore: Date.now() - day, notAfter: Date.now() + day, serial: system.random(16) });

/** A company's root, and the files of a certificate for 127.0.0.1 without it. */
async function makeCompany(directory: string) {
  const authority = await makeX509Ca({ organization: "Company", ...dates() });
  const names = { names: ["localhost"], addresses: ["127.0.0.1"] };
  const pair = await issueServerX509({ ...names, ...dates() }, await openIssuer(authority));
  const [leaf = ""] = /-----BEGIN[^]*?-----END CERTIFICATE-----\n/.exec(pair.cert) ?? [];
  const files = { certFile: join(directory, "cert.pem"), keyFile: join(directory, "key.pem") };
  writeFileSync(files.certFile, leaf);
  writeFileSync(files.keyFile, pair.key);
  return { root: authority.certificatePem, leaf, files };
}

test("join keys hold the root's fingerprint, and a machine that does not know the root trusts the server", async () => {
  using directory = temporaryDirectory();
  const { root, files } = await makeCompany(directory.path);
  const foreignCa = readForeignCa(root, "root.pem");
  const data = join(directory.path, "data");
  const port = freePort();
  const publicUrl = `https://127.0.0.1:${port}`;
  const listen = { hostname: "127.0.0.1", port };
  const serving = await serveHere(data, { listen, publicUrl, tls: files, foreignCa });
  try {
    expect(serving.caFingerprint).toBe(foreignCa.fingerprint);
    const unpinned = await makeClient({ base: publicUrl, system }).serverTime().catch(messageOf);
    expect(unpinned).toContain("certificate");
    const ca = await readApiCaByFingerprint(publicUrl, foreignCa.fingerprint);
    expect(ca.trim()).toBe(root.trim());
    expect(await makeClient({ base: publicUrl, system, ca }).serverTime()).toBeGreaterThan(0);
    await runAdmin(data, ["org", "create", "acme", "--network", "10.77.0.0/16"]);
    const made = await runAdmin(data, ["token", "create", "acme", "--json"]);
    const { join_key: key } = JSON.parse(made.out) as { join_key: string };
    expect(parseJoinKey(key).caFingerprint).toBe(foreignCa.fingerprint);
  } finally {
    await serving.stop();
  }
});

test("a restart with ACME does not take the root for the server's own CA, which nodes would need at its port", async () => {
  using directory = temporaryDirectory();
  const { root } = await makeCompany(directory.path);
  const foreignCa = readForeignCa(root, "root.pem");
  const { db, secretKey } = await openData({ dataDirectory: directory.path }, "server", system);
  const port = freePort();
  const publicUrl = `https://127.0.0.1:${port}`;
  const caFingerprint = foreignCa.fingerprint;
  await rememberPublicUrl(db, { publicUrl, caFingerprint, isForeignCa: true });
  expect(await publicUrlOf(db)).toEqual({ publicUrl, caFingerprint, isForeignCa: true });
  await db.close();
  await runAdmin(directory.path, ["org", "create", "acme", "--network", "10.77.0.0/16"]);
  const again = await openData({ dataDirectory: directory.path }, "server", system);
  await again.db.write((tx) =>
    tx.run(
      "INSERT INTO nodes (org_id, name, ip, state, created_at) VALUES (1, 'web', '10.77.0.9', 'active', 0)",
    ),
  );
  const acme = { directoryUrl: "https://127.0.0.1:1/directory", name: "127.0.0.1" };
  const options = { listen: { hostname: "127.0.0.1", port }, publicUrl, trustedProxies: [] };
  const log = makeLog({ verbose: false, write: () => undefined, now: Date.now, stamped: true });
  const doors = await openListeners(
    { ...options, tls: { acme }, foreignCa },
    { db: again.db, secretKey, system, log },
  );
  expect(doors.caFingerprint).toBe(caFingerprint);
  await doors.stop();
  // Without --tls-ca, the key of the next machine holds no fingerprint.
  await rememberPublicUrl(again.db, { publicUrl });
  expect(await publicUrlOf(again.db)).toEqual({ publicUrl });
  await again.db.close();
});

test("a file that is not one root certificate is refused with what to give", async () => {
  using directory = temporaryDirectory();
  const { root, leaf } = await makeCompany(directory.path);
  for (const [text, why] of [
    [undefined, "it holds 0 certificates"],
    ["", "it holds 0 certificates"],
    [root + leaf, "it holds 2 certificates"],
    [leaf, "not that of a root CA"],
    ["-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "cannot be read"],
  ] as const)
    expect(() => readForeignCa(text, "root.pem")).toThrow(why);
});
