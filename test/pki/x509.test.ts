// X.509 of organizations and nodes, compared with the real openssl.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { generateKeyPairSync, X509Certificate, type KeyObject } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { makeNodeKey } from "../../src/pki/keys.ts";
import { formatPem, parsePem } from "../../src/pki/pem.ts";
import {
  issueNodeX509,
  makeCsr,
  makeX509Ca,
  openIssuer,
  readCsr,
  type NodeTemplate,
} from "../../src/pki/x509.ts";
import { verifyNodeX509, x509Fingerprint, type NodeX509Check } from "../../src/pki/verify-x509.ts";
import { rejection, thrown } from "./thrown.ts";

const day = 86_400_000;
const now = Date.parse("2026-12-01T12:00:00Z");
const directory = mkdtempSync(join(tmpdir(), "agent-x509-"));
afterAll(() => rmSync(directory, { recursive: true, force: true }));

function file(name: string, text: string): string {
  const path = join(directory, name);
  writeFileSync(path, text, { mode: 0o600 });
  return path;
}

/** Output of openssl, both streams; the status stands in front. */
function openssl(...args: string[]): string {
  const { exitCode, stdout, stderr } = Bun.spawnSync(["openssl", ...args]);
  return `${exitCode}\n${stdout.toString()}${stderr.toString()}`;
}

const authority = await makeX509Ca({
  organization: "acme",
  notBefore: now - day,
  notAfter: now + 730 * day,
  serial: new Uint8Array(16).fill(0xf1),
});
const issuer = await openIssuer(authority);
const { privatePem } = makeNodeKey();
const csr = await makeCsr({ privateKeyPem: privatePem, name: "n1" });
const { publicKey, keySha256 } = await readCsr(csr);

const template: NodeTemplate = {
  publicKey,
  name: "n1",
  organization: "acme",
  nodeId: 5,
  addresses: ["10.77.0.5", "fd77::5"],
  notBefore: now - 300_000,
  notAfter: now + 7 * day,
  serial: new Uint8Array(16).fill(7),
};
const pem = await issueNodeX509(template, issuer);

describe("a certificate request", () => {
  test("is valid for openssl, and a request of openssl is valid here", async () => {
    expect(openssl("req", "-verify", "-noout", "-in", file("own.csr", csr))).toContain("verify OK");
    const path = file("node.key", privatePem);
    const theirs = openssl("req", "-new", "-key", path, "-subj", "/CN=other").slice(2);
    expect((await readCsr(theirs)).keySha256).toBe(keySha256);
  });

  const rsa = generateKeyPairSync("rsa", { modulusLength: 2048 }).privateKey;
  const p384 = generateKeyPairSync("ec", { namedCurve: "secp384r1" }).privateKey;
  const ed25519 = generateKeyPairSync("ed25519").privateKey;
  const requestBy = (key: KeyObject) => {
    const path = file("another.key", key.export({ format: "pem", type: "pkcs8" }));
    return openssl("req", "-new", "-key", path, "-subj", "/CN=n1").slice(2);
  };
  const bytes = Uint8Array.from(parsePem(csr)[0]?.bytes ?? []);
  const altered = (at: number) => {
    const copy = Uint8Array.from(bytes);
    copy[at] = (copy.at(at) ?? 0) ^ 1;
    return formatPem("CERTIFICATE REQUEST", copy);
  };
  test.each([
    ["nothing", () => ""],
    ["an RSA key", () => requestBy(rsa)],
    ["P-384", () => requestBy(p384)],
    ["Ed25519", () => requestBy(ed25519)],
    ["a changed signature", () => altered(bytes.length - 1)],
    ["a changed name", () => altered(20)],
    ["a private key after it", () => csr + privatePem],
    ["a private key before it", () => privatePem + csr],
    ["a certificate instead", () => authority.certificatePem],
    ["bare base64", () => Buffer.from(bytes).toString("base64")],
    ["cut in half", () => formatPem("CERTIFICATE REQUEST", bytes.subarray(0, 100))],
    ["over 4 KiB", () => `${"# words\n".repeat(600)}${csr}`],
  ])("with %s is refused", async (_, make) => {
    const refusal = await rejection(readCsr(make()));
    expect(refusal.code).toBe("bad_request");
    expect(refusal.details.errors).toHaveProperty("node_csr");
    expect(refusal.message).not.toContain(privatePem.split("\n")[1] ?? "");
  });
});

