// Makes the UDP port of an engine dead for a while. The kernel itself ends it: the rules drop packets only of ports in a set,
// and the set's element has a timeout, which runs although agent and engine are killed. A reboot removes the table.

import { listenPort } from "../files/config/read-config.ts";
import { chainsOf, keepTable, putTable } from "../../platform/nftables.ts";
import type { System } from "../../base/system.ts";

type UsedSystem = Pick<System, "run" | "platform">;

/** Before the usual rules: another table may have accepted the packet already, but none can bring a dropped one back. */
const hook = (name: string) => `filter hook ${name} priority -150`;

/** The body of the table: the port belongs to this organization's engine alone. */
export function deadPortBody(port: number, ms: number): string {
  const set = `set port {\n  type inet_service; flags timeout;\n  elements = { ${port} timeout ${ms}ms }\n}`;
  const chains = chainsOf([
    { name: "in", hook: hook("input"), rules: ["udp dport @port drop"] },
    { name: "out", hook: hook("output"), rules: ["udp sport @port drop"] },
  ]);
  return `${set}\n${chains}`;
}

/** Resolves with the reason if the port cannot be made dead, else with undefined. Does not reject. `ms`: for how long. */
export async function makePortDead(
  { slug, directory }: { slug: string; directory: string },
  ms: number,
  system: UsedSystem,
): Promise<string | undefined> {
  const port = listenPort(directory);
  if (port === 0) return "its engine takes any free UDP port (listen_port is 0)";
  return putTable("drill", slug, deadPortBody(port, Math.max(1, Math.round(ms))), system);
}

/** Removes the table after its time, when it drops nothing any more. Resolves with the reason if it cannot. Does not reject. */
export const removeDeadPort = (slug: string, system: UsedSystem): Promise<string | undefined> =>
  keepTable("drill", slug, undefined, system);
