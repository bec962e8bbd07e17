// The protocol between node and control plane: paths, requests, answers, errors, and the JSON files of an
// organization's directory. Requests are strict; answers are tolerant, because a newer server may send more. Every
// string, list and record has a maximum; those of answers are far above what any version sends.

import * as v from "valibot";
import { ClassName, NamesForPeers } from "./names-for-peers.ts";
import { slugPattern } from "./slug.ts";

export const paths = {
  health: "/healthz",
  token: "/api/token/",
  tokenRefresh: "/api/token/refresh/",
  tokenRevoke: "/api/token/revoke/",
  organizations: "/api/org/",
  organization: (slug: string) => `/api/org/${slug}/`,
  nodes: (slug: string) => `/api/org/${slug}/nodes/`,
  register: (slug: string) => `/api/org/${slug}/nodes/register/`,
  node: (slug: string, id: number) => `/api/org/${slug}/nodes/${id}/`,
  config: (slug: string, id: number) => `/api/org/${slug}/nodes/${id}/config/`,
  downloadConfig: (slug: string, id: number) => `/api/org/${slug}/nodes/${id}/download_config/`,
  checkin: (slug: string, id: number) => `/api/org/${slug}/nodes/${id}/checkin/`,
  renewCert: (slug: string, id: number) => `/api/org/${slug}/nodes/${id}/renew_cert/`,
  restore: (slug: string, id: number) => `/api/org/${slug}/nodes/${id}/restore/`,
} as const;

export const maxEtagLength = 255;

/** The longest time that a poll is held, seconds. */
export const maxPollWaitS = 55;

/**
 * The maximum number of entries in a blocklist: 7.3 MB of config.yml, below the 8 MiB that an agent reads. Engines can
 * take more: with 200,000 entries, 1.6.1 reloads in 2.3 s and needs 180 MB; 1.11 and 1.12 reload in 0.6 s.
 */
export const blocklistLimit = 100_000;
/** Server and node warn from this length on. */
export const blocklistWarning = blocklistLimit / 2;

const text = (max: number) => v.pipe(v.string(), v.minLength(1), v.maxLength(max));
/** A string in an answer or a file. It may be empty. */
const received = (max: number) => v.pipe(v.string(), v.maxLength(max));
const time = received(64);
const address = received(64);
/** A signed order, or the proof of a new order key, in compact serialization. */
const jws = received(32_768);
/** The database's maximum: one larger number would fail the batch with the reports of all nodes. */
const seconds = v.pipe(v.number(), v.integer(), v.minValue(0), v.maxValue(Number.MAX_SAFE_INTEGER));

export const Slug = v.pipe(
  v.string(),
  v.maxLength(40),
  v.regex(slugPattern, "Enter 1 to 40 of a-z, 0-9 and -, beginning with a letter."),
);

/** One DNS label, lower case (RFC 1123). */
export const NodeName = v.pipe(
  v.string(),
  v.maxLength(63),
  v.regex(/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/, "A node name is one DNS label: 1 to 63 of a-z, 0-9 and -."),
  // The engine's firewall takes `any` for all nodes.
  v.check((name) => name !== "any", 'A node cannot be named "any".'),
);

/** The maximum number of nodes in hosts.json, and of aliases. */
export const maxNames = 50_000;

export const Port = v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(65_535));

const dnsName = /^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/i;

/** A domain of at least two labels, in lower case. With the label of a node before it, it is still a DNS name. */
export const NameSuffix = v.pipe(
  v.string(),
  v.maxLength(189),
  v.regex(
    /^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?$/,
    "Enter a domain of two labels or more, in lower case, such as corp.example.",
  ),
);

/**
 * An address of the underlay: IPv4, IPv6 or a DNS name, without a port. A string that looks like an address must be
 * one: with an invalid lighthouse host, old engines refuse the configuration of every other node.
 */
