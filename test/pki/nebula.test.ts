// Overlay certificates, compared with vectors of the engine; rules of signing and verification.

import { describe, expect, test } from "bun:test";
import { readCaKey } from "../../src/pki/ca-key.ts";
import { decodeBundle, encodeBytes, encodePem } from "../../src/pki/bundle.ts";
import {
  decodeCaBundle,
  fingerprint,
  fingerprints,
  makeCa,
  signCertificate,
  verifyCertificate,
  type HostTemplate,
  type NebulaCertificate,
} from "../../src/pki/nebula.ts";
import { makeHostKey, readHostPublicKey } from "../../src/pki/keys.ts";
import { formatPem, parseOnePem } from "../../src/pki/pem.ts";
import { twinSignature } from "../../src/pki/signature.ts";
import { hex, key, keys, passphrase, signerKeyOf, toHex, vector, vectors, vectorTime } from "./vectors.ts";
import { rejection, thrown } from "./thrown.ts";

function decodeOne(pem: string): NebulaCertificate {
  const [certificate, ...more] = decodeBundle(pem);
  if (certificate === undefined || more.length > 0) throw new Error("expected one certificate");
  return certificate;
}

describe("vectors", () => {
  test.each(vectors.map((each) => [each.file, each] as const))("%s decodes to its inputs", (_, each) => {
    const certificate = decodeOne(each.pem);
    expect({ ...certificate, publicKey: toHex(certificate.publicKey) }).toMatchObject({
      version: each.version,
      name: each.input.name,
      networks: each.input.networks,
      unsafeNetworks: each.input.unsafeNetworks,
      groups: each.input.groups,
      isCa: each.input.isCA,
      notBefore: each.input.notBefore,
      notAfter: each.input.notAfter,
      curve: each.input.curve === "P256" ? "P256" : "25519",
      publicKey: each.input.publicKey,
      issuer: each.input.issuer,
    });
    expect(toHex(certificate.signature)).toBe(each.signatureHex);
  });

  test.each(vectors.map((each) => [each.file, each] as const))("%s encodes to the same bytes", (_, each) => {
    const certificate = decodeOne(each.pem);
    expect(encodePem(certificate)).toBe(each.pem);
    expect(toHex(encodeBytes(certificate))).toBe(each.derOrProtoHex);
    expect(fingerprint(certificate)).toBe(each.fingerprint);
  });

  const signable = vectors.filter((each) => !each.input.isCA && each.input.curve === "CURVE25519");
  test.each(signable.map((each) => [each.file, each] as const))(
    "%s signed again has the same bytes",
    async (_file, each) => {
      const caVector = vectors.find((ca) => ca.fingerprint === each.input.issuer);
      const keyFile = signerKeyOf[each.file] ?? "enced.key";
      const { privateKey } = await readCaKey(key(keyFile), passphrase);
      const ca = { certificate: decodeOne(caVector?.pem ?? ""), privateKey };
      const { name, networks, unsafeNetworks, groups, notBefore, notAfter } = each.input;
      // Version 2 sorts by itself, version 1 keeps the order: the first network is the host's address.
      const given = each.version === 2 ? networks.toReversed() : networks;
      const template = {
        version: each.version,
        name,
        networks: given,
        unsafeNetworks,
        groups,
        notBefore,
        notAfter,
      };
      const certificate = signCertificate({ ...template, publicKey: hex(each.input.publicKey) }, ca);
      expect(encodePem(certificate)).toBe(each.pem);
      expect(certificate).toEqual({
        ...decodeOne(each.pem),
        details: certificate.details,
        signature: certificate.signature,
      });
    },
  );

  test("every host verifies from notBefore to notAfter, and not outside", () => {
    const cas = vectors.filter((each) => each.input.isCA).flatMap((each) => decodeCaBundle(each.pem));
    const hosts = vectors.filter((each) => !each.input.isCA).map((each) => decodeOne(each.pem));
    expect(hosts.length).toBe(9);
    for (const host of hosts) {
      for (const now of [host.notBefore, vectorTime, host.notAfter]) verifyCertificate(host, cas, now);
      expect(thrown(() => verifyCertificate(host, cas, host.notBefore - 1)).message).toContain(
        "not valid yet",
      );
      expect(thrown(() => verifyCertificate(host, cas, host.notAfter + 1)).message).toContain("has expired");
      expect(thrown(() => verifyCertificate(host, [], vectorTime)).message).toContain(
        "its CA is not trusted",
      );
    }
  });

  test("each CA key of the vectors signs certificates that verify", async () => {
    for (const [file, pem] of Object.entries(keys).filter(([file]) => /^(v\d|enc).*\.key$/.test(file))) {
      const { curve, privateKey } = await readCaKey(pem, passphrase);
      const certificate = decodeOne(vector(file.replace(".key", ".crt")).pem);
      const ca = { certificate, privateKey };
      const child = signCertificate({ ...hostTemplate(ca), publicKey: publicKeyFor(curve) }, ca);
      verifyCertificate(child, [certificate], vectorTime);
    }
  });
});

