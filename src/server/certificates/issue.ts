// The only place that signs certificates of nodes: for registration, renewal, a changed node, restore and CA rotation. Never signs for
// a revoked node. Lifetimes and times of rows are in ms, those inside of overlay certificates in seconds.
//
// Only signers have the key of an offline CA. A limited CA certifies only some networks, so that a thief who has its key gains less
// (docs/design/sealed.md).

import { nodeLifetimeMs, notFound } from "../../api/values.ts";
import { AppError } from "../../base/errors.ts";
import { readHostPublicKey } from "../../pki/keys.ts";
import { certifiedNetwork } from "../../pki/certificate.ts";
import { decodeBundle, encodePem } from "../../pki/bundle.ts";
import { fingerprints, signCertificate, type NebulaCertificate } from "../../pki/nebula.ts";
import { holdsNetwork, maskNetwork, networksOverlap, parseNetwork, parseNetworks } from "../../base/ip.ts";
import { sealedPrefix, uniqueLocal } from "../../protocol/seals/sealed-network.ts";
import { demandedIn } from "./demanded-ca.ts";
import { backdatedMs, isLimited } from "./ca-limits.ts";
import { limitCertificates } from "./blocklist.ts";
import type { Authorities, OverlayAuthority } from "./authorities.ts";
import type { ServerOptions } from "../options.ts";
import { address6Of } from "../allocation/address-pool.ts";
import type { Reader, Transaction } from "../store/database.ts";
import { certifiedGroups } from "../../protocol/users-groups.ts";
import { queryAll, queryOne } from "../store/table.ts";
import { certificates, type CertificateRow } from "../store/tables/certificates.ts";
import { nodes, type NodeRow } from "../store/tables/nodes.ts";
import { organizations } from "../store/tables/organizations.ts";
import { readSeals } from "../store/tables/policies.ts";
import { isExit } from "../../protocol/routing/roles.ts";

const dayMs = 86_400_000;
const x509LifetimeMs = 7 * dayMs;
/** Short, because name and address of an ended ephemeral node are free only when its certificates have expired. */
const ephemeralLifetimeMs = 3_600_000;

type IssuedCertificate = Pick<
  CertificateRow,
  "kind" | "authorityId" | "version" | "fingerprint" | "twin" | "pem" | "notBefore" | "notAfter"
>;

/** The columns of an organization that signing needs. `network6` is null if its certificates cannot hold IPv6. */
const issuingOrg = organizations.pick(
  "id",
  "slug",
  "network",
  "network6",
  "certificateVersion",
  "lighthousesRelay",
  "nodeApproval",
  "reauthenticateDays",
);
export type IssuingOrg = ReturnType<typeof issuingOrg.parse>;

/** Throws not_found if the organization does not exist or was deleted. */
export async function readIssuingOrg(reader: Reader, id: number): Promise<IssuingOrg> {
  const sql = `SELECT ${issuingOrg.select()} FROM organizations WHERE id = $1 AND deleted_at IS NULL`;
  const org = await queryOne(reader, issuingOrg, sql, [id]);
  if (org === undefined) throw new AppError("not_found", notFound.organization);
  // Certificates of version 1 hold no IPv6 address.
  return org.certificateVersion === 1 ? { ...org, network6: null } : org;
}

/** Throws node_revoked. Called before signing, and again in the transaction that stores certificates. */
export function mayIssue(node: Pick<NodeRow, "state" | "name">): void {
  if (node.state === "revoked") throw new AppError("node_revoked", `The node ${node.name} is revoked.`);
}

type Deps = { authorities: Authorities; system: Pick<ServerOptions["system"], "now" | "random"> };

/**
 * Signs and stores the node's current overlay certificates, one of each version of the organization. Returns the
 * fingerprint of the last. Signing is fast, so it happens inside the transaction, for the row as the transaction reads
 * it. `isBounded` false: the caller bounds the number of certificates in another way. Throws node_revoked,
 * too_many_certificates.
 */
export async function issueOverlay(
  tx: Transaction,
  org: IssuingOrg,
  before: NodeRow,
  { authorities, system }: Deps,
  { isBounded = true } = {},
): Promise<string> {
  mayIssue(before);
  // At the same time: five waits for the database become one.
  const [offline, refusal, seals, authority, node] = await Promise.all([
    offlineOf(tx, before.id, system.now()),
    isBounded ? refusalOf(limitCertificates(tx, org, before, system.now())) : undefined,
    readSeals(tx, org.id),
    authorities.overlay(tx, org.id),
    giveSecondAddress(tx, org, before),
  ]);
  if (offline.length > 0 && offline.every((row) => fitsPem(org, before, row.pem))) {
    // node.crt may have become due.
    await setRenewal(tx, before.id);
    return offline.at(-1)?.fingerprint ?? "";
  }
  // Only now: a node that keeps its certificates needs no new one.
  if (refusal !== undefined) throw refusal;
  const privileged = demandedIn(seals)?.groups ?? [];
  const signing = versionsOf(org).map((version) =>
    signNew(tx, org, node, privileged, { version, authority, now: system.now() }),
  );
  const [, ...issued] = await Promise.all([retireCurrent(tx, before.id, "overlay"), ...signing]);
  await Promise.all(issued.map((each) => storeCertificate(tx, node, system, each)));
  return issued.at(-1)?.fingerprint ?? "";
}

