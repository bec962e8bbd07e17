// Counts in the kernel (Linux, nftables) the packets that the engine of a relay forwards for other nodes. No engine
// counts them, but each relayed packet is recognizable: the engine's header begins with version 1, type message,
// subtype relay. The table only counts: it accepts and drops nothing.

import * as v from "valibot";
import type { RelayedReport } from "../../protocol/traffic-reports.ts";
import type { System } from "../../base/system.ts";
import { putTable, readTable } from "../nftables.ts";

const Counters = v.object({
  nftables: v.pipe(
    v.array(
      v.object({
        counter: v.optional(
          v.object({
            name: v.pipe(v.string(), v.maxLength(64)),
            bytes: v.pipe(v.number(), v.integer(), v.minValue(0), v.maxValue(Number.MAX_SAFE_INTEGER)),
          }),
        ),
      }),
    ),
    v.maxLength(100),
  ),
});

/**
 * Bytes that were forwarded since the counter exists, with the headers of IP. Packets that the engine hands to the kernel together
 * (offloads) count with one header. Begins to count at the first call. Undefined if this machine cannot count, or
 * this process may not. Does not reject.
 */
export async function readRelayed(
  slug: string,
  port: number,
  system: Pick<System, "run" | "platform" | "isRoot" | "random">,
): Promise<RelayedReport | undefined> {
  if (!system.isRoot || port === 0) return undefined;
  const listed = await readTable("relay", slug, system, "counters");
  const counter = listed === undefined ? undefined : counterIn(listed, port);
  if (counter !== undefined) return counter;
  // The random part is another one for each counter: the control plane sees by it that the count began at 0 again.
  const name = `p${port}x${Buffer.from(system.random(6)).toString("hex")}`;
  const failed = await putTable("relay", slug, tableBody(name, port), system);
  return failed === undefined ? { counter: name, bytes: 0 } : undefined;
}

/** The name has the port: after a change of the port, the rule is written again. */
function counterIn(text: string, port: number): RelayedReport | undefined {
  const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(), Counters), text);
  if (!parsed.success) return undefined;
  const counter = parsed.output.nftables.flatMap((each) => each.counter ?? [])[0];
  if (counter === undefined || !counter.name.startsWith(`p${port}x`)) return undefined;
  return { counter: counter.name, bytes: counter.bytes };
}

/** The 16 bits at 64 are the first two bytes behind the UDP header: version 1 and type message, then the subtype relay. */
function tableBody(counter: string, port: number): string {
  return `  counter ${counter} { }
  chain out {
    type filter hook output priority 300; policy accept;
    udp sport ${port} @th,64,16 0x1101 counter name "${counter}"
  }`;
}
