// Nodes whose paths are broken and repaired: for tests of healing.

import * as v from "valibot";
import { startControlPlane } from "./agent.ts";
import { command } from "./daemon.ts";
import { joinMember, type Member } from "./members.ts";
import { makeLan, type Host, type Pinger } from "./namespaces.ts";
import { makeOrganization } from "./overlay.ts";
import { temporaryDirectory } from "./temporary.ts";

const Peers = v.object({
  teams: v.array(
    v.object({ peers: v.array(v.looseObject({ name: v.string(), path: v.string(), probe: v.string() })) }),
  ),
});

export async function peerOf(member: Member, name: string) {
  const { stdout } = await command(member.places, ["peers", "--json"]);
  return v.parse(Peers, JSON.parse(stdout)).teams[0]?.peers.find((each) => each.name === name);
}

/** Drops what comes from an underlay address. */
export function dropFrom(host: Host, address: string): { repair(): void } {
  const nft = (...words: string[]) => host.run(["nft", ...words]);
  nft("add", "table", "inet", "loss");
  nft("add", "chain", "inet", "loss", "in", "{ type filter hook input priority 0; }");
  nft("add", "rule", "inet", "loss", "in", "ip", "saddr", address, "drop");
  return { repair: () => void nft("delete", "table", "inet", "loss") };
}

/** When the last interruption of over a second ended. A moment with answers inside of it does not count as its end. */
export function lastGapEnd({ replies }: Pinger): number {
  const ends = replies.filter(({ at }, index) => at - (replies[index - 1]?.at ?? at) > 1000);
  return ends.at(-1)?.at ?? 0;
}

/** A lighthouse that is a relay, and two nodes, on one Ethernet. */
export async function makeHealingScene(
  nebula: string,
  names = ["hub", "a", "b"],
  orgFlags: readonly string[] = [],
) {
  const stack = new AsyncDisposableStack();
  const directory = stack.use(temporaryDirectory());
  const lan = stack.use(makeLan(names));
  const plane = stack.use(await startControlPlane(`${directory.path}/server`, ["--access-lifetime", "4h"]));
  const acme = await makeOrganization(plane, "acme", "10.77.0.0/16", orgFlags);
  const token = await acme.makeToken(["--uses", "9", "--lighthouse"]);
  const members: Member[] = [];
  for (const host of lan.hosts) {
    const hub = members.length === 0 ? ["--is-lighthouse", "--is-relay", "--public-ip", host.address] : [];
    members.push(stack.use(await joinMember(acme, host, directory.path, nebula, token, hub)));
  }
  const [hub, a, b] = members;
  if (hub === undefined || a === undefined || b === undefined) throw new Error("Three members");
  return { plane, organization: acme, members, hub, a, b, [Symbol.asyncDispose]: () => stack.disposeAsync() };
}