/** The error of the check instead of a rejection. */
const refusalOf = (check: Promise<void>): Promise<unknown> =>
  check.then(
    () => undefined,
    (error: unknown) => error,
  );

/**
 * The node's current certificates by an offline CA, unexpired. The server does not replace them while they grant nothing that the
 * node does not have. What the node gained since waits for signers.
 */
async function offlineOf(reader: Reader, nodeId: number, now: number) {
  return queryAll(reader, offlinePick, currentOffline, [nodeId, now]);
}

const offlinePick = certificates.pick("fingerprint", "pem");
const currentOffline = `SELECT ${offlinePick.select("c")} FROM certificates c JOIN authorities a ON a.id = c.authority_id
  WHERE c.node_id = $1 AND c.state = 'current' AND c.kind = 'overlay' AND a.offline = 1 AND c.not_after > $2
  ORDER BY c.version`;

const fitsPem = (org: IssuingOrg, node: NodeRow, pem: string) =>
  decodeBundle(pem).every((each) => fits(org, node, each));

/** Whether the certificate grants nothing that the node does not have. */
export function fits(org: IssuingOrg, node: NodeRow, certificate: NebulaCertificate): boolean {
  const isSubset = (list: readonly string[], all: readonly string[]) =>
    list.every((one) => all.includes(one));
  return (
    certificate.name === node.name &&
    isSubset(certificate.networks.filter(unsealedTest(org)), networksOf(org, node, certificate.version)) &&
    isSubset(certificate.groups, certifiedGroups(node)) &&
    isSubset(certificate.unsafeNetworks, subnetsOf(node, certificate.version))
  );
}

/**
 * Returns a test: whether a network of a certificate is no address of the sealed network. Signers assign those addresses, and nodes
 * compare them with the seal, so they are outside of the organization's networks.
 */
const unsealedTest = ({ network6 }: IssuingOrg) => {
  const [own] = parseNetworks(network6 === null ? [] : [network6]);
  return (text: string): boolean => {
    const [network] = parseNetworks([maskNetwork(text) ?? ""]);
    if (network?.family !== 6 || network.prefix !== sealedPrefix) return true;
    return !holdsNetwork(uniqueLocal, network) || (own !== undefined && networksOverlap(own, network));
  };
};

/** Whether these are certificates of all versions of the organization, which hold all groups and networks of the node. */
export function isWhole(org: IssuingOrg, node: NodeRow, all: readonly NebulaCertificate[]): boolean {
  const versions = all.map(({ version }) => version).toSorted((a, b) => a - b);
  // A node of the sealed network has no certificate of version 1 beside (docs/design/sealed.md).
  const isSealed = all.some(({ networks }) => !networks.every(unsealedTest(org)));
  const expected = isSealed ? [2] : versionsOf(org);
  const isMissing = ({ groups, unsafeNetworks, version }: NebulaCertificate) =>
    certifiedGroups(node).some((group) => !groups.includes(group)) ||
    subnetsOf(node, version).some((each) => !unsafeNetworks.includes(each));
  return (
    versions.join() === expected.join() && all.every((each) => fits(org, node, each) && !isMissing(each))
  );
}

/**
 * Signs a certificate with a fingerprint that is new. Signatures are deterministic: two certificates of the same second with the same
 * content have the same fingerprint, which may be on the blocklist. So the lifetime is shortened second by second. `privileged`:
 * the groups that only an offline CA certifies.
 */
