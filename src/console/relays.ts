// What relays forward for other machines, as GET relays/ shows it.

import { formatSize } from "../duration.ts";
import { org } from "./api.ts";
import { slug } from "./me.ts";
import { useList } from "./resource.ts";

export type Relay = {
  node: number;
  node_name: string;
  bytes: number | null;
  limit_bytes: number | null;
  paused: boolean;
};

export const relaysPath = (own: string) => org(own, "relays/");

export function useRelays(): readonly Relay[] {
  return useList<Relay>(relaysPath(slug.value ?? "")).data ?? [];
}

export function relayText({ bytes, limit_bytes, paused }: Relay): string {
  if (bytes === null)
    return "No count yet of what it forwards for others: only Linux with nftables sends one.";
  const limit = limit_bytes === null ? "" : ` of ${formatSize(limit_bytes)}`;
  const state = paused ? " The limit is reached: no machine uses this relay until the next month." : "";
  return `Forwarded for others this month (UTC): ${formatSize(bytes)}${limit}.${state}`;
}
