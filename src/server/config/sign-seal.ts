// What a signer adds to the next seal, on the signer's machine: which nodes are sealed, and their certificates. Nodes are asked
// for by the control plane (`Sealable`), which may have been taken over: the signer checks what it says against the held seal.
//
// A sealed node has a certificate of an offline CA, whose key signers alone have. A closed node trusts offline CAs alone. An open one
// trusts the CA of the control plane as well, because nodes with its certificates use it.

import { given } from "../../base/given.ts";
import { AppError } from "../../base/errors.ts";
import { brand } from "../../brand.ts";
import { sealedRenewalDays, type Sealable } from "../../api/certificates/seals.ts";
import { can } from "../../engine/features.ts";
import { encodePem } from "../../pki/bundle.ts";
import { fingerprintOfHostKey, readHostPublicKey } from "../../pki/keys.ts";
import { fingerprints, signCertificate, type CertificateAuthority } from "../../pki/nebula.ts";
import {
  overlapWith,
  sealedAddressOf,
  sealedNetworkOf,
  sealedPrefix,
} from "../../protocol/seals/sealed-network.ts";
import type { SealedIdentity, SealedNode, SealedRule, SealedState } from "../../protocol/seals/seal.ts";
import * as v from "valibot";
import { byName } from "./next-seal.ts";

const dayS = 86_400;
const lifetimeS = 365 * dayS;
/** Clocks of nodes may be behind. */
const backdatedS = 300;

/** The certificates that this signer made, noted so that they can be revoked, whatever the control plane says. */
export const Issued = v.array(
  v.object({
    /** Of the node, with the fingerprint of its host key. */
    name: v.string(),
    key: v.string(),
    groups: v.array(v.string()),
    /** Fingerprints of the certificate, for each version one, or two: a P-256 signature has a second valid form. */
    prints: v.array(v.string()),
    /** Its end, in seconds since 1970. */
    until: v.number(),
  }),
);
export type Issued = v.InferOutput<typeof Issued>;

/** What the signer decides. CAs are named by their fingerprints. */
export type Choices = {
  /** All offline CAs, the present one last. */
  offline: readonly string[];
  /** The groups that only an offline CA gives. */
  privileged: readonly string[];
  /** Names of nodes that are to be open, or closed. Others stay what they are. */
  open: readonly string[];
  closed: readonly string[];
  /** Offline CAs that end: nodes no longer trust them. */
  ended: readonly string[];
  /** The engines of all nodes read certificates of the sealed network. */
  hasNetwork: boolean;
};

/**
 * Whether all nodes read certificates of the sealed network. `engines`: those of all nodes of the organization; undefined: the
 * control plane is of an earlier version, and does not say.
 */
export const readsNetwork = (engines: readonly { engine: string }[] | undefined): boolean =>
  engines?.every(({ engine }) => can(engine, "certificate_v2")) === true;

/**
 * The state of the next seal. `state`: what the control plane proposes, with what the held seal says (withHeldSealing). `sealable`:
 * the nodes that need a certificate of an offline CA; all others lose their identities. Throws conflict.
 */
export function composeSealedState(
  state: SealedState,
  sealable: readonly Sealable[],
  choices: Choices,
  issued: Issued,
  nowMs: number,
): SealedState {
  const network6 = networkOf(state, choices);
  const missing = choices.offline.find((print) => !state.authorities.includes(print));
  if (missing !== undefined)
    throw new AppError("conflict", `The control plane does not hand out the offline CA ${missing}`, {
      hint: `Send its certificate first: \`${brand.executable} admin seal ca ORG FILE\`.`,
    });
  const nodes = sealedNodes(state.nodes, sealable, { rules: state.rules, choices, network6 });
  const privileged = [...new Set(choices.privileged)].sort();
  const revoked = revokedIn(nodes, state.sealing?.revoked ?? [], issued, nowMs);
  return {
    ...state,
    authorities: state.authorities.filter((print) => !choices.ended.includes(print)),
    nodes: byName(nodes),
    sealing: { ...state.sealing, offline: [...choices.offline], privileged, revoked, ...given({ network6 }) },
  };
}

/**
 * The sealed network, which never changes; undefined while not all nodes read it. Throws conflict if it overlaps a network or a
 * route of the organization, which would lead its packets elsewhere.
 */