async function signNew(
  tx: Transaction,
  org: IssuingOrg,
  node: NodeRow,
  privileged: readonly string[],
  { version, authority, now }: { version: 1 | 2; authority: OverlayAuthority; now: number },
): Promise<IssuedCertificate> {
  if (node.hostPublicKey === null) throw new AppError("internal", "The node has no key to sign for");
  const ca = authority.certificate;
  const permitted = isLimited(ca) ? withinLimits(ca) : (_: unknown, networks: string[]) => networks;
  const template = {
    version,
    name: node.name,
    networks: permitted("networks", networksOf(org, node, version)),
    unsafeNetworks: permitted("unsafeNetworks", subnetsOf(node, version)),
    // Nodes that enforce a seal would refuse the certificate. These groups wait for signers.
    groups: certifiedGroups(node).filter((group) => !privileged.includes(group)),
    notBefore: Math.max(Math.floor((now - backdatedMs) / 1000), ca.notBefore),
    publicKey: readHostPublicKey(node.hostPublicKey),
  };
  let notAfter = Math.min(Math.floor((now + lifetimeOf(org, node, nodeLifetimeMs)) / 1000), ca.notAfter);
  for (;;) {
    const certificate = signCertificate({ ...template, notAfter }, authority);
    // A signature with P-256 has a second valid form, and the certificate with it another fingerprint.
    const [print = "", twin = null] = fingerprints(certificate);
    const known = await tx.get("SELECT id FROM certificates WHERE fingerprint = $1", [print]);
    if (known === undefined) {
      return {
        kind: "overlay",
        authorityId: authority.id,
        version,
        fingerprint: print,
        twin,
        pem: encodePem(certificate),
        notBefore: template.notBefore * 1000,
        notAfter: notAfter * 1000,
      };
    }
    notAfter--;
  }
}

/** Leaves out networks that a limited CA may not certify: the node gets them from signers. */
const withinLimits = (ca: NebulaCertificate) => (kind: "networks" | "unsafeNetworks", networks: string[]) => {
  const limits = ca[kind].map((text) => certifiedNetwork(kind, text));
  return networks.filter((text) => limits.some((limit) => holdsNetwork(limit, certifiedNetwork(kind, text))));
};

/** ms. A phone never checks in, so its certificate ends when its user would have to confirm it (`reauthenticate_days`). */
function lifetimeOf(org: IssuingOrg, { ephemeralSilenceS, phone }: NodeRow, usual: number): number {
  if (ephemeralSilenceS !== null) return ephemeralLifetimeMs;
  const { reauthenticateDays: days } = org;
  return phone === null || days === null ? usual : Math.min(usual, days * dayMs);
}

/** A node that is older than its organization's IPv6 network gets its address with the first certificate that can hold it. */
export function withSecondAddress(org: IssuingOrg, node: NodeRow): NodeRow {
  return node.ip6 === null && org.network6 !== null ? { ...node, ip6: address6Of(org, node.ip) } : node;
}

async function giveSecondAddress(tx: Transaction, org: IssuingOrg, before: NodeRow): Promise<NodeRow> {
  const node = withSecondAddress(org, before);
  if (node.ip6 === before.ip6) return node;
  await nodes.update(tx, { id: node.id }, { ip6: node.ip6 });
  await makeX509Due(tx, node.id);
  return node;
}

/** The versions of the certificates that each node has, in ascending order. */
export function versionsOf({ certificateVersion }: Pick<IssuingOrg, "certificateVersion">): (1 | 2)[] {
  return certificateVersion === "both" ? [1, 2] : [certificateVersion];
}

/** The addresses of the node with their prefix lengths, as a certificate of this version names them. */
export function networksOf(org: IssuingOrg, node: NodeRow, version: 1 | 2): string[] {
  const withPrefix = (ip: string | null, network: string | null) => {
    const prefix = network === null ? undefined : parseNetwork(network)?.prefix;
    return ip === null || prefix === undefined ? [] : [`${ip}/${prefix}`];
  };
  const ipv4 = withPrefix(node.ip, org.network);
  return version === 1 ? ipv4 : [...ipv4, ...withPrefix(node.ip6, org.network6)];
}

/** Version 1 holds no IPv6. In version 2 a subnet of the node needs a node address of the same family. */
export function subnetsOf(node: NodeRow, version: 1 | 2): string[] {
  const internet = isExit(node) ? ["0.0.0.0/0", "::/0"] : [];
  return [...node.subnets, ...internet].filter(
    (subnet) => !subnet.includes(":") || (version === 2 && node.ip6 !== null),
  );
}

/** A signed node.crt that is not stored yet. */
export type SignedX509 = { node: NodeRow; issued: IssuedCertificate };

