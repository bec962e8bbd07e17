// Untrusted certificates: any bytes are either parsed correctly or refused with an AppError.

import { describe, expect, test } from "bun:test";
import * as asn1js from "asn1js";
import * as fc from "fast-check";
import { AppError } from "../../src/base/errors.ts";
import { decodeBundle, encodeBytes, encodePem } from "../../src/pki/bundle.ts";
import {
  decodeCaBundle,
  fingerprint,
  makeCa,
  signCertificate,
  verifyCertificate,
  type HostTemplate,
} from "../../src/pki/nebula.ts";
import { formatPem, parsePem } from "../../src/pki/pem.ts";
import { thrown } from "./thrown.ts";
import { hex, vector, vectors, vectorTime } from "./vectors.ts";

const banners = { 1: "NEBULA CERTIFICATE", 2: "NEBULA CERTIFICATE V2" } as const;

/** What becomes of the bytes; an error of any other kind is a crash and fails the test. */
function outcome(pem: string): "read" | "refused" {
  try {
    for (const certificate of decodeBundle(pem)) encodeBytes(certificate);
    return "read";
  } catch (error) {
    if (error instanceof AppError && error.code === "bad_request") return "refused";
    throw error;
  }
}

describe("untrusted bytes", () => {
  test("any bytes with a valid label", () => {
    fc.assert(
      fc.property(
        fc.constantFrom(1, 2),
        fc.uint8Array({ minLength: 1, maxLength: 300 }),
        (version, bytes) => {
          expect(outcome(formatPem(banners[version], bytes))).toBe("refused");
        },
      ),
      { numRuns: 2000 },
    );
  });

  test("any text", () => {
    fc.assert(
      fc.property(
        fc.array(
          fc.constantFrom(
            "-----BEGIN ",
            "NEBULA CERTIFICATE",
            "-----END ",
            "-----",
            "\n",
            "AAAA",
            "=",
            "\r",
            " ",
          ),
        ),
        (words) => {
          expect(outcome(words.join(""))).toBe("refused");
        },
      ),
      { numRuns: 2000 },
    );
  });

  test("a truncated, extended or changed certificate never passes as another one of its CA", () => {
    const cas = decodeCaBundle(
      vectors
        .filter((each) => each.input.isCA)
        .map((each) => each.pem)
        .join(""),
    );
    const hosts = vectors.filter((each) => !each.input.isCA);
    const change = fc.record({
      at: fc.nat(2000),
      byte: fc.nat(255),
      kind: fc.constantFrom("set", "cut", "insert"),
    });
    fc.assert(
      fc.property(
        fc.constantFrom(...hosts),
        fc.array(change, { minLength: 1, maxLength: 3 }),
        (host, changes) => {
          const bytes = [...hex(host.derOrProtoHex)];
          for (const { at, byte, kind } of changes) {
            const place = at % bytes.length;
            if (kind === "set") bytes[place] = byte;
            else bytes.splice(place, kind === "cut" ? 1 : 0, ...(kind === "cut" ? [] : [byte]));
          }
          if (Buffer.from(bytes).toString("hex") === host.derOrProtoHex) return;
          const pem = formatPem(banners[host.version], Uint8Array.from(bytes));
          if (outcome(pem) === "refused") return;
          for (const certificate of decodeBundle(pem)) {
            if (fingerprint(certificate) === host.fingerprint) continue;
            expect(thrown(() => verifyCertificate(certificate, cas, vectorTime)).code).toMatch(
              /validation_failed|bad_request/,
            );
          }
        },
      ),
      { numRuns: 4000 },
    );
  });
});

test("unused bits of a number do not change the fingerprint, so the blocklist matches", () => {
  const host = vector("h_v1_full.crt");
  const bytes = hex(host.derOrProtoHex);
  // The last byte of the mask of 172.16.5.0/24: of five times seven bits, 32 count.
  expect(bytes[44]).toBe(0x0f);
  bytes[44] = 0x5f;
  const [certificate] = decodeBundle(formatPem(banners[1], bytes));
  expect(certificate && fingerprint(certificate)).toBe(host.fingerprint);
});

