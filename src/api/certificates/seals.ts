// Seals of an organization, and offline CAs: what signers sign for its nodes (docs/design/sealed.md).

import * as v from "valibot";
import { foreignText } from "../../base/text.ts";
import { maxSealBytes, SealedState, SignedSeal } from "../../protocol/seals/seal.ts";
import { NodeName, text, listOf } from "../../protocol/values.ts";
import { endpoint } from "../endpoint.ts";
import { since, Text, Time } from "../values.ts";

const Pem = (max: number) => v.pipe(foreignText(max), v.regex(/^-----BEGIN NEBULA CERTIFICATE/));
/** Characters: two certificates, of 2 KiB each, of each of 500 nodes. */
const maxPems = 2_097_152;

/** How long before its end a certificate of an offline CA is due to be replaced. */
export const sealedRenewalDays = 60;

/** A node that needs a certificate of an offline CA: all that a signer puts into it. */
const Sealable = v.object({
  name: NodeName,
  host_public_key: foreignText(1024),
  groups: v.array(text(255)),
  addresses: v.array(text(45)),
  versions: v.array(
    v.object({
      version: v.picklist([1, 2]),
      networks: v.array(text(64)),
      unsafe_networks: v.array(text(64)),
    }),
  ),
  /** lighthouse, relay, router, exit, or a group. */
  why: v.array(Text),
  /** The end of its certificate by an offline CA; null: it has none. */
  certified_until: v.nullable(Time),
  /** The offline CA of that certificate. */
  issuer: v.nullable(Text),
  /** The certificate holds all groups, networks and versions that the node has now. */
  is_whole: v.boolean(),
  agent_version: v.nullable(Text),
  engine_version: v.nullable(Text),
});
export type Sealable = v.InferOutput<typeof Sealable>;

const Seals = v.object({
  /** Those that changed the signers, and the newest, in their order. Empty: the organization is not sealed. */
  seals: v.array(SignedSeal),
  /** What the control plane would tell nodes now, as the next seal would have it. */
  state: SealedState,
  /** The certificates of its CAs (PEM): a signer reads their limits, and compares their fingerprints with the state. */
  authorities: since("0.2.0", Text),
});

export const sealsApi = {
  list: endpoint({
    name: "seals_retrieve",
    method: "GET",
    path: "/api/org/{slug}/seals/",
    access: "member",
    scope: "policy",
    summary: "The seals of the organization, and what the next one would hold",
    answers: { 200: { description: "The seals", schema: Seals } },
  }),
  publish: endpoint({
    name: "seals_create",
    method: "POST",
    path: "/api/org/{slug}/seals/",
    access: "admin",
    scope: "policy",
    summary:
      "Publish a seal that its signers have signed. Every node compares it with what it is told. The first one needs an owner, later ones an administrator",
    grows: true,
    fresh: true,
    // JSON escapes the quotes of the text, which is JSON itself.
    maxBody: 2 * maxSealBytes + 131_072,
    body: v.strictObject(SignedSeal.entries),
    answers: {
      201: { description: "It is published", schema: v.object({ number: v.number(), hash: Text }) },
    },
    errors: ["conflict"],
  }),
  forget: endpoint({
    name: "seals_destroy",
    method: "DELETE",
    path: "/api/org/{slug}/seals/",
    access: "owner",
    summary:
      "Forget the seals, if no signer is left. Nodes that hold one keep it until root ends it there; the next one is a first seal",
    fresh: true,
    answers: { 204: { description: "Forgotten" } },
    errors: ["conflict"],
  }),
  sealable: endpoint({
    name: "seals_sealable_create",
    method: "POST",
    path: "/api/org/{slug}/seals/sealable/",
    access: "admin",
    scope: "policy",
    reads: true,
    summary:
      "The nodes that need certificates of an offline CA: lighthouses, relays, routers, exits, and members of groups",
    body: v.strictObject({ groups: listOf(text(255), 1000) }),
    answers: {
      200: {
        description: "The nodes, and how many nodes run each version of the agent",
        schema: v.object({
          nodes: v.array(Sealable),
          agents: v.array(v.object({ agent: Text, n: v.number() })),
          /** How many nodes run each version of the engine. */
          engines: since("0.2.0", v.array(v.object({ engine: Text, n: v.number() }))),
        }),
      },
    },
  }),
  addAuthority: endpoint({
    name: "seals_ca_create",
    method: "POST",
    path: "/api/org/{slug}/seals/ca/",
    // Whoever has its key gives rights that no removal from the organization ends.
    access: "owner",
    summary: "Add an offline CA, which all nodes trust beside the CA of the control plane",
    grows: true,
    fresh: true,
    body: v.strictObject({ certificate: Pem(8192) }),
    answers: { 201: { description: "It is added", schema: v.object({ fingerprint: Text }) } },
    errors: ["conflict"],
  }),
  addCertificates: endpoint({
    name: "seals_certificates_create",
    method: "POST",
    path: "/api/org/{slug}/seals/certificates/",
    access: "admin",
    scope: "policy",
    summary:
      "Store certificates that an offline CA has signed. Their nodes get them in place of those of the control plane",
    grows: true,
    fresh: true,
    // JSON escapes the line ends.
    maxBody: maxPems + 65_536,
    body: v.strictObject({ certificates: Pem(maxPems) }),
    answers: {
      201: { description: "The nodes that get new ones", schema: v.object({ nodes: v.array(Text) }) },
    },
    errors: ["conflict"],
  }),
};
