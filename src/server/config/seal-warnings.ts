// What a signer should know before the next seal is signed, on the signer's machine: keys whose words must be compared, nodes that the
// seal does not protect as one may expect, and why nodes could not follow it.

import { countOf } from "../../base/quantities.ts";
import type { Sealable } from "../../api/certificates/seals.ts";
import { can } from "../../engine/features.ts";
import { fingerprintOfHostKey } from "../../pki/keys.ts";
import { compareVersions } from "../../protocol/updates/version.ts";
import { areWordsOfKey, sealedKeyWords } from "../../protocol/key-words.ts";
import type { SealedNode, SealedState } from "../../protocol/seals/seal.ts";
import type { Issued } from "./sign-seal.ts";

/** The nodes whose host keys no seal that the signer knows has: their words come from their machines. */
export function unknownIn(sealable: readonly Sealable[], known: SealedState | undefined): Sealable[] {
  const keys = new Set(
    known?.nodes.flatMap(({ name, identity }) => (identity === undefined ? [] : [`${name} ${identity.key}`])),
  );
  return sealable.filter(
    ({ name, host_public_key: key }) => !keys.has(`${name} ${fingerprintOfHostKey(key)}`),
  );
}

/** Whether these are the words of the node's host key, as its machine shows them. */
export const hasWords = ({ host_public_key: key }: Sealable, typed: string): boolean =>
  areWordsOfKey(typed, fingerprintOfHostKey(key), sealedKeyWords);

/** What a signer should know of sealed nodes whose engine reads no address of the sealed network. */
export function withoutAddress({ nodes }: SealedState): string[] {
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
 * Nodes that lose their key or a group, and of whose certificates these records have none: another signer made them, and the
 * next seal does not revoke them.
 */
export function unrecorded(before: SealedState | undefined, after: SealedState, issued: Issued): string[] {
  const present = new Map(after.nodes.map(({ name, identity }) => [name, identity]));
  return (before?.nodes ?? []).flatMap(({ name, identity: held }) => {
    if (held === undefined) return [];
    const now = present.get(name);
    const isLess = now?.key !== held.key || held.groups.some((group) => !now.groups.includes(group));
    return isLess && !issued.some((each) => each.name === name && each.key === held.key) ? [name] : [];
  });
}

/** The first agent that refuses what a seal does not say. */
const enforcesSince = "0.2.0";

/** Why nodes could not follow a seal that they enforce: sentences. `own`: the version of this agent. */
export function obstacles(
  { nodes, agents }: { nodes: readonly Sealable[]; agents: readonly { agent: string; n: number }[] },
  state: SealedState,
  own: string,
): string[] {
  const bare = nodes.filter(({ is_whole: isWhole, certified_until: until }) => !isWhole || until === null);
  const old = agents.filter(
    ({ agent }) => agent !== own && (agent === "" || compareVersions(agent, enforcesSince) < 0),
  );
  /** Whether the node has an address of the sealed network. */
  const isInside = ({ identity }: SealedNode) => identity?.address6 !== undefined;
  const behind = state.nodes.some(isInside)
    ? state.nodes.filter((each) => each.lighthouse && !isInside(each))
    : [];
  const engines = new Map(nodes.map(({ name, engine_version: engine }) => [name, engine]));
  const outdated = [
    ...state.nodes.filter((each) => isInside(each) && !can(engines.get(each.name) ?? null, "certificate_v2")),
    ...behind,
  ].filter(({ name }) => engines.has(name));
  return [
    ...bare.map(({ name }) => `${name} has no certificate of the offline CA yet`),
    ...old.map(
      ({ agent, n }) =>
        `${countOf(n, "node")} with the agent ${agent === "" ? "of an unknown version" : agent} must have ${enforcesSince}`,
    ),
    ...outdated.map(
      ({ name }) => `${name} needs an engine from 1.10 on, and has ${engines.get(name) ?? "none"}`,
    ),
  ];
}
