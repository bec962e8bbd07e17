// What seal-objections.ts and firewall-objections.ts examine, and how they object.

import type { YamlMap, YamlValue } from "../../../base/yaml.ts";
import type { NodeConfig } from "../../../protocol/organization-files.ts";
import type { SealedNode, SealedState } from "../../../protocol/seals/seal.ts";

/** What the control plane sent to this node. `config`: without what the machine does not accept. */
export type SentParts = {
  config: YamlMap;
  caCrt: string;
  hostCrt: string;
  node: Pick<NodeConfig, "name" | "order_key" | "exits">;
};

/** `own`: this node in the seal. `groups`: those of its certificates. */
export type Asked = SentParts & {
  sealed: SealedState;
  own: SealedNode | undefined;
  groups: readonly string[];
};
export type AddObjection = (key: string, reason: string) => void;

/** A port may be a number, and a false control plane may send anything. */
export const textOf = (value: YamlValue | undefined): string =>
  typeof value === "string" ? value : (JSON.stringify(value) ?? "");