export const PublicAddress = v.pipe(
  v.string(),
  v.maxLength(253),
  v.check((host) => {
    if (host.includes(":")) return v.IPV6_REGEX.test(host) && !host.includes("%");
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

const Certificate = v.object({
  fingerprint: received(128),
  version: v.union([v.literal(1), v.literal(2)]),
  not_before: time,
  not_after: time,
});

export const Node = v.object({
  id: v.number(),
  name: received(255),
  ip_address: address,
  ip_address6: v.nullable(address),
  subnets: v.pipe(v.array(address), v.maxLength(4096)),
  state: v.picklist(["pending", "active", "revoked"]),
  online: v.boolean(),
  mode: v.nullable(Mode),
  is_lighthouse: v.boolean(),
  is_relay: v.boolean(),
  is_name_server: v.optional(v.boolean()),
  public_ip: v.nullable(received(255)),
  external_port: v.nullable(v.number()),
  groups: v.pipe(v.array(received(255)), v.maxLength(4096)),
  config_overrides: v.pipe(v.record(received(255), v.unknown()), v.maxEntries(1000)),
  certificate: v.nullable(Certificate),
  config_version: v.number(),
  applied_config_version: v.nullable(v.number()),
  agent_version: v.nullable(received(255)),
  overlay_version: v.nullable(received(255)),
  platform: v.nullable(received(255)),
  last_checkin_at: v.nullable(time),
  created_at: time,
  revoked_at: v.nullable(time),
  /** The user whose node it is (null: the organization's), and its groups while it is. Former servers send neither. */
  owner_id: v.optional(v.nullable(v.number())),
  owner_groups: v.optional(v.pipe(v.array(received(255)), v.maxLength(4096))),
  /** It ends when it leaves or is silent. Former servers do not send it. */
  ephemeral: v.optional(v.boolean()),
});
export type Node = v.InferOutput<typeof Node>;

/** node-config.json. */
export const NodeConfig = v.object({
  schema: v.literal(1),
  node_id: v.number(),
  name: NodeName,
  org_slug: Slug,
  ip_address: address,
  ip_address6: v.optional(v.nullable(address)),
  network: address,
  mode: Mode,
  is_lighthouse: v.boolean(),
  is_relay: v.boolean(),
  config_version: v.number(),
  order_key: v.optional(OrderKey),
  registered_at: time,
  /** The node ends when it stops: it tells the control plane. */
  ephemeral: v.optional(v.boolean()),
});
export type NodeConfig = v.InferOutput<typeof NodeConfig>;

/** The files that the control plane sends. There is no `node.crt` if the registration had no CSR. */
export const ConfigFiles = v.object({
  "config.yml": text(16_777_216),
  "ca.crt": text(1_048_576),
  "host.crt": text(262_144),
  "node.crt": v.optional(text(262_144)),
  "node-config.json": text(65_536),
});
export type ConfigFiles = v.InferOutput<typeof ConfigFiles>;

export const DownloadAnswer = v.object({
  config_version: v.number(),
  /** Equals the ETag header. A registration answers with the same files but without this header. */
  etag: v.optional(received(maxEtagLength)),
  node: Node,
  order_key: OrderKey,
  /** If the order key has changed: a JWS of the new key, signed with the previous one. */
  order_key_proof: v.optional(jws),
  files: ConfigFiles,
});
export type DownloadAnswer = v.InferOutput<typeof DownloadAnswer>;

/**
 * A former server refuses unknown fields. An agent may send a field that is added here only after the server has
 * announced that it accepts it.
 */
export const RegisterRequest = v.strictObject({
  name: NodeName,
  host_public_key: text(512),
  node_csr: v.optional(text(4096)),
  ip_address: v.optional(text(45)),
  mode: v.optional(Mode),
  is_lighthouse: v.optional(v.boolean()),
  is_relay: v.optional(v.boolean()),
  public_ip: v.optional(PublicAddress),
  external_port: v.optional(Port),
  listen_port: v.optional(v.pipe(v.number(), v.integer(), v.minValue(0), v.maxValue(65_535))),
  platform: v.optional(text(64)),
  version: v.optional(text(64)),
  overlay_version: v.optional(text(64)),
  registration_token: v.optional(text(128)),
});
export type RegisterRequest = v.InferOutput<typeof RegisterRequest>;

/** 202: an administrator has to approve the machine. It repeats the same request after `retry_after` seconds. */
export const RegisterWaiting = v.object({
  state: v.literal("waiting"),
  retry_after: v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(3600)),
});
export type RegisterWaiting = v.InferOutput<typeof RegisterWaiting>;

export const RegisterAnswer = v.object({
  node: Node,
  api_token: text(128),
  config: DownloadAnswer,
  /** What the token permits and the registration did not use: `lighthouse`. */
  unused_right: v.optional(received(64)),
});
export type RegisterAnswer = v.InferOutput<typeof RegisterAnswer>;

const recordId = v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(Number.MAX_SAFE_INTEGER));

/** A node with its overlay addresses, as its peers know it; with its class in `NamesForPeers` on name servers alone. */
export const NamedNode = v.object({
  id: recordId,
  name: NodeName,
  ip: v.pipe(v.string(), v.maxLength(15), v.ipv4()),
  ip6: v.optional(v.pipe(v.string(), v.maxLength(45), v.ipv6())),
  class: v.optional(ClassName),
});
export type NamedNode = v.InferOutput<typeof NamedNode>;

/** Another name of a node. With `address`, the name of that address, which the node routes. */
export const NameAlias = v.object({
  id: recordId,
  name: NodeName,
  node_id: recordId,
  address: v.optional(v.pipe(v.string(), v.maxLength(45), v.ip())),
});
export type NameAlias = v.InferOutput<typeof NameAlias>;

/** What the list of names of a node was made from: the version of the names, and which of them the node may see. */
export const NamesPosition = v.object({ version: seconds, view: received(64) });
export type NamesPosition = v.InferOutput<typeof NamesPosition>;

/** The other domain that names end in; "" for none. Not checked here: it must not fail a check-in, or hide the names. */
const suffix = v.optional(received(255));

/**
 * `part`: the node has begun to read the whole list, and stands in the middle of it. `suffix`: what the node knows; without
 * it, it is not told of another one. `peers`: the digest of the `NamesForPeers` that it has, "" for none; without it, it is
 * told of none, even if it is a name server. Former servers ignore both.
 */
const asked = { part: v.optional(v.boolean()), suffix, peers: v.optional(received(64)) };
export const NamesRequest = v.object({ ...NamesPosition.entries, ...asked });
export type NamesRequest = v.InferOutput<typeof NamesRequest>;

/** Nodes and aliases that one answer holds at most. */
export const maxNamesInAnswer = 5000;
const several = <T>(schema: v.GenericSchema<unknown, T>) =>
  v.optional(v.pipe(v.array(schema), v.maxLength(maxNamesInAnswer)), []);

/** Changes of the names since the position in the request. */
export const NamesAnswer = v.object({
  ...NamesPosition.entries,
  /** The list begins anew: what the node has is outdated as a whole. */
  whole: v.optional(v.boolean(), false),
  /** There are further changes: ask again with this position. */
  more: v.optional(v.boolean(), false),
  nodes: several(NamedNode),
  aliases: several(NameAlias),
  /** Ids. The aliases of a removed node are removed with it. */
  removed_nodes: several(recordId),
  removed_aliases: several(recordId),
  /** Both only if they differ from the request's. */
  suffix,
  peers: v.optional(NamesForPeers),
});
export type NamesAnswer = v.InferOutput<typeof NamesAnswer>;

/** hosts.json: the names that this node may see. */
export const HostsFile = v.object({
  schema: v.literal(1),
  ...NamesPosition.entries,
  nodes: v.pipe(v.array(NamedNode), v.maxLength(maxNames)),
  aliases: v.pipe(v.array(NameAlias), v.maxLength(maxNames)),
  suffix,
  peers: v.optional(NamesForPeers),
});
export type HostsFile = v.InferOutput<typeof HostsFile>;

/** Tolerant, because a newer node may send more. */
export const CheckinRequest = v.object({
  version: text(64),
  uptime: seconds,
  config_version: v.optional(seconds),
  overlay_version: v.optional(text(64)),
  overlay_state: v.optional(text(64)),
  /** The configuration version whose reload the engine's log confirmed. */
  confirmed_config_version: v.optional(seconds),
  /** The node takes names. Older nodes do not send it, and are sent none. */
  names: v.optional(NamesRequest),
  /** A PathsReport. Unknown here: a report that cannot be parsed must not fail the check-in. */
  paths: v.optional(v.unknown()),
  /** A RelayedReport, of a relay. Unknown here like `paths`. Former servers ignore it. */
  relayed: v.optional(v.unknown()),
  probe: v.optional(
    v.object({ port: Port, nonce: v.pipe(v.string(), v.maxLength(32), v.regex(/^[A-Za-z0-9_-]{1,32}$/)) }),
  ),
  /** The last check-in of a node that leaves: the server revokes it, and answers `left`. Former servers ignore it. */
  leaving: v.optional(v.boolean()),
});
export type CheckinRequest = v.InferOutput<typeof CheckinRequest>;

export const CheckinAnswer = v.object({
  last_checkin_at: time,
  server_time: time,
  config_version: v.number(),
  config_changed: v.boolean(),
  certificate_not_after: time,
  order: v.optional(jws),
  /** A NamesAnswer. Unknown here: names that cannot be parsed must not keep an order from the node. */
  names: v.optional(v.unknown()),
  /** What became of the reported paths: `taken`, `later` (send them again), `unwanted`. */
  paths: v.optional(received(16)),
  /** A RelayedAnswer. Unknown here: it must not keep an order from the node. */
  relayed: v.optional(v.unknown()),
  /** The node left, and is revoked. */
  left: v.optional(v.boolean()),
  /** A signed Move, for nodes that pin the own CA. Unknown here: it must not keep an order from the node. */
  move: v.optional(v.unknown()),
});
export type CheckinAnswer = v.InferOutput<typeof CheckinAnswer>;

const otp = v.optional(text(64));
/** `otp`: the code of an authenticator app, or a recovery code. Send it only after `second_factor_required`. */
export const TokenRequest = v.strictObject({ email: text(254), password: text(1024), otp });
/** Ways to prove a second factor. A later server may have more. */
export type SecondFactorMethod = "totp" | "recovery_code" | "passkey";
export const TokenPair = v.object({ access: received(8192), refresh: received(8192) });
export type TokenPair = v.InferOutput<typeof TokenPair>;

export const RenewAnswer = v.object({ certificate: Certificate, config_version: v.number() });

export const ErrorBody = v.object({
  error: received(1024),
  code: received(255),
  detail: received(65_536),
  /** What to do next. */
  hint: v.optional(received(65_536)),
  status_code: v.number(),
  errors: v.optional(
    v.pipe(
      v.record(received(4096), v.pipe(v.array(received(4096)), v.maxLength(1000))),
      v.maxEntries(10_000),
    ),
  ),
  /** With `second_factor_required` and `step_up_required`. */
  methods: v.optional(v.pipe(v.array(received(64)), v.maxLength(16))),
  order: v.optional(jws),
});
export type ErrorBody = v.InferOutput<typeof ErrorBody>;

/** The claims of a signed order. */
export const Order = v.object({
  org: Slug,
  node_id: v.number(),
  action: v.picklist(["revoke", "restore"]),
  seq: v.pipe(v.number(), v.integer()),
  iat: v.number(),
  reason: received(4096),
  jti: received(255),
});
export type Order = v.InferOutput<typeof Order>;

/** Where nodes find the control plane from now on, by a public certificate. The order key signs it, at `seq` seconds. */
export const Move = v.object({
  org: Slug,
  api_base: v.pipe(received(2048), v.url(), v.startsWith("https://")),
  seq: v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(Number.MAX_SAFE_INTEGER)),
});
export type Move = v.InferOutput<typeof Move>;

/** credentials.json. */
export const Credentials = v.object({
  api_base: v.pipe(v.string(), v.maxLength(2048), v.url()),
  org_slug: Slug,
  node_id: v.number(),
  api_token: text(128),
  moved: v.optional(v.number()), // A Move of this `seq` ended the trust in api-ca.crt.
});
export type Credentials = v.InferOutput<typeof Credentials>;

/** The reason of the revocations with which an organization ends. Nodes know by it that no restore will follow. */
export const organizationDeleted = "the organization was deleted";
