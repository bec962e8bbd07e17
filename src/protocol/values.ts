// Values that several messages share. Every string, list and record has a maximum; those of answers are far above what
// any version sends.

import * as v from "valibot";
import { maxLabel } from "./host-labels.ts";
import { slugPattern } from "../base/slug.ts";
import { foreignText } from "../base/text.ts";

/** A string that is not empty. */
export const text = (max: number) => v.pipe(foreignText(max), v.minLength(1));

/** A string in an answer or a file. It may be empty. */
export const received = (max: number) => foreignText(max);

export const time = received(64);

export const address = received(64);

/** A signed order, or the proof of a new order key, in compact serialization. */
export const jws = received(32_768);

/** Both limits are allowed. */
export const wholeWithin = (min: number, max: number) =>
  v.pipe(v.number(), v.integer(), v.minValue(min), v.maxValue(max));

/** Up to the database's maximum, since a larger number would fail the batch that holds the reports of all nodes. */
export const wholeNumber = wholeWithin(0, Number.MAX_SAFE_INTEGER);

/** At most the largest integer that the database holds exactly. */
export const recordId = wholeWithin(1, Number.MAX_SAFE_INTEGER);

/** A text that holds JSON of the schema. */
export const jsonTextOf = <const S extends v.GenericSchema>(schema: S) =>
  v.pipe(v.string(), v.parseJson(), schema);

/** A list of at most `max` items. */
export const listOf = <const S extends v.GenericSchema>(schema: S, max: number) =>
  v.pipe(v.array(schema), v.maxLength(max));

export const Slug = v.pipe(
  foreignText(40),
  v.regex(slugPattern, "Enter 1 to 40 of a-z, 0-9 and -, beginning with a letter."),
);

/** One DNS label, lower case (RFC 1123), as the source of a regular expression. */
export const lowerCaseLabel = `[a-z0-9]([a-z0-9-]{0,${maxLabel - 2}}[a-z0-9])?`;

export const NodeName = v.pipe(
  foreignText(maxLabel),
  v.regex(
    new RegExp(`^${lowerCaseLabel}$`),
    `A node name is one DNS label: 1 to ${maxLabel} of a-z, 0-9 and -.`,
  ),
  // The engine's firewall takes `any` for all nodes.
  v.check((name) => name !== "any", 'A node cannot be named "any".'),
);

const maxGroupName = 63;
/** The name of a group, as the source of a regular expression. */
export const groupName = `[A-Za-z0-9][A-Za-z0-9_.:-]{0,${maxGroupName - 1}}`;

/** The engine reads `any` as every peer, in every field, so it cannot be a name. */
export const GroupName = v.pipe(
  foreignText(maxGroupName),
  v.regex(
    new RegExp(`^${groupName}$`),
    `A group name is 1 to ${maxGroupName} of letters, digits, _ . : and -.`,
  ),
  v.check((name) => name.toLowerCase() !== "any", '"any" means every node and cannot be a name.'),
);

export const Port = wholeWithin(1, 65_535);

const dnsName = new RegExp(`^(${lowerCaseLabel}\\.)*${lowerCaseLabel}$`, "i");

/** IPv4 inside IPv6, ::ffff:192.0.2.1. Refused, because other checks, such as that for the overlay's network, expect plain IPv4. */
const mappedIpv4 = /^[0:]*:ffff:[0-9a-f]{1,4}:[0-9a-f]{1,4}$/i;

/**
 * An address of the underlay: IPv4, IPv6 or a DNS name, without a port. A string that looks like an address must be
 * one: with an invalid lighthouse host, old engines refuse the configuration of every other node.
 */
export const PublicAddress = v.pipe(
  foreignText(253),
  v.check((host) => {
    if (host.includes(":")) return v.IPV6_REGEX.test(host) && !/[%.]/.test(host) && !mappedIpv4.test(host);
    return /(^|\.)\d+$/.test(host) ? v.IPV4_REGEX.test(host) : dnsName.test(host);
  }, "Enter an IP address or a DNS name."),
);

export const Mode = v.picklist(["server", "desktop"]);
export type Mode = v.InferOutput<typeof Mode>;

/** JWK of an Ed25519 public key (RFC 8037). */
export const OrderKey = v.object({
  kty: v.literal("OKP"),
  crv: v.literal("Ed25519"),
  x: text(64),
  kid: text(64),
});
export type OrderKey = v.InferOutput<typeof OrderKey>;

export const Certificate = v.object({
  fingerprint: received(128),
  version: v.union([v.literal(1), v.literal(2)]),
  not_before: time,
  not_after: time,
});

/** How the engine of a node exchanges packets with its kernel, in words: src/engine/data-plane-words.ts. */
export const DataPlaneReport = v.object({
  tun_offloads: v.boolean(),
  udp_offloads: v.boolean(),
  /** Bytes of the UDP socket's buffers, in each direction; unset: the system's. */
  buffer_bytes: v.optional(wholeNumber),
  /** The reason for less: a key of dataPlaneWhys, or a word of a newer node. */
  why: v.optional(text(32)),
  /** The exit that packets of the machine take to the internet, or would take if it answered. */
  exit: v.optional(v.object({ name: text(255), is_used: v.boolean() })),
});
export type DataPlaneReport = v.InferOutput<typeof DataPlaneReport>;
