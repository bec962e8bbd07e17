// What a signer should know before the next seal is signed, on the signer's machine: keys whose words must be compared, nodes
// that the seal does not protect as one may expect, and why nodes could not follow it.

import { countOf } from "../../base/quantities.ts";
import type { Sealable } from "../../api/certificates/seals.ts";
import { can } from "../../engine/features.ts";
import { fingerprintOfHostKey } from "../../pki/keys.ts";
import { compareVersions } from "../../protocol/updates/version.ts";
import { areWordsOfKey, sealedKeyWords } from "../../protocol/key-words.ts";
import type { SealedNode, SealedState } from "../../protocol/seals/seal.ts";
import type { Issued } from "./sign-seal.ts";

/** The nodes whose host keys are not in the seal that the signer knows: their words must be compared with those on their machines. */
export function findUnknown(sealable: readonly Sealable[], known: SealedState | undefined): Sealable[] {
  const keys = new Set(
    known?.nodes.flatMap(({ name, identity }) => (identity === undefined ? [] : [`${name} ${identity.key}`])),
  );
  return sealable.filter(
    ({ name, host_public_key: key }) => !keys.has(`${name} ${fingerprintOfHostKey(key)}`),
  );
}

/** Whether these are the words of the node's host key: its fingerprint, as its machine shows it for people to compare. */
export const hasWords = ({ host_public_key: key }: Sealable, typed: string): boolean =>
  areWordsOfKey(typed, fingerprintOfHostKey(key), sealedKeyWords);

/** A sentence for each sealed node without an address of the sealed network, where that matters. */
export function addressWarnings({ nodes }: SealedState): string[] {
  const isUsed = nodes.some(({ identity }) => identity?.address6 !== undefined);
  return nodes.flatMap(({ name, identity }) => {
    if (identity === undefined || identity.address6 !== undefined) return [];
    if (identity.kind === "open")
      return `${name} is open without a sealed address: whoever has the control plane can take over its flows. All nodes need engines from 1.10 on`;
    return isUsed
      ? `${name} has no sealed address: privileged ports of open nodes let it in no more. All nodes need engines from 1.10 on`
      : [];
  });
}

/**
 * The names of nodes that lose their key or a group, and of whose certificates this signer's records have none: another signer made
 * them, and the next seal does not revoke them.
 */
export function findUnrecorded(
  before: SealedState | undefined,
  after: SealedState,
  issued: Issued,
): string[] {
  const identities = new Map(after.nodes.map(({ name, identity }) => [name, identity]));
  return (before?.nodes ?? []).flatMap(({ name, identity: held }) => {
    if (held === undefined) return [];
    const next = identities.get(name);
    const isLess = next?.key !== held.key || held.groups.some((group) => !next.groups.includes(group));
    return isLess && !issued.some((each) => each.name === name && each.key === held.key) ? [name] : [];
  });
}

/** The first agent that refuses what a seal does not say. */
const enforcesSince = "0.2.0";

/** Why nodes could not follow a seal that they enforce: sentences. `own`: the version of this agent. */
export function findObstacles(
  { nodes, agents }: { nodes: readonly Sealable[]; agents: readonly { agent: string; n: number }[] },
  state: SealedState,
  own: string,
): string[] {
  // `isWhole`: the certificate holds all groups, networks and versions that the node has now.
  const uncertified = nodes.filter(
    ({ is_whole: isWhole, certified_until: until }) => !isWhole || until === null,
  );
  const oldAgents = agents.filter(
    ({ agent }) => agent !== own && (agent === "" || compareVersions(agent, enforcesSince) < 0),
  );
  const engines = new Map(nodes.map(({ name, engine_version: engine }) => [name, engine]));
  const outdated = outdatedIn(state, engines).filter(({ name }) => engines.has(name));
  return [
    ...uncertified.map(({ name }) => `${name} has no certificate of the offline CA yet`),
    ...oldAgents.map(
      ({ agent, n }) =>
        `${countOf(n, "node")} with the agent ${agent === "" ? "of an unknown version" : agent} must have ${enforcesSince}`,
    ),
    ...outdated.map(
      ({ name }) => `${name} needs an engine from 1.10 on, and has ${engines.get(name) ?? "none"}`,
    ),
  ];
}

/**
 * The nodes with an address of the sealed network whose engine cannot have one, and, once any node has one, the lighthouses
 * without: they could not tell its address.
 */
function outdatedIn({ nodes }: SealedState, engines: ReadonlyMap<string, string | null>): SealedNode[] {
  const hasAddress = ({ identity }: SealedNode) => identity?.address6 !== undefined;
  const isOld = ({ name }: SealedNode) => !can(engines.get(name) ?? null, "certificate_v2");
  const isUsed = nodes.some(hasAddress);
  return [
    ...nodes.filter((each) => hasAddress(each) && isOld(each)),
    ...nodes.filter((each) => isUsed && each.lighthouse && !hasAddress(each)),
  ];
}
