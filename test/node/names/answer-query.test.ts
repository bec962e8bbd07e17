// Answers of the resolver to single packets: what is answered, refused, truncated and dropped.

import { describe, expect, test } from "bun:test";
import { decode, encode, type Packet, type RecordType } from "dns-packet";
import { answerQuery } from "../../../src/node/names/answer-query.ts";
import type { NameRecord } from "../../../src/node/names/name-records.ts";
import { openNames, packNames } from "../../../src/node/names/packed-names.ts";
import { domainsOf, reverseZones } from "../../../src/node/names/reverse-zones.ts";
import { indexNames } from "../../../src/node/names/name-index.ts";
import { makeRandom } from "../../support/random.ts";
import { inFull } from "../../support/soak.ts";

const networks = ["10.77.0.0/16", "fd00:77::/32"];
const entry = (label: string, address: readonly string[], kind: NameRecord["kind"] = "node") => ({
  names: [`${label}.acme.internal`],
  addresses: address,
  slug: "acme",
  node: label,
  kind,
});
const zone = (slug: string) => ({
  slug,
  device: undefined,
  addresses: [],
  domains: domainsOf(slug, networks),
});
const packed = packNames([
  entry("beta", ["10.77.0.2", "fd00:77::2"]),
  entry("gamma", ["10.77.0.3"]),
  entry("db", ["10.77.0.2", "fd00:77::2"], "alias"),
  entry("printer", ["192.168.1.9"], "alias"),
  { ...entry("beta", ["10.77.0.2"]), names: ["beta.other.internal"], slug: "other" },
]);
const index = indexNames(openNames(packed), [zone("acme"), zone("other")]);
const reverse6 = `${"2".padEnd(24, "0").split("").join(".")}.7.7.0.0.0.0.d.f.ip6.arpa`;

const query = (name: string, type: RecordType = "A", more: Packet = {}): Buffer =>
  encode({ type: "query", id: 77, flags: 0x100, questions: [{ type, name }], ...more });
const raw = (packet: Uint8Array) => answerQuery(packet, index, "udp");
function ask(name: string, type: RecordType = "A", more: Packet = {}) {
  const reply = raw(query(name, type, more));
  if (reply === undefined) throw new Error("no answer");
  return decode(Buffer.from(reply));
}
const dataOf = (name: string, type: RecordType) =>
  ask(name, type).answers?.map((each) => ("data" in each ? each.data : "")) ?? [];