function publicKeyFor(curve: "25519" | "P256"): Uint8Array {
  return curve === "P256"
    ? parseOnePem(key("hp.pub"), ["NEBULA P256 PUBLIC KEY"]).bytes
    : readHostPublicKey(key("hx.pub"));
}

function hostTemplate(ca: { certificate: NebulaCertificate }): HostTemplate {
  return {
    version: ca.certificate.version,
    name: "n1",
    networks: ["10.42.0.5/16"],
    unsafeNetworks: [],
    groups: [],
    notBefore: vectorTime - 300,
    notAfter: vectorTime + 86_400,
    publicKey: publicKeyFor(ca.certificate.curve),
  };
}

const life = { notBefore: vectorTime - 1000, notAfter: vectorTime + 1_000_000 };

describe("a CA's limits", () => {
  const limits = { networks: ["10.42.0.0/16"], unsafeNetworks: ["172.16.0.0/12"], groups: ["srv", "cli"] };
  const cases: [string, Partial<HostTemplate>, string][] = [
    ["an address outside", { networks: ["10.43.0.1/16"] }, "10.43.0.1/16"],
    ["a shorter prefix", { networks: ["10.42.0.1/8"] }, "10.42.0.1/8"],
    ["one network outside of two", { networks: ["10.42.0.1/16", "10.44.0.1/24"] }, "10.44.0.1/24"],
    ["a subnet outside", { unsafeNetworks: ["192.168.0.0/24"] }, "192.168.0.0/24"],
    ["a shorter subnet", { unsafeNetworks: ["172.0.0.0/8"] }, "172.0.0.0/8"],
    ["another group", { groups: ["srv", "root"] }, '"root"'],
    ["a later end", { notAfter: life.notAfter + 1 }, "after its CA"],
    ["an earlier start", { notBefore: life.notBefore - 1 }, "before its CA"],
  ];
  for (const version of [1, 2] as const) {
    const ca = makeCa({ version, name: "limited", ...limits, ...life });
    test.each(cases)(`version ${version} refuses %s at signing and at verification`, (_, change, reason) => {
      const template = { ...hostTemplate(ca), ...change };
      const refusal = thrown(() => signCertificate(template, ca));
      expect(refusal.code).toBe("validation_failed");
      expect(refusal.message).toContain(reason);
      // The same CA without limits signs it: only the check of the limits at verification is left to refuse it.
      const open = {
        ...ca.certificate,
        networks: [],
        unsafeNetworks: [],
        groups: [],
        notBefore: 0,
        notAfter: 2 ** 40,
      };
      const signed = signCertificate(template, { ...ca, certificate: open });
      expect(thrown(() => verifyCertificate(signed, [ca.certificate], vectorTime)).message).toContain(reason);
    });
  }

  test("signs within the limits; a CA without limits allows everything", () => {
    const limited = makeCa({ version: 2, name: "limited", ...limits, ...life });
    const inside = { networks: ["10.42.255.254/16"], unsafeNetworks: ["172.31.0.0/24"], groups: ["cli"] };
    const child = signCertificate({ ...hostTemplate(limited), ...inside }, limited);
    verifyCertificate(child, [limited.certificate], vectorTime);
    const open = makeCa({ version: 1, name: "open", ...life });
    verifyCertificate(signCertificate(hostTemplate(open), open), [open.certificate], vectorTime);
  });

  test("a version 1 CA with network limits refuses every IPv6 network", () => {
    const ca = makeCa({ version: 1, name: "limited", networks: ["10.42.0.0/16"], ...life });
    const template = { ...hostTemplate(ca), version: 2 as const, networks: ["10.42.0.5/16", "fd00::5/64"] };
    expect(thrown(() => signCertificate(template, ca)).message).toContain("fd00::5/64");
  });
});