/** Details, and around them a certificate of version 1 with a signature of 64 bytes. */
function protobuf(...details: string[]): string {
  const inner = Buffer.from(details.join(""), "hex");
  const bytes = [0x0a, inner.length, ...inner, 0x12, 64, ...new Uint8Array(64)];
  return formatPem(banners[1], Uint8Array.from(bytes));
}

describe("version 1", () => {
  const name = "0a026e31";
  const networks = "12098580b4508080fcff0f";
  const times = "28013002";
  const publicKey = `3a20${"07".repeat(32)}`;
  const issuer = `4a20${"08".repeat(32)}`;

  test("the parts used by the cases below are valid together", () => {
    const [certificate] = decodeBundle(protobuf(name, networks, times, publicKey, issuer));
    expect(certificate).toMatchObject({ name: "n1", networks: ["10.13.0.5/16"], notBefore: 1, notAfter: 2 });
  });

  const cases: [string, string][] = [
    ["an odd list of addresses", protobuf(name, "12048580b450", times, publicKey, issuer)],
    ["a mask with a hole", protobuf(name, "12098580b45080fe83f80f", times, publicKey, issuer)],
    ["the unspecified address", protobuf(name, "1206008080fcff0f", times, publicKey, issuer)],
    ["no network", protobuf(name, times, publicKey, issuer)],
    ["no key", protobuf(name, networks, times, issuer)],
    ["a short key", protobuf(name, networks, times, "3a0107", issuer)],
    ["an issuer of 31 bytes", protobuf(name, networks, times, publicKey, `4a1f${"08".repeat(31)}`)],
    ["no issuer", protobuf(name, networks, times, publicKey)],
    ["a CA with an issuer", protobuf(name, networks, times, publicKey, "4001", issuer)],
    ["an unknown field", protobuf(name, networks, times, publicKey, issuer, "5001")],
    ["an unknown curve", protobuf(name, networks, times, publicKey, issuer, "a00602")],
    ["P-256 with a key of 32 bytes", protobuf(name, networks, times, publicKey, issuer, "a00601")],
    ["details without end", protobuf("0aff7f")],
    ["an empty group", protobuf(name, networks, "2200", times, publicKey, issuer)],
    ["a name that is not UTF-8", protobuf("0a02c328", networks, times, publicKey, issuer)],
    ["a negative time", protobuf(name, networks, `28${"ff".repeat(9)}013002`, publicKey, issuer)],
    ["a list that is not packed", protobuf(name, "108580b450108080fcff0f", times, publicKey, issuer)],
    ["bytes after the end", vector("h_v1_min.crt").pem.replace(/\n(?=-----END)/, "AA==\n")],
  ];
  test.each(cases)("%s is refused", (_, pem) => {
    expect(outcome(pem)).toBe("refused");
  });
});

describe("version 1, encoded differently", () => {
  const parts = [
    "0a026e31",
    "12098580b4508080fcff0f",
    "28013002",
    `3a20${"07".repeat(32)}`,
    `4a20${"08".repeat(32)}`,
  ];
  const [own] = decodeBundle(protobuf(...parts));
  test.each([
    ["fields in another order", parts.toReversed()],
    ["a field twice, where the last one counts", ["0a026e30", ...parts]],
    ["numbers longer than necessary", parts.map((part) => part.replace("28013002", "288100308200"))],
    ["a mask with bits beyond the 32", parts.map((part) => part.replace("fcff0f", "fcff2f"))],
  ])("%s: the same certificate, as for the engine", (_, spelling) => {
    const [certificate] = decodeBundle(protobuf(...spelling));
    expect(certificate).toEqual(own);
  });
});

