// The CA that rules demand of a peer in a sealed organization. Nodes that enforce the seal render it themselves; this is for
// those that do not, so that the control plane's CA opens nothing on them either.

import { openTrusted, sealHash } from "../../pki/seal.ts";
import type { SignedSeal } from "../../protocol/seals/seal.ts";
import type { YamlMap } from "../../base/yaml.ts";

/** `authorities`: all that nodes trust. `names`: of sealed nodes. */
export type Demanded = {
  authorities: readonly string[];
  offline: readonly string[];
  groups: readonly string[];
  names: readonly string[];
};

/** What seals demand that were read already, by their hash: each certificate asks, and a seal has up to 256 KB. */
const known = new Map<string, Demanded | undefined>();
const maxKnown = 100;

/** Undefined unless the newest seal is enforced. */
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

/** One rule for each offline CA, since a rule of the engine has one; without a demand, the rule itself. */
export function withAuthority(rule: YamlMap, demanded: Demanded | undefined): YamlMap[] {
  if (demanded === undefined) return [rule];
  const { group, host } = rule;
  const isSealed =
    (typeof group === "string" && demanded.groups.includes(group)) ||
    (typeof host === "string" && demanded.names.includes(host));
  return isSealed ? demanded.offline.map((print) => ({ ...rule, ca_sha: print })) : [rule];
}