describe("invalid fields", () => {
  const cases: [string, 1 | 2, Partial<HostTemplate>][] = [
    ["an empty name", 1, { name: "" }],
    ["a name of 254 bytes", 2, { name: "ä".repeat(127) }],
    ["a name that is half a character", 1, { name: "\ud800" }],
    ["an empty group", 1, { groups: ["a", ""] }],
    ["no network", 1, { networks: [] }],
    ["IPv6 in version 1", 1, { networks: ["fd00::1/64"] }],
    ["an IPv6 subnet in version 1", 1, { unsafeNetworks: ["fd00::/64"] }],
    ["the same network twice", 2, { networks: ["10.42.0.5/16", "10.42.0.5/16"] }],
    ["the same network twice in version 1", 1, { networks: ["10.42.0.5/16", "10.42.0.5/16"] }],
    [
      "the same subnet twice in different forms",
      2,
      { networks: ["fd00::1/64"], unsafeNetworks: ["fd01::/64", "fd01:0::/64"] },
    ],
    ["the unspecified address", 1, { networks: ["0.0.0.0/8"] }],
    ["the unspecified IPv6 address", 2, { networks: ["::/64"] }],
    ["an IPv4-mapped address", 2, { networks: ["::ffff:10.0.0.1/120"] }],
    ["an IPv6 subnet without an IPv6 network", 2, { unsafeNetworks: ["fd00::/64"] }],
    [
      "an IPv4 subnet without an IPv4 network",
      2,
      { networks: ["fd00::1/64"], unsafeNetworks: ["10.0.0.0/8"] },
    ],
    ["a leading zero", 1, { networks: ["10.042.0.5/16"] }],
    ["a prefix over 32", 1, { networks: ["10.42.0.5/33"] }],
    ["a zone", 2, { networks: ["fe80::1%eth0/64"] }],
    ["a name for a network", 1, { networks: ["localhost/16"] }],
    ["no prefix", 1, { networks: ["10.42.0.5"] }],
    ["a key of the other curve", 1, { publicKey: publicKeyFor("P256") }],
    ["a key that is too short", 2, { publicKey: new Uint8Array(31) }],
    ["a time before 1970", 1, { notBefore: -1 }],
    ["half a second", 1, { notAfter: vectorTime + 0.5 }],
    ["an end before the start", 1, { notBefore: vectorTime, notAfter: vectorTime - 1 }],
  ];
  test.each(cases)("%s (version %d)", (_, version, change) => {
    const ca = makeCa({ version, name: "ca", notBefore: 0, notAfter: 2 ** 40 });
    expect(thrown(() => signCertificate({ ...hostTemplate(ca), ...change }, ca)).code).toBe("bad_request");
  });

  test("a host cannot sign", () => {
    const ca = makeCa({ version: 1, name: "ca", ...life });
    const host = signCertificate(hostTemplate(ca), ca);
    expect(thrown(() => signCertificate(hostTemplate(ca), { ...ca, certificate: host })).message).toContain(
      "not a CA",
    );
  });
});