describe("version 2", () => {
  const { bytes } = parsePem(vector("h_v2_full.crt").pem)[0] ?? { bytes: new Uint8Array() };
  /** The vector with one stretch of hex replaced; lengths around it are the case's own affair. */
  const altered = (from: string, to: string) => {
    const text = Buffer.from(bytes).toString("hex");
    expect(text.split(from)).toHaveLength(2);
    return formatPem(banners[2], hex(text.replace(from, to)));
  };

  test.each([
    ["a network of four bytes", "04050a2a010418", "04040a2a010418"],
    ["a prefix over 32", "04050a2a010418", "04050a2a010421"],
    ["the same network twice", "04050a2a010418", "04050a2a010510"],
    ["an empty group", "0c03737276", "0c00737276"],
    ["a group of another type", "0c03737276", "1303737276"],
    ["a time with an unnecessary zero", "85046b001208", "850400001208"],
    ["a negative time", "85046b001208", "8504eb001208"],
    ["a length in the long form instead of the short form", "85046b001208", "8581046b0012"],
    ["an indefinite length", "85046b001208", "85806b001208"],
  ])("%s is refused", (_, from, to) => {
    expect(outcome(altered(from, to))).toBe("refused");
  });

  test("refuses every truncation, and bytes after the end", () => {
    for (let length = 1; length < bytes.length; length++) {
      expect(outcome(formatPem(banners[2], bytes.subarray(0, length)))).toBe("refused");
    }
    expect(outcome(formatPem(banners[2], Uint8Array.of(...bytes, 0)))).toBe("refused");
  });
});

const text = fc.string({ unit: "grapheme", minLength: 1, maxLength: 30 });
const ipv4 = fc
  .tuple(fc.integer({ min: 1, max: 255 }), fc.nat(255), fc.nat(255), fc.nat(255), fc.nat(32))
  .map(([a, b, c, d, prefix]) => `${a}.${b}.${c}.${d}/${prefix}`);
/** All eight groups, many of them zero: what there is to shorten. */
const ipv6 = fc
  .tuple(fc.array(fc.oneof(fc.constant(0), fc.nat(0xffff)), { minLength: 7, maxLength: 7 }), fc.nat(128))
  .map(([groups, prefix]) => `fd00:${groups.map((group) => group.toString(16)).join(":")}/${prefix}`);

const template: fc.Arbitrary<HostTemplate> = fc.constantFrom(1, 2).chain((version) => {
  const network = version === 1 ? ipv4 : fc.oneof(ipv4, fc.constant("fd00::1/64"));
  return fc.record({
    version: fc.constant(version),
    name: text,
    networks: fc.uniqueArray(network, { minLength: 1, maxLength: 4 }),
    unsafeNetworks: fc.constant<string[]>([]),
    groups: fc.array(text, { maxLength: 200 }),
    notBefore: fc.integer({ min: 0, max: 2 ** 33 }),
    notAfter: fc.integer({ min: 2 ** 33, max: 2 ** 40 }),
    publicKey: fc.uint8Array({ minLength: 32, maxLength: 32 }),
  });
});

describe("encoding", () => {
  const ca = makeCa({ version: 2, name: "ca", notBefore: 0, notAfter: 2 ** 41 });

  test("decodes to the same fields, and encodes to the same bytes again", () => {
    fc.assert(
      fc.property(template, (fields) => {
        const certificate = signCertificate(fields, ca);
        const [again] = decodeBundle(encodePem(certificate));
        if (again === undefined) throw new Error("nothing was read");
        expect(again).toEqual(certificate);
        expect(fingerprint(again)).toBe(fingerprint(certificate));
        verifyCertificate(again, [ca.certificate], 2 ** 33);
      }),
    );
  });

  test("version 2 is valid DER for an independent parser", () => {
    fc.assert(
      fc.property(template, (fields) => {
        const bytes = encodeBytes(signCertificate({ ...fields, version: 2 }, ca));
        const { result, offset } = asn1js.fromBER(bytes);
        expect(offset).toBe(bytes.length);
        expect(Buffer.from(result.toBER())).toEqual(Buffer.from(bytes));
      }),
    );
  });

  test("an IPv6 network has one canonical form (RFC 5952)", () => {
    fc.assert(
      fc.property(ipv6, (network) => {
        const fields = {
          version: 2 as const,
          name: "n",
          networks: [network.toUpperCase()],
          unsafeNetworks: [],
          groups: [],
        };
        const key = { notBefore: 1, notAfter: 2, publicKey: new Uint8Array(32).fill(1) };
        const [written = ""] = signCertificate({ ...fields, ...key }, ca).networks;
        const url = new URL(`http://[${network.split("/")[0]}]/`);
        expect(`[${written.split("/")[0]}]`).toBe(url.hostname);
      }),
    );
  });
});
