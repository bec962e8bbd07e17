// The seal of an organization: what a control plane may send its nodes, as its signers signed it (docs/design/sealed.md). Strict: a
// node must not half follow a seal that has more than it knows.

import * as v from "valibot";
import { brand } from "../../brand.ts";
import { foreignText, label } from "../../base/text.ts";
import { NodeName, OrderKey, Slug, text, wholeWithin, listOf } from "../values.ts";

export const maxSealBytes = 262_144;
/** Seals in one answer: those that changed the signers since the node was last here, and the newest. */
export const maxSeals = 16;
export const maxSigners = 16;
const maxSealedRules = 2000;
const maxSealedNodes = 2000;
/** The namespace for `ssh-keygen -Y sign -n`: a signature for another one does not count. */
export const sealNamespace = `seal@${brand.id}`;

/** Lower-case hex SHA-256. */
const Hash = v.pipe(foreignText(64), v.regex(/^[0-9a-f]{64}$/));
/** A name that is not `any`, which the engine takes for all nodes: a seal says that with `any: true`. */
const named = (max: number) =>
  v.pipe(
    text(max),
    v.check((name) => name !== "any", "It would be everything."),
  );
/** Networks, addresses and groups are compared letter by letter, in the form in which the control plane stores and sends them. */
const Network = named(64);
const Address = text(45);
const Group = named(255);

const anyNode = v.strictObject({ any: v.literal(true) });
const group = v.strictObject({ group: Group });
const node = v.strictObject({ node: NodeName });

/** Names nodes, since ids mean nothing without the server. */
export const SealedRule = v.strictObject({
  direction: v.picklist(["inbound", "outbound"]),
  protocol: v.picklist(["any", "tcp", "udp", "icmp"]),
  ports: text(32),
  peer: v.union([anyNode, group, node, v.strictObject({ cidr: Network })]),
  target: v.union([anyNode, group, node]),
});
export type SealedRule = v.InferOutput<typeof SealedRule>;

/** What makes a node a sealed one: its certificate is signed by an offline CA. */
export const SealedIdentity = v.strictObject({
  /** closed: trusts the offline CAs alone. open: trusts all, and serves unprivileged nodes too. */
  kind: v.picklist(["closed", "open"]),
  /** SHA-256 of its public host key, the 32 bytes. */
  key: Hash,
  /** All groups that its certificate may have. */
  groups: listOf(Group, 1000),
  /** Its address in the sealed network. Without it, whoever has the online CA can take over flows that open nodes have with it. */
  address6: v.exactOptional(Address),
});
export type SealedIdentity = v.InferOutput<typeof SealedIdentity>;

/** A node in the configurations of others (a lighthouse, a relay, a router or an exit), or one with an identity. */
export const SealedNode = v.strictObject({
  name: NodeName,
  addresses: v.pipe(listOf(Address, 2), v.minLength(1)),
  lighthouse: v.boolean(),
  relay: v.boolean(),
  /** Networks behind it. */
  routes: listOf(Network, 4096),
  /** Groups that may use it as an exit; `any`: all nodes. */
  exit: listOf(text(255), 1000),
  identity: v.exactOptional(SealedIdentity),
});
export type SealedNode = v.InferOutput<typeof SealedNode>;

/** What nodes need to enforce a seal, beside all that an observed one says. */
export const Sealing = v.strictObject({
  /** The authorities whose keys never meet a server. The others are online. */
  offline: v.pipe(listOf(Hash, 4), v.minLength(1)),
  /** Groups that only an offline CA gives. */
  privileged: listOf(Group, 1000),
  /** Fingerprints of offline certificates, until they expire. */
  revoked: listOf(Hash, 2000),
  /** The domain that names of nodes end in. */
  suffix: v.exactOptional(text(255)),
  /** The sealed IPv6 network, which no online CA has. */
  network6: v.exactOptional(Network),
});
export type Sealing = v.InferOutput<typeof Sealing>;

/** What the control plane proposes. */
export const SealedState = v.strictObject({
  organization: Slug,
  networks: v.pipe(listOf(Network, 2), v.minLength(1)),
  /** Fingerprints of the overlay CAs that nodes trust. */
  authorities: v.pipe(listOf(Hash, 8), v.minLength(1)),
  order_key: OrderKey,
  nodes: listOf(SealedNode, maxSealedNodes),
  rules: listOf(SealedRule, maxSealedRules),
  sealing: v.exactOptional(Sealing),
});
export type SealedState = v.InferOutput<typeof SealedState>;

/** `key`: a public key of OpenSSH, as its file has it. */
const Signer = v.strictObject({ name: label(100), key: text(1024) });
export type Signer = v.InferOutput<typeof Signer>;

export const Seal = v.strictObject({
  version: v.literal(1),
  number: wholeWithin(1, Number.MAX_SAFE_INTEGER),
  /** Seconds since 1970. */
  made_at: v.pipe(
    v.number(),
    v.integer(),
    v.minValue(0),
    v.maxValue(253_402_300_799, "Before the year 10000."),
  ),
  /**
   * Hashes of the first seal and of the one before; null in the first seal. `first` tells organizations apart that have the same
   * name and signers.
   */
  first: v.nullable(Hash),
  previous: v.nullable(Hash),
  /** observe: nodes tell what they would refuse, and refuse nothing. enforce: they refuse it; `state.sealing` is there. */
  mode: v.picklist(["observe", "enforce"]),
  /** How many signers have to sign. There is no other number yet. */
  threshold: v.literal(1),
  signers: v.pipe(listOf(Signer, maxSigners), v.minLength(1)),
  state: SealedState,
});
export type Seal = v.InferOutput<typeof Seal>;

/** `text`: the canonical JSON, which the signatures sign. */
export const SignedSeal = v.object({
  text: text(maxSealBytes),
  signatures: v.pipe(listOf(text(4096), maxSigners), v.minLength(1)),
});
export type SignedSeal = v.InferOutput<typeof SignedSeal>;

/** In If-None-Match of a download, beside the tag of the files: the node holds this seal, and needs no other one. */
export const sealTag = (hash: string) => `"seal-${hash}"`;

/** RFC 8785: keys in the order of their UTF-16 code units, no spaces, numbers and strings as JavaScript writes them. */
export function canonicalJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(",")}]`;
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const entries = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${entries.map(([key, each]) => `${JSON.stringify(key)}:${canonicalJson(each)}`).join(",")}}`;
}
