// Counts in the kernel (Linux, nftables) the packets that the engine of a relay forwards for other nodes. No engine
// counts them, but each relayed packet is recognizable: the engine's header begins with version 1, type message,
// subtype relay. The table only counts: it accepts and drops nothing.

import { given } from "../../base/given.ts";
import { existsSync } from "node:fs";
import * as v from "valibot";
import { brand } from "../../brand.ts";
import type { RelayedReport } from "../../protocol/relayed-report.ts";
import type { System } from "../../base/system.ts";

type Edge = Pick<System, "run" | "platform">;

const programs = ["/usr/sbin/nft", "/sbin/nft", "/usr/bin/nft"];
const timeoutMs = 5000;

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

/** Undefined if this machine cannot count: it is no Linux, or has no nft. */
export function nftProgram({ platform }: Pick<System, "platform">): string | undefined {
  return platform === "linux" ? programs.find((each) => existsSync(each)) : undefined;
}

/**
 * Bytes that were forwarded since the counter exists, with the headers of IP: once for packets that the engine hands
 * to the kernel together (offloads). Begins to count at the first call. Undefined if this machine cannot count, or
 * this process may not. Does not reject.
 */
export async function readRelayed(
  slug: string,
  port: number,
  system: Edge & Pick<System, "isRoot" | "random">,
): Promise<RelayedReport | undefined> {
  const nft = nftProgram(system);
  if (nft === undefined || !system.isRoot || port === 0) return undefined;
  const run = (words: string[], input?: string) =>
    system.run([nft, ...words], { timeoutMs, ...given({ input }) });
  try {
    const listed = await run(["-j", "list", "counters", "table", "inet", tableOf(slug)]);
    const counter = listed.status === 0 ? counterIn(listed.stdout, port) : undefined;
    if (counter !== undefined) return counter;
    const name = `p${port}x${Buffer.from(system.random(6)).toString("hex")}`;
    const made = await run(["-f", "-"], script(tableOf(slug), name, port));
    return made.status === 0 ? { counter: name, bytes: 0 } : undefined;
  } catch {
    return undefined;
  }
}

/** Ends counting, if it was begun. Does not reject. */
export async function removeRelayCounter(slug: string, system: Edge): Promise<void> {
  const nft = nftProgram(system);
  if (nft === undefined) return;
  await system.run([nft, "delete", "table", "inet", tableOf(slug)], { timeoutMs }).catch(() => undefined);
}

const tableOf = (slug: string) => `${brand.id}-relay-${slug}`;

/** The name has the port: after a change of the port, the rule is written again. */
function counterIn(text: string, port: number): RelayedReport | undefined {
  const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(), Counters), text);
  if (!parsed.success) return undefined;
  const counter = parsed.output.nftables.flatMap((each) => each.counter ?? [])[0];
  if (counter === undefined || !counter.name.startsWith(`p${port}x`)) return undefined;
  return { counter: counter.name, bytes: counter.bytes };
}

/** In one transaction. To delete a table that may not exist, it is added before. */
function script(table: string, counter: string, port: number): string {
  return `add table inet ${table}
delete table inet ${table}
table inet ${table} {
  counter ${counter} { }
  chain out {
    type filter hook output priority 300; policy accept;
    udp sport ${port} @th,64,16 0x1101 counter name "${counter}"
  }
}
`;
}
