// nebula-cert and this program agree about certificates: it accepts those that we sign and refuses those that we refuse.
// A seeded tenth of 10,000 certificates for each engine; all of them with SOAK=1.

import { afterAll, expect, test } from "bun:test";
import { sign } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as fc from "fast-check";
import * as v from "valibot";
import { AppError } from "../../src/base/errors.ts";
import { encryptCaKey, readCaKey } from "../../src/pki/ca-key.ts";
import { checkFields } from "../../src/pki/certificate.ts";
import { makeHostKey, readHostPublicKey } from "../../src/pki/keys.ts";
import { encodeDetailsV1 } from "../../src/pki/nebula-v1.ts";
import { encodeDetailsV2, signedBytesV2 } from "../../src/pki/nebula-v2.ts";
import { decodeBundle, encodeBytes, encodePem } from "../../src/pki/bundle.ts";
import {
  decodeCaBundle,
  fingerprint,
  makeCa,
  signCertificate,
  verifyCertificate,
  type CertificateAuthority,
  type HostTemplate,
  type NebulaCertificate,
} from "../../src/pki/nebula.ts";
import { formatPem } from "../../src/pki/pem.ts";
import { hex, vector } from "../pki/vectors.ts";
import { describeEngines, type Engine } from "../support/engines.ts";

const count = process.env["SOAK"] === "1" ? 10_000 : 1_000;
const seed = 20_261_120;
const nowS = Math.floor(Date.now() / 1000);
const day = 86_400;

const directory = mkdtempSync(join(tmpdir(), "agent-nebula-cert-"));
afterAll(() => rmSync(directory, { recursive: true, force: true }));

function file(name: string, text: string): string {
  const path = join(directory, name);
  writeFileSync(path, text, { mode: 0o600 });
  return path;
}

type Verdict = { accepted: boolean; text: string };

async function tool(
  engine: Engine,
  args: readonly string[],
  env: Record<string, string> = {},
): Promise<Verdict> {
  const child = Bun.spawn([engine.nebulaCert, ...args], {
    cwd: directory,
    env: { TZ: "UTC", PATH: "/usr/bin:/bin", ...env },
    stdin: "ignore",
    stdout: "pipe",
    stderr: "pipe",
  });
  const [out, err] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  return { accepted: (await child.exited) === 0, text: out + err };
}

/** From 1.10 on, with version 2, all certificates of a file are verified; before, only the first one. */
function isModern(engine: Engine): boolean {
  return Bun.semver.order(engine.version, "1.10.0") >= 0;
}

type Authority = CertificateAuthority & { name: string };

const life = { notBefore: nowS - 30 * day, notAfter: nowS + 300 * day };

function authorities(version: 1 | 2): Authority[] {
  const limits = {
    open: {},
    networks: { networks: ["10.40.0.0/14", "192.168.7.0/24"] },
    groups: { groups: ["g1", "g2", "g3"] },
    subnets: { unsafeNetworks: ["172.16.0.0/12"] },
    all: { networks: ["10.40.0.0/14"], unsafeNetworks: ["172.16.0.0/12"], groups: ["g1", "g2"] },
  };
  return Object.entries(limits).map(([name, limit]) => {
    const ca = makeCa({ version, name: `${name} ${version}`, ...limit, ...life });
    return { ...ca, name: `${name}-${version}` };
  });
}

const publicKey = readHostPublicKey(makeHostKey().publicPem);

/** Networks near the limits above: inside, outside, or with the right address and too short a prefix. */
const network = fc
  .tuple(
    fc.constantFrom("10.40", "10.41", "10.43", "10.44", "192.168", "172.16", "172.32"),
    fc.nat(255),
    fc.nat(255),
  )
  .chain(([start, c, d]) =>
    fc
      .constantFrom(8, 12, 14, 16, 24, 32)
      .map((prefix) => `${start}.${start === "192.168" ? 7 : c}.${d}/${prefix}`),
  );
const sometimes = <T>(usual: fc.Arbitrary<T>, rare: fc.Arbitrary<T>) =>
  fc.oneof({ weight: 9, arbitrary: usual }, { weight: 1, arbitrary: rare });

/** Never near the present time: the tool reads the clock later than this test. */
const beginning = fc.oneof(
  fc.integer({ min: nowS - 32 * day, max: nowS - 300 }),
  fc.integer({ min: nowS + 3600, max: nowS + day }),
);