describe("verification", () => {
  const ca = makeCa({ version: 1, name: "ca", ...life });
  const host = signCertificate(hostTemplate(ca), ca);

  test("refuses a blocklisted certificate first", () => {
    const blocklist = new Set([fingerprint(host)]);
    expect(thrown(() => verifyCertificate(host, [], 0, blocklist)).message).toContain("blocklist");
    verifyCertificate(host, [ca.certificate], vectorTime, new Set([fingerprint(ca.certificate)]));
  });

  test("refuses another CA of the same name, a changed byte, an expired CA, a CA as a host, a host as a CA", () => {
    const other = makeCa({ version: 1, name: "ca", ...life });
    expect(thrown(() => verifyCertificate(host, [other.certificate], vectorTime)).message).toContain(
      "trusted",
    );
    const details = Uint8Array.from(host.details);
    details[3] = (details[3] ?? 0) ^ 1;
    expect(
      thrown(() => verifyCertificate({ ...host, details }, [ca.certificate], vectorTime)).message,
    ).toContain("signature");
    expect(thrown(() => verifyCertificate(host, [ca.certificate], life.notAfter + 1)).message).toContain(
      "expired",
    );
    expect(thrown(() => verifyCertificate(ca.certificate, [ca.certificate], vectorTime)).message).toContain(
      "is a CA",
    );
    expect(thrown(() => decodeCaBundle(encodePem(host))).message).toContain("not a CA");
    const forged = { ...ca.certificate, signature: host.signature };
    expect(thrown(() => decodeCaBundle(encodePem(forged))).message).toContain("own signature");
  });

  test("refuses a certificate with another curve than its CA", () => {
    const child = { ...host, curve: "P256" as const };
    expect(thrown(() => verifyCertificate(child, [ca.certificate], vectorTime, new Set())).code).toBe(
      "bad_request",
    );
    expect(thrown(() => verifyCertificate(child, [ca.certificate], vectorTime)).message).toContain("curve");
  });

  test("both forms of a P-256 signature verify, and the blocklist of one contains the other", () => {
    const cas = decodeCaBundle(vector("v1p256.crt").pem + vector("v2p256.crt").pem);
    for (const file of ["h_v1_p256.crt", "h_v2_p256.crt"]) {
      const own = decodeOne(vector(file).pem);
      const twin = decodeOne(encodePem({ ...own, signature: twinSignature(own.signature) }));
      expect(fingerprint(twin)).not.toBe(fingerprint(own));
      expect(fingerprints(twin).toSorted()).toEqual(fingerprints(own).toSorted());
      expect(twinSignature(twin.signature)).toEqual(own.signature);
      verifyCertificate(twin, cas, vectorTime);
      const blocklist = new Set([fingerprint(own)]);
      expect(thrown(() => verifyCertificate(twin, cas, vectorTime, blocklist)).message).toContain(
        "blocklist",
      );
    }
  });
});

describe("bundles", () => {
  const first = vector("h_v1_full.crt").pem;
  const second = vector("h_v2_full.crt").pem;

  test("several certificates, with comments and Windows line ends", () => {
    const bundle = `# issued to a host\n${first}\n# the newer form\n${second.replaceAll("\n", "\r\n")}\n \n`;
    expect(decodeBundle(bundle).map((each) => each.version)).toEqual([1, 2]);
  });

  const { privatePem } = makeHostKey();
  const cases: [string, string][] = [
    ["nothing", ""],
    ["only a comment", "hello\n"],
    ["text after the last block", `${first}# the end\n`],
    ["a block without an end", first.replace(/-----END.*/, "")],
    ["a truncated block", first.slice(0, first.length / 2)],
    ["a block with another end", first.replace("END NEBULA CERTIFICATE", "END CERTIFICATE")],
    ["characters that are not base64", first.replace(/\n./, "\n*")],
    ["a block in a block", first.replace("\n", `\n${second}`)],
    ["an empty block", "-----BEGIN NEBULA CERTIFICATE-----\n-----END NEBULA CERTIFICATE-----\n"],
    ["a private key", first + privatePem],
    ["version 2 bytes with the label of version 1", second.replaceAll("CERTIFICATE V2", "CERTIFICATE")],
    ["version 1 bytes with the label of version 2", first.replaceAll("CERTIFICATE", "CERTIFICATE V2")],
  ];
  test.each(cases)("%s is refused", (_, pem) => {
    expect(thrown(() => decodeBundle(pem)).code).toBe("bad_request");
  });

  test("a certificate over 64 KiB is refused", () => {
    for (const banner of ["NEBULA CERTIFICATE", "NEBULA CERTIFICATE V2"]) {
      const pem = formatPem(banner, new Uint8Array(65_537));
      expect(thrown(() => decodeBundle(pem)).message).toContain("65536");
    }
  });
});

test("an encrypted key without or with a wrong passphrase is refused", async () => {
  expect((await rejection(readCaKey(key("enced.key")))).code).toBe("invalid_credentials");
  expect((await rejection(readCaKey(key("enced.key"), "wrong"))).code).toBe("invalid_credentials");
});
