// Traffic that relays forward for other machines.

import { apiPath } from "../api/endpoint.ts";
import { pathsApi, type Relay } from "../api/paths.ts";
import { formatSize } from "../base/duration.ts";
import { slug } from "./me.ts";
import { useList } from "./resource.ts";

export const relaysPath = (own: string) => apiPath(pathsApi.relays, { slug: own });

export function useRelays(): readonly Relay[] {
  return useList(relaysPath(slug.value ?? "")).data ?? [];
}

export function relayText({ bytes, limit_bytes, paused }: Relay): string {
  if (bytes === null)
    return "No count yet of what it forwards for others: only Linux with nftables sends one.";
  const limit = limit_bytes === null ? "" : ` of ${formatSize(limit_bytes)}`;
  const state = paused ? " The limit is reached: no machine uses this relay until the next month." : "";
  return `Forwarded for others this month (UTC): ${formatSize(bytes)}${limit}.${state}`;
}
