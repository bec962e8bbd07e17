// Answers one DNS query (RFC 1035, EDNS: RFC 6891) from the names of this machine. Authoritative for their zones, refuses
// everything else, and never asks another server. Pure.

import { decode, encode, type Answer, type DecodedPacket, type OptAnswer, type Packet } from "dns-packet";
import type { NameIndex, Records } from "./name-index.ts";

/** Clients see a change of names this soon; a cache must not keep an answer longer. */
const ttl = 1;
/** The maximum of an answer without EDNS (RFC 1035, section 4.2.1). */
const plainBytes = 512;
/** The maximum with EDNS: a datagram of this size is not fragmented. */
const ednsBytes = 1232;
/** A query is a header, one name of at most 255 bytes, and EDNS options. */
const maxQueryBytes = 1024;
const headerBytes = 12;

const flag = {
  response: 0x8000,
  authoritative: 0x400,
  truncated: 0x200,
  recursion: 0x100,
  checkingDisabled: 0x10,
};
const opcodeMask = 0x7800;
const rcode = { ok: 0, format: 1, nameError: 3, notImplemented: 4, refused: 5 };
/** The code BADVERS (RFC 6891) is 16: the OPT record has its bits above the four of the header. */
const badVersion = 16 >> 4;
/** Questions for more than one type, or for a whole zone. */
const refusedTypes = new Set(["ANY", "AXFR", "IXFR", "MAILA", "MAILB", "UNKNOWN_253", "UNKNOWN_254"]);

/**
 * Undefined: send nothing, because the packet is not a query or cannot be parsed. A UDP answer is no longer than the client
 * accepts. A TCP answer is below its limit of 64 KB: a name has at most 255 addresses, an address at most 8 names.
 */
export function answerQuery(
  packet: Uint8Array,
  index: NameIndex,
  transport: "udp" | "tcp",
): Uint8Array | undefined {
  const bytes = Buffer.from(packet.buffer, packet.byteOffset, packet.byteLength);
  // Never answer a response: this also prevents a loop with another server.
  if (bytes.length < headerBytes || (bytes.readUInt16BE(2) & flag.response) !== 0) return undefined;
  const flags = bytes.readUInt16BE(2);
  const echoedFlags = flags & (flag.recursion | flag.checkingDisabled);
  const refusal = refusalOf(bytes);
  if (refusal !== rcode.ok) {
    const opcode = flags & opcodeMask;
    return encode({ type: "response", id: bytes.readUInt16BE(0), flags: echoedFlags | opcode | refusal });
  }
  const query = decodeQuery(bytes);
  const [question] = query?.questions ?? [];
  if (query === undefined || question === undefined) return undefined;
  const edns = query.additionals?.find((each): each is OptAnswer => each.type === "OPT");
  const empty: Packet = { type: "response", id: query.id ?? 0, questions: [question] };
  const response = { ...empty, ...replyTo(question, index, edns) };
  response.flags = (response.flags ?? 0) | echoedFlags;
  if (edns !== undefined) response.additionals = [ownOpt(edns)];
  const reply = encode(response);
  // A label that contains a dot, or bytes that are not text, would not be repeated exactly. Such a name is not ours: send no answer.
  // On the wire, a name has a length in the place of each dot, one more before it, and a zero after it. Then come type and class.
  const questionEnd = headerBytes + question.name.length + (question.name === "." ? 0 : 2) + 4;
  if (!reply.subarray(headerBytes, questionEnd).equals(bytes.subarray(headerBytes, questionEnd)))
    return undefined;
  const limit =
    edns === undefined ? plainBytes : Math.min(Math.max(edns.udpPayloadSize, plainBytes), ednsBytes);
  if (transport === "tcp" || reply.length <= limit) return reply;
  const { additionals: opt = [] } = response;
  return encode({ ...empty, flags: (response.flags ?? 0) | flag.truncated, additionals: opt });
}

/** The code with which a packet is refused before it is parsed, because its counts and size decide how much work that is. */
function refusalOf(bytes: Buffer): number {
  if ((bytes.readUInt16BE(2) & opcodeMask) !== 0) return rcode.notImplemented;
  const questions = bytes.readUInt16BE(4);
  const answers = bytes.readUInt16BE(6);
  const authorities = bytes.readUInt16BE(8);
  const additionals = bytes.readUInt16BE(10);
  const isQuery = questions === 1 && answers === 0 && authorities === 0 && additionals <= 2;
  return isQuery && bytes.length <= maxQueryBytes ? rcode.ok : rcode.format;
}

function decodeQuery(bytes: Buffer): DecodedPacket | undefined {
  try {
    return decode(bytes);
  } catch {
    return undefined;
  }
}

type Reply = Pick<Packet, "flags" | "answers" | "authorities">;

function replyTo(
  question: { name: string; type: string; class?: string | undefined },
  index: NameIndex,
  edns: OptAnswer | undefined,
): Reply {
  if (edns !== undefined && edns.ednsVersion !== 0) return { flags: rcode.ok };
  const name = question.name.toLowerCase();
  const zone = question.class === "IN" ? index.zoneOf(name) : undefined;
  if (zone === undefined || refusedTypes.has(question.type)) return { flags: rcode.refused };
  const found = index.find(name);
  const answers = found === undefined ? [] : recordsOf(question.name, question.type, found);
  if (question.type === "SOA" && name === zone) answers.push(startOfAuthority(zone));
  return {
    flags: flag.authoritative | (found === undefined ? rcode.nameError : rcode.ok),
    answers,
    // The negative answer (RFC 2308): the name does not exist, or has no record of this type.
    authorities: answers.length === 0 ? [startOfAuthority(zone)] : [],
  };
}

/** `name`: in the case in which it was asked, which some clients check (draft-vixie-dnsext-dns0x20). */
function recordsOf(name: string, type: string, { addresses, pointers }: Records): Answer[] {
  const isV6 = type === "AAAA";
  if (type === "A" || isV6) {
    return addresses
      .filter((each) => each.includes(":") === isV6)
      .map((data) => ({ type, name, ttl, class: "IN", data }));
  }
  return type === "PTR" ? pointers.map((data) => ({ type, name, ttl, class: "IN", data })) : [];
}

function startOfAuthority(zone: string): Answer {
  const data = {
    mname: `localhost`,
    rname: `hostmaster.${zone}`,
    serial: 1,
    refresh: 3600,
    retry: 600,
    expire: 86_400,
    minimum: ttl,
  };
  return { type: "SOA", name: zone, ttl, class: "IN", data };
}

function ownOpt(asked: OptAnswer): OptAnswer {
  return {
    type: "OPT",
    name: ".",
    udpPayloadSize: ednsBytes,
    extendedRcode: asked.ednsVersion === 0 ? 0 : badVersion,
    ednsVersion: 0,
    flags: 0,
    flag_do: false,
    options: [],
  };
}
