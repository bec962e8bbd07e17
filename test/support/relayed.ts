// Nodes that reach each other through relays only: one lighthouse that is none, three relays, and nodes that drop each
// other's packets. Each pair is one node that pings another.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { startControlPlane } from "./agent.ts";
import { command } from "./daemon.ts";
import { joinMember, until, type Member } from "./members.ts";
import { makeLan, startPing, type Pinger } from "./namespaces.ts";
import { makeOrganization } from "./overlay.ts";
import { temporaryDirectory } from "./temporary.ts";

export type RelayedScene = AsyncDisposable & { relays: Member[]; nodes: Member[]; pings: Pinger[] };

export const relayNames = ["r1", "r2", "r3"];

/** Resolves when each node of a pair has answered through a relay. */
export async function makeRelayedScene(nebula: string, pairs: number): Promise<RelayedScene> {
  const stack = new AsyncDisposableStack();
  try {
    const directory = stack.use(temporaryDirectory());
    const names = Array.from({ length: 2 * pairs }, (_, at) => `n${at}`);
    const lan = stack.use(makeLan(["lh", ...relayNames, ...names]));
    const plane = stack.use(await startControlPlane(`${directory.path}/server`));
    const acme = await makeOrganization(plane);
    const token = await acme.makeToken(["--uses", "500", "--lighthouse"]);
    const addresses = lan.hosts.slice(1 + relayNames.length).map(({ address }) => address);
    const members: Member[] = [];
    for (const host of lan.hosts) {
      const known = ["--public-ip", host.address];
      const flags = relayNames.includes(host.name) ? ["--is-relay", ...known] : [];
      const hub = host.name === "lh" ? ["--is-lighthouse", "--no-relay", ...known] : flags;
      if (addresses.includes(host.address)) {
        host.run(["nft", "add", "table", "inet", "apart"]);
        host.run(["nft", "add", "chain", "inet", "apart", "in", "{ type filter hook input priority 0; }"]);
        const set = `{ ${addresses.join(", ")} }`;
        host.run(["nft", "add", "rule", "inet", "apart", "in", "ip", "saddr", set, "drop"]);
      }
      members.push(stack.use(await joinMember(acme, host, directory.path, nebula, token, hub)));
    }
    const relays = members.slice(1, 1 + relayNames.length);
    const nodes = members.slice(1 + relayNames.length);
    const pings = nodes.slice(0, pairs).map((from, at) => startPing(from.host, nodes[at + pairs]?.ip ?? ""));
    stack.defer(async () => void (await Promise.all(pings.map((ping) => ping.stop()))));
    await Promise.all(pings.map((ping) => ping.reply(60_000)));
    await until("two relays for each node", () => nodes.every((each) => relaysIn(each).length === 2), 90_000);
    // A look at the peers finds the tunnels, so that their relays are probed more often.
    await Promise.all(nodes.map(({ places }) => command(places, ["peers"])));
    return { relays, nodes, pings, [Symbol.asyncDispose]: () => stack.disposeAsync() };
  } catch (error) {
    await stack.disposeAsync();
    throw error;
  }
}

/** The relays in a node's config.yml. */
export function relaysIn({ places }: Pick<Member, "places">): string[] {
  const text = readFileSync(join(places.configRoot, "acme", "config.yml"), "utf8");
  const block = /^relay:\n((?: .*\n)+)/m.exec(text)?.[1] ?? "";
  return [...block.matchAll(/- "?(\d[\d.]+)"?/g)].map((match) => match[1] ?? "");
}

/**
 * Cuts off the relay that carries most packets, and resolves with how long each pair was without answers after it, in
 * seconds. Throws if one does not come back within `withinMs`.
 */
export async function loseRelay(
  { relays, pings }: RelayedScene,
  withinMs: number,
): Promise<{ lost: Member; gaps: number[] }> {
  const lost = await busiest(relays);
  const from = performance.now();
  lost.host.link("down");
  await Bun.sleep(withinMs);
  await Promise.all(pings.map((ping) => ping.reply(3000)));
  const gaps = pings.map(({ replies }) => {
    const times = replies.map(({ at }) => at).filter((at) => at > from - 500);
    const ends = times.filter((at, index) => at - (times[index - 1] ?? at) > 1000);
    return Math.max(0, ...ends.map((at) => (at - from) / 1000));
  });
  return { lost, gaps };
}

/** With few pairs, any other relay may carry none. */
async function busiest(relays: readonly Member[]): Promise<Member> {
  const before = relays.map(sentDatagrams);
  await Bun.sleep(2000);
  const sent = relays.map((relay, at) => ({ relay, packets: sentDatagrams(relay) - (before[at] ?? 0) }));
  const [most] = sent.toSorted((a, b) => b.packets - a.packets);
  if (most === undefined) throw new Error("No relay");
  return most.relay;
}

/** Not bytes, and only UDP: one check-in, or a few large probes, are more bytes than the pings of some seconds. */
function sentDatagrams({ host }: Member): number {
  const [names, values] = host
    .run(["cat", "/proc/net/snmp"])
    .split("\n")
    .filter((row) => row.startsWith("Udp:"))
    .map((row) => row.split(" "));
  return Number(values?.[names?.indexOf("OutDatagrams") ?? -1] ?? 0);
}