const caseOf = (versions: readonly (1 | 2)[], cas: readonly Authority[]) =>
  fc.record({
    ca: fc.constantFrom(...cas),
    version: fc.constantFrom(...versions),
    name: fc.string({ unit: "grapheme", minLength: 1, maxLength: 20 }).filter((name) => name.isWellFormed()),
    networks: sometimes(
      fc.array(fc.constantFrom("10.41.0.9/24", "10.40.3.3/16"), { minLength: 1, maxLength: 1 }),
      fc.uniqueArray(network, { minLength: 1, maxLength: 2 }),
    ),
    unsafeNetworks: sometimes(fc.constant<string[]>([]), fc.uniqueArray(network, { maxLength: 2 })),
    groups: sometimes(fc.subarray(["g1", "g2"]), fc.subarray(["g1", "g2", "g3", "g4", "ü"])),
    notBefore: sometimes(fc.constant(nowS - 300), beginning),
    notAfter: sometimes(
      fc.constant(nowS + 90 * day),
      fc.integer({ min: nowS + 2 * day, max: nowS + 302 * day }),
    ),
    defect: fc.constantFrom(
      "none",
      "none",
      "none",
      "none",
      "byte",
      "signature",
      "twin",
      "curve",
      "other ca",
      "expired",
    ),
    place: fc.nat(100_000),
  });
type Case = ReturnType<typeof caseOf> extends fc.Arbitrary<infer T> ? T : never;

/** Signs any request: hides the CA's limits, but keeps its fingerprint (which covers the details). */
function signUnchecked(template: HostTemplate, { certificate, privateKey }: Authority): NebulaCertificate {
  const sightless = {
    ...certificate,
    networks: [],
    unsafeNetworks: [],
    groups: [],
    notBefore: 0,
    notAfter: 2 ** 40,
  };
  return signCertificate(template, { certificate: sightless, privateKey });
}

/** A host certificate of the other curve, with a valid Ed25519 signature of its CA. */
function otherCurve(template: HostTemplate, { certificate, privateKey }: Authority): NebulaCertificate {
  const key = hex(vector("h_v1_p256.crt").input.publicKey);
  const issuer = fingerprint(certificate);
  const fields = { ...template, publicKey: key, curve: "P256" as const, isCa: false, issuer };
  const parsed = checkFields(fields);
  const details = fields.version === 1 ? encodeDetailsV1(fields, parsed) : encodeDetailsV2(fields, parsed);
  const bytes = fields.version === 1 ? details : signedBytesV2({ ...fields, details });
  return { ...fields, details, signature: sign(null, bytes, privateKey) };
}

/**
 * With the group order added to its second half (RFC 8032, 5.1.7), a signature still satisfies the equation. A verifier
 * that accepted it would accept the same certificate under a fingerprint that is on no blocklist.
 */
function twinOf(signature: Uint8Array): Uint8Array {
  const order = 2n ** 252n + 27_742_317_777_372_353_535_851_937_790_883_648_493n;
  const s = BigInt(`0x${Buffer.from(signature.subarray(32)).reverse().toString("hex")}`) + order;
  const half = Buffer.from(s.toString(16).padStart(64, "0"), "hex").reverse();
  return Buffer.concat([signature.subarray(0, 32), half]);
}

function pemOf(each: Case, cas: readonly Authority[]): string {
  const { ca, version, name, networks, unsafeNetworks, groups, notBefore, defect, place } = each;
  const notAfter = defect === "expired" ? Math.max(notBefore, nowS - 60) : each.notAfter;
  const template = { version, name, networks, unsafeNetworks, groups, notBefore, notAfter, publicKey };
  if (defect === "curve") return encodePem(otherCurve(template, ca));
  const certificate = signUnchecked(template, ca);
  if (defect === "byte" || defect === "signature") {
    const bytes = encodeBytes(certificate);
    const at = defect === "byte" ? place % bytes.length : bytes.length - 1 - (place % 64);
    bytes[at] = (bytes[at] ?? 0) ^ (1 << (place % 8));
    return formatPem(version === 1 ? "NEBULA CERTIFICATE" : "NEBULA CERTIFICATE V2", bytes);
  }
  if (defect === "twin") return encodePem({ ...certificate, signature: twinOf(certificate.signature) });
  if (defect === "other ca") {
    const other = cas.find((candidate) => candidate !== ca) ?? ca;
    return encodePem(signUnchecked(template, other));
  }
  return encodePem(certificate);
}

