// The input of the decisions of grants.ts, and how they change a configuration. Decides nothing.

import type { LeftOut } from "../../../engine/left-out.ts";
import { isMap, type YamlMap, type YamlValue } from "../../../base/yaml.ts";
import type { InForce, Machine, Tenant } from "./machine-facts.ts";
import type { SealedSelf } from "./sealed-node.ts";
import type { PermissionFlag } from "./permission-flags.ts";
import type { Permissions } from "../permissions.ts";

/** The state of the machine and the permissions of root, by which a setting is granted. */
export type Situation = {
  slug: string;
  machine: Machine;
  permissions: Permissions;
  /** Overlay networks of the certificates that belong to the configuration, and the node's addresses in them. */
  networks: readonly string[];
  addresses: readonly string[];
  /** The seal that this node enforces, and the engine for which it is rendered. */
  seal?: { self: SealedSelf; engine: string | undefined };
};

export type Granted = {
  /** The configuration without what is left out. */
  granted: YamlMap;
  leftOut: LeftOut[];
  /** Settings that stay only because they were in force before, with the permission that would keep them. */
  kept: { key: string; flag: PermissionFlag; entry: string }[];
  /** Routes to networks that this machine is in, and why they are not installed. */
  here: Map<string, string>;
  /** Settings that are left out only for now: entries for `surroundingsOf`. */
  waiting: string[];
};

/** The input of one decision, which changes `result`. `inForce`: of this organization. `others`: the other organizations of the machine. */
export type Asked = Situation & { inForce: InForce; others: readonly Tenant[]; result: Granted };

export function leaveOut({ result }: Asked, key: string, reason: string): void {
  result.leftOut.push({ key, reason });
}

/** Changes keys of a section of the configuration. Undefined removes a key. */
export function setKeys(
  { result }: Asked,
  section: string,
  change: Record<string, YamlValue | undefined>,
): void {
  const before = result.granted[section];
  const entries = Object.entries({ ...(isMap(before) ? before : {}), ...change });
  const kept = entries.filter((entry): entry is [string, YamlValue] => entry[1] !== undefined);
  result.granted = { ...result.granted, [section]: Object.fromEntries(kept) };
}

export function dropSection({ result }: Asked, section: string): void {
  const { [section]: _, ...rest } = result.granted;
  result.granted = rest;
}