/** Signs node.crt if the node has sent a certificate request. Asynchronous (2 ms): never inside a transaction. */
export async function signX509(
  reader: Reader,
  org: IssuingOrg,
  node: NodeRow,
  { authorities, system }: Deps,
): Promise<SignedX509 | undefined> {
  mayIssue(node);
  if (node.csr === null) return undefined;
  const { issueNodeX509, readCsr } = await import("../../pki/x509.ts");
  const { x509Fingerprint } = await import("../../pki/verify-x509.ts");
  const { id: authorityId, issuer } = await authorities.x509(reader, org.id);
  const { publicKey } = await readCsr(node.csr);
  const ca = issuer.certificate;
  const notBefore = Math.max(system.now() - backdatedMs, ca.notBefore.getTime());
  const notAfter = Math.min(system.now() + lifetimeOf(org, node, x509LifetimeMs), ca.notAfter.getTime());
  const pem = await issueNodeX509(
    {
      publicKey,
      name: node.name,
      organization: org.slug,
      nodeId: node.id,
      addresses: node.ip6 === null ? [node.ip] : [node.ip, node.ip6],
      notBefore,
      notAfter,
      serial: system.random(16),
    },
    issuer,
  );
  const fingerprint = x509Fingerprint(pem);
  const issued = {
    kind: "x509",
    authorityId,
    version: 1,
    fingerprint,
    twin: null,
    pem,
    notBefore,
    notAfter,
  } as const;
  return { node, issued };
}

/**
 * Stores the current node.crt. Returns false if the node was changed while it was signed: then the certificate is
 * dropped, because the change has already marked the node for another one.
 */
export async function storeX509(
  tx: Transaction,
  current: NodeRow,
  signed: SignedX509,
  system: Deps["system"],
): Promise<boolean> {
  mayIssue(current);
  const certified = ({ name, ip, ip6, csr }: NodeRow) => JSON.stringify([name, ip, ip6, csr]);
  if (certified(current) !== certified(signed.node)) return false;
  await retireCurrent(tx, current.id, "x509");
  await storeCertificate(tx, current, system, signed.issued);
  return true;
}

/**
 * Marks the current node.crt as out of date. Call it before the overlay certificates are issued: then the node is due
 * for renewal at its next check-in.
 */
export async function makeX509Due(tx: Transaction, nodeId: number): Promise<void> {
  await certificates.update(tx, { nodeId, kind: "x509", state: "current" }, { renewAt: 0 });
}

/**
 * Marks a phone's certificate as out of date: its user has to import the phone again, which issues the next one. `isRefused`: the
 * current one grants too much, and is no longer the current one at once.
 */
export async function outdatePhone(
  tx: Transaction,
  nodeId: number,
  { isRefused = false } = {},
): Promise<void> {
  const current = { nodeId, kind: "overlay", state: "current" } as const;
  await certificates.update(tx, current, isRefused ? { state: "former" } : { renewAt: 0 });
  await setRenewal(tx, nodeId);
}

/** The same for all phones of an organization: the CAs that their site files name change. */
export async function outdatePhones(tx: Transaction, orgId: number): Promise<void> {
  for (const { id } of await queryAll(tx, phonePick, allPhones, [orgId])) await outdatePhone(tx, id);
}

const phonePick = nodes.pick("id");
const allPhones = `SELECT ${phonePick.select()} FROM nodes WHERE org_id = $1 AND phone IS NOT NULL AND state = 'active'`;

/** Sets when the node is due for renewal, from its current certificates. */
export async function setRenewal(tx: Transaction, nodeId: number): Promise<void> {
  await tx.run(
    "UPDATE nodes SET renew_at = (SELECT min(renew_at) FROM certificates WHERE node_id = $1 AND state = 'current') WHERE id = $1",
    [nodeId],
  );
}

async function retireCurrent(
  tx: Transaction,
  nodeId: number,
  kind: IssuedCertificate["kind"],
): Promise<void> {
  await certificates.update(tx, { nodeId, kind, state: "current" }, { state: "former" });
}

async function storeCertificate(
  tx: Transaction,
  { id: nodeId, orgId, ephemeralSilenceS }: Pick<NodeRow, "id" | "orgId" | "ephemeralSilenceS">,
  { now, random }: Deps["system"],
  issued: IssuedCertificate,
): Promise<void> {
  const renewAt = renewalTime(issued.notBefore, issued.notAfter, random);
  const createdAt = now();
  // As if its expiry had been announced: the certificate of an ephemeral node lives only an hour, and gets no such event.
  const withoutEvent = ephemeralSilenceS === null ? {} : { expiringToldAt: createdAt };
  const row = { ...issued, ...withoutEvent, orgId, nodeId, renewAt, state: "current", createdAt } as const;
  await Promise.all([certificates.insert(tx, row), setRenewal(tx, nodeId)]);
}

/** After two thirds of the lifetime, plus or minus a fortieth, so that nodes created together are not renewed together. ms. */
export function renewalTime(
  notBefore: number,
  notAfter: number,
  random: ServerOptions["system"]["random"],
): number {
  const [high = 0, low = 0] = random(2);
  const jitter = ((high * 256 + low) / 65_535 - 0.5) / 20;
  return Math.round(notBefore + (notAfter - notBefore) * (2 / 3 + jitter));
}
