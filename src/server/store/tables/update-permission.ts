// What root of a node's machine lets the control plane update, and the node's time zone, as one column holds them.

import type { MayUpdate } from "../../../protocol/updates/order.ts";

/** `agent,engine 120`, with the distance of the node's clock from UTC in minutes. Null: the control plane may update nothing. */
export function permissionText({ may, zone }: MayUpdate): string | null {
  const known = may.filter((each) => /^[a-z]{1,16}$/.test(each)).toSorted();
  return known.length === 0 ? null : `${known.join(",")} ${zone}`;
}

/** The reverse of `permissionText`. */
export function permissionOf(text: string | null): { may: readonly string[]; zone: number } {
  const [may = "", zone = "0"] = (text ?? "").split(" ");
  return { may: may === "" ? [] : may.split(","), zone: Number(zone) || 0 };
}