describe("node.crt", () => {
  const at = String(now / 1000);
  const ca = file("ca.crt", authority.certificatePem);
  const node = file("node.crt", pem);

  test.each(["sslserver", "sslclient"])("is accepted by openssl's strict verification as %s", (purpose) => {
    const answer = openssl("verify", "-x509_strict", "-attime", at, "-purpose", purpose, "-CAfile", ca, node);
    expect(answer).toStartWith("0\n");
  });

  test("is refused by openssl after it expired, with another CA, and with another name", async () => {
    const verify = (...args: string[]) => openssl("verify", ...args, node);
    expect(verify("-attime", String((now + 8 * day) / 1000), "-CAfile", ca)).toContain("expired");
    const other = await makeX509Ca({
      organization: "acme",
      notBefore: now - day,
      notAfter: now + day,
      serial: new Uint8Array(16).fill(2),
    });
    expect(verify("-attime", at, "-CAfile", file("other.crt", other.certificatePem))).toStartWith("2\n");
    expect(verify("-attime", at, "-CAfile", ca, "-verify_hostname", "n2.acme.internal")).toContain(
      "mismatch",
    );
    expect(verify("-attime", at, "-CAfile", ca, "-verify_hostname", "n1.acme.internal")).toStartWith("0\n");
    expect(verify("-attime", at, "-CAfile", ca, "-verify_ip", "10.77.0.5")).toStartWith("0\n");
    expect(verify("-attime", at, "-CAfile", ca, "-verify_ip", "fd77::5")).toStartWith("0\n");
  });

  test("has the fields of the specification", () => {
    const text = openssl("x509", "-noout", "-text", "-in", node);
    for (const part of [
      "Subject: CN = n1",
      "DNS:n1.acme.internal, IP Address:10.77.0.5, IP Address:FD77:0:0:0:0:0:0:5, URI:spiffe://acme.internal/node/5",
      "TLS Web Server Authentication, TLS Web Client Authentication",
      "CA:FALSE",
      "Digital Signature",
      "X509v3 Authority Key Identifier",
      "X509v3 Subject Key Identifier",
      "07:07:07:07:07:07:07:07:07:07:07:07:07:07:07:07",
      "Not After : Dec  8 12:00:00 2026 GMT",
    ]) {
      expect(text).toContain(part);
    }
    const caText = openssl("x509", "-noout", "-text", "-in", ca);
    for (const part of ["CA:TRUE, pathlen:0", "Certificate Sign, CRL Sign"]) expect(caText).toContain(part);
    const printed = openssl("x509", "-noout", "-fingerprint", "-sha256", "-in", ca).split("=")[1] ?? "";
    expect(x509Fingerprint(authority.certificatePem)).toBe(printed.trim().replaceAll(":", "").toLowerCase());
  });

  test("is never valid before or after its CA", async () => {
    const wide = { ...template, notBefore: now - 3 * day, notAfter: now + 9999 * day };
    const leaf = new X509Certificate(await issueNodeX509(wide, issuer));
    expect([Date.parse(leaf.validFrom), Date.parse(leaf.validTo)]).toEqual([now - day, now + 730 * day]);
  });

  test("serial numbers are positive for all random bytes", async () => {
    for (const first of [0x00, 0x01, 0x7f, 0x80, 0xff]) {
      const serial = Uint8Array.of(first, ...new Uint8Array(15).fill(3));
      const path = file("serial.crt", await issueNodeX509({ ...template, serial }, issuer));
      const printed = openssl("x509", "-noout", "-serial", "-in", path).split("=")[1]?.trim() ?? "";
      expect(BigInt(`0x${printed}`)).toBe(BigInt(`0x${Buffer.from(serial).toString("hex")}`));
    }
  });

  test("the longest allowed name works", async () => {
    const long = { ...template, name: "n".repeat(63), organization: "o".repeat(40) };
    const path = file("long.crt", await issueNodeX509(long, issuer));
    expect(openssl("verify", "-x509_strict", "-attime", at, "-CAfile", ca, path)).toStartWith("0\n");
  });
});

describe("the node's own check of node.crt", () => {
  const check: NodeX509Check = {
    pem,
    privateKeyPem: privatePem,
    name: "n1",
    organization: "acme",
    address: "10.77.0.5",
    now,
  };
  const [leaf = "", ca = ""] = pem.split(/(?<=END CERTIFICATE-----\n)/);
  let otherCa = "";
  let signedByAnother = "";
  beforeAll(async () => {
    const serial = new Uint8Array(16).fill(5);
    const other = await makeX509Ca({
      organization: "acme",
      notBefore: now - day,
      notAfter: now + day,
      serial,
    });
    otherCa = other.certificatePem;
    signedByAnother =
      (await issueNodeX509(template, await openIssuer(other))).split(/(?<=END CERTIFICATE-----\n)/)[0] ?? "";
  });

  test("accepts notBefore and notAfter", () => {
    for (const time of [now, template.notBefore, template.notAfter]) verifyNodeX509({ ...check, now: time });
  });

  test("accepts a second CA after its own, as during a CA rotation", () => {
    verifyNodeX509({ ...check, pem: pem + otherCa });
    expect(thrown(() => verifyNodeX509({ ...check, pem: leaf + otherCa + ca })).message).toContain(
      "not signed it",
    );
  });

  const cases: [string, () => Partial<NodeX509Check>][] = [
    ["before it is valid", () => ({ now: template.notBefore - 1000 })],
    ["after it expired", () => ({ now: template.notAfter + 1000 })],
    ["for another key", () => ({ privateKeyPem: makeNodeKey().privatePem })],
    ["for another name", () => ({ name: "n2" })],
    ["for another organization", () => ({ organization: "acme2" })],
    ["for another address", () => ({ address: "10.77.0.6" })],
    ["without its CA", () => ({ pem: leaf })],
    ["with another CA of the same name", () => ({ pem: leaf + otherCa })],
    ["signed by another CA of the same name", () => ({ pem: signedByAnother + ca })],
    ["with a host instead of the CA", () => ({ pem: leaf + leaf })],
    ["with the CA as the node", () => ({ pem: ca + ca })],
    ["with a host after its CA", () => ({ pem: pem + leaf })],
    ["with a private key between", () => ({ pem: leaf + privatePem + ca })],
    ["with nothing", () => ({ pem: "" })],
    [
      "with bytes that are not a certificate",
      () => ({ pem: formatPem("CERTIFICATE", new Uint8Array(9)) + ca }),
    ],
  ];
  test.each(cases)("refuses it %s", (_, change) => {
    expect(thrown(() => verifyNodeX509({ ...check, ...change() })).code).toBe("untrusted_answer");
  });

  test("refuses it when its signature does not match", () => {
    const bytes = Uint8Array.from(parsePem(leaf)[0]?.bytes ?? []);
    bytes[bytes.length - 1] = (bytes.at(-1) ?? 0) ^ 1;
    const refusal = thrown(() => verifyNodeX509({ ...check, pem: formatPem("CERTIFICATE", bytes) + ca }));
    expect(refusal.message).toContain("CA has not signed it");
  });
});