function weAccept(pem: string, ca: Authority): boolean {
  try {
    for (const certificate of decodeBundle(pem)) verifyCertificate(certificate, [ca.certificate], nowS);
    return true;
  } catch (error) {
    if (error instanceof AppError) return false;
    throw error;
  }
}

/** Two at a time: a process costs milliseconds, and the machine may have only two processors. */
async function inTurns<T>(items: readonly T[], work: (item: T, at: number) => Promise<void>): Promise<void> {
  const queue = items.entries();
  const worker = async () => {
    for (const [at, item] of queue) await work(item, at);
  };
  await Promise.all([worker(), worker()]);
}

const Printed = v.object({
  details: v.object({
    name: v.string(),
    groups: v.nullable(v.array(v.string())),
    networks: v.optional(v.nullable(v.array(v.string()))),
    ips: v.optional(v.array(v.string())),
    unsafeNetworks: v.optional(v.nullable(v.array(v.string()))),
    subnets: v.optional(v.array(v.string())),
    notBefore: v.string(),
    notAfter: v.string(),
    issuer: v.string(),
    isCa: v.boolean(),
  }),
  fingerprint: v.string(),
});

/** 1.6 prints one object in each line, 1.10 and later one array. */
function readPrinted(text: string): v.InferOutput<typeof Printed>[] {
  const whole = text.trim();
  const json = whole.startsWith("[") ? whole : `[${whole.split("\n").join(",")}]`;
  return v.parse(v.pipe(v.string(), v.parseJson(), v.array(Printed)), json);
}