function networkOf(
  { sealing, networks, nodes }: SealedState,
  { offline, hasNetwork }: Choices,
): string | undefined {
  const network6 = sealing?.network6 ?? (hasNetwork ? sealedNetworkOf(offline[0] ?? "") : undefined);
  if (network6 === undefined) return undefined;
  const other = overlapWith(network6, [...networks, ...nodes.flatMap(({ routes }) => routes)]);
  if (other === undefined) return network6;
  throw new AppError("conflict", `${other} overlaps the sealed network ${network6}`, {
    hint: "Remove this network or route from the organization. If nobody made it, do not sign: the control plane may be abused.",
  });
}

/** What the identities of nodes depend on. */
type Sealing = { rules: readonly SealedRule[]; choices: Choices; network6: string | undefined };

/** The nodes that have a role, or need a certificate of an offline CA: these get an identity. */
function sealedNodes(
  proposed: readonly SealedNode[],
  sealable: readonly Sealable[],
  sealing: Sealing,
): SealedNode[] {
  const roles = new Map(proposed.map((node) => [node.name, node]));
  const needed = new Map(sealable.map((asked) => [asked.name, asked]));
  const withIdentity = [...needed.values()].map((asked): SealedNode => {
    const { identity: held, ...node } = roles.get(asked.name) ?? withoutRole(asked.name, asked.addresses);
    return { ...node, addresses: asked.addresses, identity: identityOf(asked, held, node, sealing) };
  });
  const others = [...roles.values()]
    .filter(({ name }) => !needed.has(name))
    .map((node): SealedNode => {
      const { identity: _, ...withoutIdentity } = node;
      return withoutIdentity;
    });
  return [...withIdentity, ...others.filter(hasRole)];
}

const hasRole = ({ lighthouse, relay, routes, exit }: SealedNode) =>
  lighthouse || relay || routes.length + exit.length > 0;

const withoutRole = (name: string, addresses: string[]): SealedNode => ({
  name,
  addresses,
  lighthouse: false,
  relay: false,
  routes: [],
  exit: [],
});

/** `asked`: the node as the control plane asks for it. `held`: its identity in the held seal. */
function identityOf(
  asked: Sealable,
  held: SealedIdentity | undefined,
  node: SealedNode,
  { rules, choices, network6 }: Sealing,
): SealedIdentity {
  const { name, groups, engine_version: engine } = asked;
  const { privileged, open, closed } = choices;
  const kind = () => {
    if (open.includes(name)) return "open";
    if (closed.includes(name)) return "closed";
    return held?.kind ?? (servesOthers(asked, node, rules, privileged) ? "open" : "closed");
  };
  const key = fingerprintOfHostKey(asked.host_public_key);
  // A node keeps its sealed address, whatever the control plane says of its engine.
  const isHeld = held?.key === key && held.address6 !== undefined;
  // An organization with certificates of both versions is on its way to version 2, and may still have engines that read version 1 only.
  const isReader = can(engine, "certificate_v2") && asked.versions.length === 1;
  const address6 =
    network6 !== undefined && (isHeld || isReader) ? sealedAddressOf(network6, key) : undefined;
  return {
    kind: kind(),
    key,
    groups: [...groups].sort(),
    ...given({ address6 }),
  };
}

/** The names of nodes with certificates of these CAs, which are to end. `prints`: fingerprints. */
export const issuedBy = (sealable: readonly Sealable[], prints: readonly string[]): string[] =>
  sealable.flatMap(({ name, issuer }) => (issuer !== null && prints.includes(issuer) ? [name] : []));

/** The names of nodes whose certificate lacks the address that the next seal gives them. */
export function findReaddressed(before: SealedState | undefined, after: SealedState): ReadonlySet<string> {
  const known = new Map(before?.nodes.map(({ name, identity }) => [name, identity?.address6]));
  const isNew = ({ name, identity }: SealedNode) =>
    identity?.address6 !== undefined && identity.address6 !== known.get(name);
  return new Set(after.nodes.filter(isNew).map(({ name }) => name));
}

/** Whether nodes with certificates of the control plane use the node: then it must trust their CA, too. */
function servesOthers(
  { name, groups }: Sealable,
  node: SealedNode,
  rules: readonly SealedRule[],
  privileged: readonly string[],
): boolean {
  if (node.lighthouse || node.relay) return true;
  return rules.some(({ direction, peer, target }) => {
    if (direction !== "inbound") return false;
    const isAbout =
      "any" in target || ("group" in target ? groups.includes(target.group) : target.node === name);
    return isAbout && !("group" in peer && privileged.includes(peer.group));
  });
}

