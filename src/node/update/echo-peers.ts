// Sends echo requests to the peers of an organization, small ones and ones that fill the tunnel's MTU, to see whether packets pass.
// An answer proves both directions. A watched update (watch-update.ts) compares them with the time before.

import { addressInOther, hostOf, parseAddress, parseNetwork } from "../../base/ip.ts";
import type { EchoSocket, OpenEcho } from "../../platform/network/echo-socket.ts";
import type { System } from "../../base/system.ts";

/** Family of addresses, size of the packet, address: "4 small 10.77.0.1". The state file keeps it (files/update-order.ts). */
export type ProbeKey = string;
/** `bytes`: of the payload. */
type Probe = { key: ProbeKey; address: string; bytes: number };

export const addressIn = (key: ProbeKey): string => key.split(" ")[2] ?? "";
/** Family and size, without the address: "4 small". */
const kindIn = (key: ProbeKey): string => key.split(" ").slice(0, 2).join(" ");

/** `at`: ms since 1970. */
export type Round = { at: number; answered: ReadonlySet<ProbeKey> };

const answerWithinMs = 1500;
/** Bytes of the headers of IP and ICMP, by family. */
const headerBytes = { 4: 28, 6: 48 };

const familyOf = (address: string) => (address.includes(":") ? 6 : 4);

/**
 * The addresses that a peer may have in these networks: tunnels are listed by one address, and a control plane gives a node the
 * same host number in each network. An address that nobody has answers no probe before the change, so it counts for nothing.
 */
export function addressesOf(peer: string, networks: readonly string[]): string[] {
  const address = parseAddress(peer);
  const parsed = networks.flatMap((each) => parseNetwork(each) ?? []);
  const host = parsed
    .map((network) => address && hostOf(network, address))
    .find((each) => each !== undefined);
  if (host === undefined) return [peer];
  const others = parsed.filter((each) => each.family !== address?.family);
  return [peer, ...others.flatMap((network) => addressInOther(network, host) ?? [])];
}

/** A small and a large probe of each address. */
export function probesOf(addresses: readonly string[], mtu: number): Probe[] {
  return addresses.flatMap((address) => {
    const family = familyOf(address);
    return [
      { key: `${family} small ${address}`, address, bytes: 8 },
      { key: `${family} large ${address}`, address, bytes: mtu - headerBytes[family] },
    ];
  });
}

/** Sends each probe once, and resolves with those that were answered. `own`: this node's overlay addresses. */
export async function probeRound(
  probes: readonly Probe[],
  own: readonly string[],
  { openEcho, system }: { openEcho: OpenEcho; system: Pick<System, "now" | "sleep" | "random"> },
): Promise<Round> {
  const answered = new Set<ProbeKey>();
  // Sequence numbers have 16 bits. They begin at random, so that no answer to an earlier round is counted.
  const [high = 0, low = 0] = system.random(2);
  const first = high * 256 + low;
  const waiting = new Map(
    probes.map((probe, at) => {
      const payload = system.random(Math.max(8, probe.bytes));
      return [(first + at) & 0xffff, { ...probe, payload }] as const;
    }),
  );
  const sockets = new Map<number, EchoSocket>();
  for (const address of own) {
    const family = familyOf(address);
    if (sockets.has(family)) continue;
    const opened = await openEcho(address, ({ sequence, payload }) => {
      const probe = waiting.get(sequence);
      // The payload proves that the answer belongs to our request, and came back whole.
      if (probe !== undefined && Buffer.from(probe.payload).equals(payload)) answered.add(probe.key);
    });
    if (typeof opened !== "string") sockets.set(family, opened);
  }
  for (const [sequence, { address, payload }] of waiting)
    sockets.get(familyOf(address))?.send(address, sequence, payload);
  await system.sleep(answerWithinMs);
  for (const socket of sockets.values()) socket.close();
  return { at: system.now(), answered };
}

/** Undefined: nothing is worse. */
export type Verdict = { probe: string; reason: string } | undefined;

/** Without an answer for so many rounds, a probe counts as lost. */
export const lostRounds = 4;
/** A node with more than this share of additional losses does not carry traffic as before. */
const mostRisenLoss = 0.2;
/** Rounds that a loss is measured over. A watch of a minute has as many. */
const lossRounds = 12;

/** The probes that were answered before the change, and by none of the last rounds. Empty while there are too few rounds. */
export function lostProbes(before: readonly ProbeKey[], rounds: readonly Round[]): ProbeKey[] {
  const last = rounds.slice(-lostRounds);
  if (last.length < lostRounds) return [];
  return before.filter((key) => last.every(({ answered }) => !answered.has(key)));
}

/**
 * Whether the node works worse than before. One of several peers that is lost may be away itself: the control plane judges
 * that. A kind of packets that reaches less than half of the peers, or not the only one, is the node's own fault. `lossBefore`: the
 * share of lost probes before the change, from 0 to 1.
 */
export function judge(before: readonly ProbeKey[], rounds: readonly Round[], lossBefore = 0): Verdict {
  const lost = lostProbes(before, rounds);
  for (const [kind, keys] of Map.groupBy(before, kindIn)) {
    const gone = keys.filter((key) => lost.includes(key));
    if (gone.length * 2 <= keys.length) continue;
    const names = gone.map(addressIn).join(", ");
    const [family, size] = kind.split(" ");
    return {
      probe: `${size} packets of IPv${family} to ${names}`,
      reason: `${gone.length} of ${keys.length} peers that answered before do not answer ${size} packets of IPv${family}`,
    };
  }
  const recent = rounds.slice(-lossRounds);
  if (recent.length < lossRounds || before.length === 0) return undefined;
  const kept = before.filter((key) => !lost.includes(key));
  const answers = recent.reduce(
    (sum, { answered }) => sum + kept.filter((key) => answered.has(key)).length,
    0,
  );
  const loss = kept.length === 0 ? 0 : 1 - answers / (kept.length * recent.length);
  if (loss - lossBefore <= mostRisenLoss) return undefined;
  return {
    probe: "loss of echoes",
    reason: `${Math.round(loss * 100)} % of the echoes to peers that answered before are lost`,
  };
}