describeEngines("nebula-cert", (engine) => {
  const versions = isModern(engine) ? ([1, 2] as const) : ([1] as const);
  const cas = versions.flatMap(authorities);
  const caFile = (ca: Authority) => join(directory, `${engine.version}-${ca.name}.crt`);
  for (const ca of cas) writeFileSync(caFile(ca), encodePem(ca.certificate));
  const cases = fc.sample(caseOf(versions, cas), { seed, numRuns: count }).map((each) => {
    const pem = pemOf(each, cas);
    return { ...each, pem, accepted: weAccept(pem, each.ca) };
  });
  const good = cases.filter((each) => each.accepted);

  test("the sample has both verdicts often, for every CA and version", () => {
    for (const ca of cas) {
      for (const version of versions) {
        const own = cases.filter((each) => each.ca === ca && each.version === version);
        expect(own.filter((each) => each.accepted).length).toBeGreaterThan(own.length / 10);
        expect(own.filter((each) => !each.accepted).length).toBeGreaterThan(own.length / 10);
      }
    }
  });

  test("nebula-cert accepts the certificates that we accept", async () => {
    // One process for all certificates of a CA if the tool checks each one, else one process for each.
    const groups = isModern(engine)
      ? cas.map((ca) => ({
          ca,
          pem: good
            .filter((each) => each.ca === ca)
            .map((each) => each.pem)
            .join(""),
        }))
      : good;
    await inTurns(groups, async ({ ca, pem }, at) => {
      const path = file(`good-${engine.version}-${at}.crt`, pem);
      const verdict = await tool(engine, ["verify", "-ca", caFile(ca), "-crt", path]);
      expect(verdict, `${ca.name}\n${pem}`).toEqual({ accepted: true, text: "" });
    });
  }, 600_000);

  test("nebula-cert refuses the certificates that we refuse", async () => {
    await inTurns(
      cases.filter((each) => !each.accepted),
      async ({ ca, pem, defect }, at) => {
        const path = file(`bad-${engine.version}-${at}.crt`, pem);
        const verdict = await tool(engine, ["verify", "-ca", caFile(ca), "-crt", path]);
        expect(verdict.accepted, `${ca.name} ${defect}\n${pem}`).toBe(false);
      },
    );
  }, 600_000);

  test("nebula-cert reads every field and fingerprint as we do", async () => {
    const path = file(`all-${engine.version}.crt`, good.map((each) => each.pem).join(""));
    const printed = readPrinted((await tool(engine, ["print", "-json", "-path", path])).text);
    const ours = good.flatMap((each) => decodeBundle(each.pem));
    expect(printed.length).toBe(ours.length);
    for (const [at, { details, fingerprint: printedFingerprint }] of printed.entries()) {
      const own = ours[at];
      if (own === undefined) throw new Error("fewer than printed");
      expect({
        name: details.name,
        networks: details.networks ?? details.ips ?? [],
        unsafeNetworks: details.unsafeNetworks ?? details.subnets ?? [],
        groups: details.groups ?? [],
        isCa: details.isCa,
        notBefore: Date.parse(details.notBefore) / 1000,
        notAfter: Date.parse(details.notAfter) / 1000,
        issuer: details.issuer,
        fingerprint: printedFingerprint,
      }).toEqual({
        name: own.name,
        networks: [...own.networks],
        unsafeNetworks: [...own.unsafeNetworks],
        groups: [...own.groups],
        isCa: own.isCa,
        notBefore: own.notBefore,
        notAfter: own.notAfter,
        issuer: own.issuer,
        fingerprint: fingerprint(own),
      });
    }
  });

  test("we read CA, keys and certificates of nebula-cert, and sign with its CA", async () => {
    for (const version of versions) {
      const own = (name: string) => `${engine.version}-v${version}-${name}`;
      const versionFlag = isModern(engine) ? ["-version", String(version)] : [];
      const run = async (...args: string[]) => {
        const verdict = await tool(engine, args);
        expect(verdict.accepted, verdict.text).toBe(true);
      };
      const keep = ["-out-crt", own("ca.crt"), "-out-key", own("ca.key")];
      await run("ca", "-name", "Their CA", "-groups", "g1,g2", ...keep, ...versionFlag);
      await run("keygen", "-out-key", own("host.key"), "-out-pub", own("host.pub"));
      const read = (name: string) => readFileSync(join(directory, own(name)), "utf8");
      const given = ["-name", "theirs", "-ip", "10.1.2.3/24", "-groups", "g1", "-in-pub", own("host.pub")];
      await run(
        "sign",
        "-ca-crt",
        own("ca.crt"),
        "-ca-key",
        own("ca.key"),
        ...given,
        "-out-crt",
        own("theirs.crt"),
      );
      const theirCas = decodeCaBundle(read("ca.crt"));
      for (const theirs of decodeBundle(read("theirs.crt")))
        verifyCertificate(theirs, theirCas, Date.now() / 1000);

      const [certificate] = theirCas;
      if (certificate === undefined) throw new Error("no CA was read");
      const { privateKey } = await readCaKey(read("ca.key"));
      const template = {
        version,
        name: "ours",
        networks: ["10.1.2.4/24"],
        unsafeNetworks: [],
        groups: ["g2"],
        notBefore: certificate.notBefore,
        notAfter: certificate.notAfter,
        publicKey: readHostPublicKey(read("host.pub")),
      };
      const ours = signCertificate(template, { certificate, privateKey });
      await run("verify", "-ca", own("ca.crt"), "-crt", file(own("ours.crt"), encodePem(ours)));
    }
  });

  // 1.6 does not support encrypted keys.
  if (!isModern(engine)) return;
  test("both sides decrypt the CA key of the other", async () => {
    // Each engine makes its own: none overwrites a key.
    const named = (name: string) => `${engine.version}-encrypted-${name}`;
    const env = { NEBULA_CA_PASSPHRASE: "a long passphrase" };
    const cheap = ["-argon-memory", "1024", "-argon-iterations", "1", "-argon-parallelism", "1"];
    const out = ["-out-crt", named("ca.crt"), "-out-key", named("ca.key")];
    const made = await tool(engine, ["ca", "-name", "Encrypted", "-encrypt", ...cheap, ...out], env);
    expect(made.accepted, made.text).toBe(true);
    const text = readFileSync(join(directory, named("ca.key")), "utf8");
    const key = await readCaKey(text, env.NEBULA_CA_PASSPHRASE);
    const again = await encryptCaKey(key, "another passphrase", { memory: 2048, passes: 2, parallelism: 2 });
    const files = ["-out-crt", named("n.crt"), "-out-key", named("n.key")];
    const host = ["-name", "n", "-networks", "10.1.2.3/24", ...files];
    const ca = ["-ca-crt", named("ca.crt"), "-ca-key", file(named("again.key"), again)];
    const signed = await tool(engine, ["sign", ...ca, ...host], {
      NEBULA_CA_PASSPHRASE: "another passphrase",
    });
    expect(signed.accepted, signed.text).toBe(true);
    const cas = decodeCaBundle(readFileSync(join(directory, named("ca.crt")), "utf8"));
    for (const each of decodeBundle(readFileSync(join(directory, named("n.crt")), "utf8"))) {
      verifyCertificate(each, cas, Date.now() / 1000);
    }
  });
});