/**
 * The fingerprints to revoke: a certificate that gives more than its node has, or to another key, is blocked until it ends.
 * `revoked`: those of the held seal.
 */
function revokedIn(
  nodes: readonly SealedNode[],
  revoked: readonly string[],
  issued: Issued,
  nowMs: number,
): string[] {
  const identities = new Map(nodes.map(({ name, identity }) => [name, identity]));
  const isOver = ({ until }: Issued[number]) => until * 1000 <= nowMs;
  const excessive = issued.filter((each) => {
    const identity = identities.get(each.name);
    return identity?.key !== each.key || each.groups.some((group) => !identity.groups.includes(group));
  });
  const over = new Set(issued.filter(isOver).flatMap(({ prints }) => prints));
  const all = [...revoked, ...excessive.flatMap(({ prints }) => prints)].filter((print) => !over.has(print));
  return [...new Set(all)].sort();
}

/** The nodes that get a certificate now. `changed`: names of nodes that get one in any case. */
export function dueIn(
  sealable: readonly Sealable[],
  nowMs: number,
  changed: ReadonlySet<string> = new Set(),
): Sealable[] {
  return sealable.filter(
    ({ name, is_whole: isWhole, certified_until: until }) =>
      changed.has(name) ||
      !isWhole ||
      until === null ||
      Date.parse(until) <= nowMs + sealedRenewalDays * dayS * 1000,
  );
}

/** Signs what the seal says, and nothing else: throws untrusted_answer if the control plane asks for more. */
export function signFor(
  node: Sealable,
  state: SealedState,
  ca: CertificateAuthority,
  nowMs: number,
): { pem: string; issued: Issued[number] } {
  const sealed = state.nodes.find(({ name }) => name === node.name);
  const key = fingerprintOfHostKey(node.host_public_key);
  if (sealed?.identity?.key !== key) throw new AppError("internal", `${node.name} is not in the seal`);
  const notBefore = Math.floor(nowMs / 1000) - backdatedS;
  const notAfter = Math.min(notBefore + lifetimeS, ca.certificate.notAfter);
  const { address6, groups } = sealed.identity;
  const sealedNetworks = address6 === undefined ? [] : [`${address6}/${sealedPrefix}`];
  const signed = versionsFor(node, address6).map(({ version, networks, unsafe_networks: unsafeNetworks }) => {
    requireSealed(sealed, state, { networks, unsafeNetworks });
    const template = {
      version,
      name: node.name,
      networks: [...networks, ...sealedNetworks],
      unsafeNetworks,
      groups,
      notBefore,
      notAfter,
    };
    return signCertificate({ ...template, publicKey: readHostPublicKey(node.host_public_key) }, ca);
  });
  return {
    pem: signed.map(encodePem).join(""),
    issued: { name: node.name, key, groups, prints: signed.flatMap(fingerprints), until: notAfter },
  };
}

/** Throws untrusted_answer for networks that are not those of the node in the seal. */
function requireSealed(
  { name, addresses, routes, exit }: SealedNode,
  state: SealedState,
  { networks, unsafeNetworks }: { networks: readonly string[]; unsafeNetworks: readonly string[] },
): void {
  const permitted = [...routes, ...(exit.length > 0 ? ["0.0.0.0/0", "::/0"] : [])];
  const isSealed =
    networks.every((each) => addresses.includes(each.split("/")[0] ?? "") && hasPrefixOf(state, each)) &&
    unsafeNetworks.every((each) => permitted.includes(each));
  if (isSealed) return;
  const why = `The control plane asks for networks of ${name} that are not in the seal`;
  throw new AppError("untrusted_answer", why);
}

/**
 * In the sealed network version 2 alone, with the networks of the newest version that is asked for: a lighthouse that first hears a
 * node by version 1 never learns its other address.
 */
const versionsFor = ({ versions }: Sealable, address6: string | undefined): Sealable["versions"] =>
  address6 === undefined ? versions : versions.slice(-1).map((each) => ({ ...each, version: 2 }));

/** Whether the network is as wide as the organization's of the same family. */
const hasPrefixOf = ({ networks }: SealedState, network: string): boolean =>
  networks.some(
    (each) => each.split("/")[1] === network.split("/")[1] && each.includes(":") === network.includes(":"),
  );
