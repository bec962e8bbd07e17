// Requests that a command must send before it knows its changes: they are part of its --dry-run plan.

import type { Step } from "./plan.ts";
import type { System } from "../system.ts";

/** The same system, and a list of the requests sent through it, each once. */
export function recordRequests<Given extends Pick<System, "fetch">>(
  system: Given,
): { system: Given; requests(): Step[] } {
  const sent = new Map<string, Step>();
  const fetch: System["fetch"] = (url, init) => {
    const method = init?.method ?? "GET";
    sent.set(`${method} ${url}`, { step: "request", method, url });
    return system.fetch(url, init);
  };
  return { system: { ...system, fetch }, requests: () => [...sent.values()] };
}
