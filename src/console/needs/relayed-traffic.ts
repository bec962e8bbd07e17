// Traffic that relays forward for other nodes. Pure.

import { apiPath } from "../../api/endpoint.ts";
import { relaysApi } from "../../api/paths/relays.ts";
import type { Relay } from "../../api/paths/relays.ts";
import { formatSize } from "../../base/quantities.ts";

export const relaysPath = (slug: string) => apiPath(relaysApi.list, { slug });

/** What a relay forwarded in this month, and its limit, as sentences. */
export function relayText({ bytes, limit_bytes, paused }: Relay): string {
  if (bytes === null)
    return "No count yet of what it forwards for others: only Linux with nftables sends one.";
  const limit = limit_bytes === null ? "" : ` of ${formatSize(limit_bytes)}`;
  const state = paused ? " The limit is reached: no node uses this relay until the next month." : "";
  return `Forwarded for others this month (UTC): ${formatSize(bytes)}${limit}.${state}`;
}