describe("the resolver answers", () => {
  test("addresses and reverse names, in the case of the question, for one second", () => {
    const reply = ask("BeTa.acme.INTERNAL");
    expect(reply).toMatchObject({ id: 77, flag_qr: true, flag_aa: true, flag_ra: false, flag_rd: true });
    expect(reply.questions?.[0]?.name).toBe("BeTa.acme.INTERNAL");
    expect(reply.answers).toMatchObject([
      { name: "BeTa.acme.INTERNAL", type: "A", ttl: 1, data: "10.77.0.2" },
    ]);
    expect(dataOf("beta.acme.internal", "AAAA")).toEqual(["fd00:77::2"]);
    expect(dataOf("3.0.77.10.in-addr.arpa", "PTR")).toEqual(["gamma.acme.internal"]);
    expect(dataOf(reverse6, "PTR")).toEqual(["beta.acme.internal"]);
  });

  test("each organization's node of the same name and address by its own name", () => {
    expect(dataOf("beta.other.internal", "A")).toEqual(["10.77.0.2"]);
    expect(dataOf("2.0.77.10.in-addr.arpa", "PTR")).toEqual(["beta.acme.internal", "beta.other.internal"]);
  });

  test("a name without this type differently from a name that does not exist", () => {
    const negative = (name: string, type: RecordType = "A") => {
      const { rcode, answers, authorities } = ask(name, type) as ReturnType<typeof ask> & { rcode: string };
      expect(answers).toEqual([]);
      expect(authorities).toMatchObject([{ type: "SOA", ttl: 1, data: { minimum: 1 } }]);
      return rcode;
    };
    expect(negative("gamma.acme.internal", "AAAA")).toBe("NOERROR");
    expect(negative("beta.acme.internal", "MX")).toBe("NOERROR");
    expect(negative("acme.internal")).toBe("NOERROR");
    expect(negative("0.77.10.in-addr.arpa", "PTR")).toBe("NOERROR");
    expect(negative("nothing.acme.internal")).toBe("NXDOMAIN");
    expect(negative("x.beta.acme.internal")).toBe("NXDOMAIN");
    expect(negative("9.9.77.10.in-addr.arpa", "PTR")).toBe("NXDOMAIN");
    expect(negative("300.0.77.10.in-addr.arpa", "PTR")).toBe("NXDOMAIN");
    expect(ask("acme.internal", "SOA").answers).toMatchObject([{ type: "SOA", name: "acme.internal" }]);
  });

  test("nothing outside its zones, and no questions for everything", () => {
    const refused = (name: string, type: RecordType = "A") =>
      expect(ask(name, type)).toMatchObject({ rcode: "REFUSED", flag_aa: false, answers: [] });
    for (const name of ["example.com", "internal", "notacme.internal", "9.1.168.192.in-addr.arpa", "."])
      refused(name);
    refused("beta.acme.internal", "ANY" as RecordType);
    refused("acme.internal", "AXFR");
    refused("acme.internal", "IXFR");
    expect(
      ask("beta.acme.internal", "A", { questions: [{ type: "A", name: "beta.acme.internal", class: "CH" }] }),
    ).toMatchObject({ rcode: "REFUSED" });
  });

  test("other operations, counts and EDNS versions with the code for it", () => {
    const opcode = query("beta.acme.internal");
    opcode.writeUInt16BE(0x2800, 2);
    expect(decode(Buffer.from(raw(opcode) ?? []))).toMatchObject({ rcode: "NOTIMP", questions: [] });
    const two = {
      questions: ["a", "b"].map((name) => ({ type: "A" as const, name: `${name}.acme.internal` })),
    };
    expect(ask("", "A", two)).toMatchObject({ rcode: "FORMERR" });
    const opt = {
      type: "OPT" as const,
      name: "." as const,
      udpPayloadSize: 4096,
      flags: 0,
      options: [] as [],
    };
    const plain = ask("beta.acme.internal", "A", {
      additionals: [{ ...opt, extendedRcode: 0, ednsVersion: 0, flag_do: true }],
    });
    expect(plain.additionals).toMatchObject([{ type: "OPT", udpPayloadSize: 1232, ednsVersion: 0 }]);
    expect(plain.answers).toHaveLength(1);
    const newer = ask("beta.acme.internal", "A", {
      additionals: [{ ...opt, extendedRcode: 0, ednsVersion: 1, flag_do: false }],
    });
    expect(newer).toMatchObject({ answers: [], additionals: [{ extendedRcode: 1 }] });
  });

  test("truncated over UDP what is too long, whole over TCP", () => {
    const label = "x".repeat(63);
    const names = Array.from({ length: 8 }, (_, at) => ({
      ...entry(label, ["10.77.0.2"]),
      names: [`${label}.${"y".repeat(39)}${at}.internal`],
    }));
    const many = indexNames(openNames(packNames(names)), [zone("acme")]);
    const packet = query("2.0.77.10.in-addr.arpa", "PTR");
    const short = decode(Buffer.from(answerQuery(packet, many, "udp") ?? []));
    expect(short).toMatchObject({ flag_tc: true, answers: [], flag_aa: true });
    const whole = decode(Buffer.from(answerQuery(packet, many, "tcp") ?? []));
    expect([whole.flag_tc, whole.answers?.length]).toEqual([false, 8]);
  });

  test("no responses, and no packets that cannot be parsed", () => {
    const response = query("beta.acme.internal");
    response.writeUInt16BE(0x8180, 2);
    expect(raw(response)).toBeUndefined();
    expect(raw(new Uint8Array(0))).toBeUndefined();
    expect(raw(query("beta.acme.internal").subarray(0, 20))).toBeUndefined();
    const pointer = query("beta.acme.internal");
    pointer.writeUInt16BE(0xc00c, 12);
    expect(raw(pointer)).toBeUndefined();
    // One label that contains the dots: another name than that of the node.
    const dotted = Buffer.concat([
      query(".").subarray(0, 12),
      Buffer.from([18]),
      Buffer.from("beta.acme.internal\0"),
    ]);
    expect(raw(Buffer.concat([dotted, Buffer.from([0, 1, 0, 1])]))).toBeUndefined();
    expect(raw(Buffer.concat([query("beta.acme.internal"), Buffer.alloc(2000)]))).toHaveLength(12);
  });

  test("damaged packets without throwing, and never with more than the limit", () => {
    const next = makeRandom(23);
    const random = (below: number) => Math.floor(next() * below);
    const seeds = [
      query("beta.acme.internal"),
      query(reverse6, "PTR"),
      query("nothing.acme.internal", "AAAA"),
    ];
    for (let round = 0; round < (inFull ? 1_000_000 : 20_000); round++) {
      const packet = Buffer.from(seeds[round % seeds.length] ?? []);
      for (let changes = random(6); changes > 0; changes--) packet[random(packet.length)] = random(256);
      const reply = raw(packet.subarray(0, random(4) === 0 ? random(packet.length) : packet.length));
      if (reply !== undefined) expect(reply.length).toBeLessThanOrEqual(1232);
    }
  }, 300_000);
});

test("reverse zones are exactly the addresses of a network", () => {
  expect(reverseZones("10.77.0.0/16")).toEqual(["77.10.in-addr.arpa"]);
  expect(reverseZones("10.77.4.0/22").toSorted()).toEqual(
    [4, 5, 6, 7].map((each) => `${each}.77.10.in-addr.arpa`),
  );
  expect(reverseZones("10.77.0.8/31")).toEqual(["8.0.77.10.in-addr.arpa", "9.0.77.10.in-addr.arpa"]);
  expect(reverseZones("100.64.0.0/10")).toHaveLength(64);
  expect(reverseZones("fd00:76::/31")).toHaveLength(2);
  expect(reverseZones("fd00:77::/32")).toEqual(["7.7.0.0.0.0.d.f.ip6.arpa"]);
  // Too wide to be an overlay's.
  expect(reverseZones("0.0.0.0/1")).toEqual([]);
  expect(reverseZones("::/0")).toEqual([]);
  expect(reverseZones("no network")).toEqual([]);
});
