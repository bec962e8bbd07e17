// In a sealed organization, firewall rules about privileged groups and sealed nodes demand a certificate of an offline CA, whose key
// only signers have. Nodes that enforce the seal add this demand themselves. This adds it for the other nodes, so that no node gets
// through these rules with the CA of the control plane.

import { openTrusted, sealHash } from "../../pki/seal.ts";
import type { SignedSeal } from "../../protocol/seals/seal.ts";
import type { YamlMap } from "../../base/yaml.ts";

/** What the newest seal demands. CAs by their fingerprints. */
export type Demanded = {
  /** All CAs that nodes trust. */
  authorities: readonly string[];
  /** Those that are offline. */
  offline: readonly string[];
  /** The groups that only an offline CA may certify. */
  groups: readonly string[];
  /** The names of sealed nodes: those with an identity in the seal, which have a certificate of an offline CA. */
  names: readonly string[];
};

/** By the hash of the seal. Each certificate that is signed asks, and a seal has up to 256 KB. */
const known = new Map<string, Demanded | undefined>();
const maxKnown = 100;

/** `seals`: the newest last. Undefined unless the newest one is enforced. */
export function demandedIn(seals: readonly SignedSeal[]): Demanded | undefined {
  const newest = seals.at(-1);
  if (newest === undefined) return undefined;
  const hash = sealHash(newest.text);
  if (!known.has(hash)) {
    if (known.size >= maxKnown) known.clear();
    known.set(hash, readDemanded(newest.text));
  }
  return known.get(hash);
}

/** A seal that cannot be read demands nothing here: nodes keep to the one that they hold. */
function readDemanded(text: string): Demanded | undefined {
  const { mode, state } = openOrNone(text)?.seal ?? {};
  if (mode !== "enforce" || state?.sealing === undefined) return undefined;
  const { offline, privileged } = state.sealing;
  const names = state.nodes.flatMap(({ name, identity }) => (identity === undefined ? [] : [name]));
  return { authorities: state.authorities, offline, groups: privileged, names };
}

function openOrNone(text: string): ReturnType<typeof openTrusted> | undefined {
  try {
    return openTrusted(text);
  } catch {
    return undefined;
  }
}

/** The rule with the demand: one copy for each offline CA, since a rule of the engine can name only one. */
export function withAuthority(rule: YamlMap, demanded: Demanded | undefined): YamlMap[] {
  if (demanded === undefined) return [rule];
  const { group, host } = rule;
  const isSealed =
    (typeof group === "string" && demanded.groups.includes(group)) ||
    (typeof host === "string" && demanded.names.includes(host));
  return isSealed ? demanded.offline.map((print) => ({ ...rule, ca_sha: print })) : [rule];
}
