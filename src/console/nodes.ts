// What pages say about machines.

import type { Node } from "../protocol.ts";
import type { StateName } from "./ui/parts.ts";

/** The state of a machine: its shape and its word. */
export function stateOf({ state, online }: Pick<Node, "state" | "online">): [StateName, string] {
  if (state === "revoked") return ["revoked", "revoked"];
  if (state === "pending") return ["limited", "not registered"];
  return online ? ["online", "online"] : ["away", "away"];
}
