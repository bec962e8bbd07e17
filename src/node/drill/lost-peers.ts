// Which peers a node loses during a drill, and for how long: two echoes a second to each of them. The health's own probes
// are slower, because they never end.

import type { EchoSocket, OpenEcho } from "../../platform/network/echo-socket.ts";
import type { System } from "../../base/system.ts";
import { afterDrillMs, maxLosses, type Loss } from "../../protocol/updates/drill.ts";

const everyMs = 500;
/** A peer without an answer for so long is lost. Single packets are lost on any network. */
const lostAfterMs = 2500;
/** Requests to each peer that are remembered: a later answer counts for nothing. */
const remembered = 16;

type Deps = { openEcho: OpenEcho; system: Pick<System, "monotonic" | "sleep" | "random"> };
/** `leftMs`: the time until the end of the drill, which an order may bring forward. */
type Times = { beginsInMs: number; leftMs(): number };
type Sent = { address: string; nonce: Uint8Array };

/** Resolves when the drill has ended, and each peer that answered before does so again, or half a minute has passed. */
export async function watchPeers(
  peers: readonly string[],
  own: readonly string[],
  { beginsInMs, leftMs }: Times,
  { openEcho, system }: Deps,
): Promise<{ peers: number; losses: Loss[] }> {
  const start = system.monotonic();
  /** ms since the drill began, like all times in this function. Negative before it. */
  const elapsed = () => system.monotonic() - start - beginsInMs;
  let endMs = elapsed() + leftMs();
  const answeredAt = new Map<string, number>();
  const losses: Loss[] = [];
  /** `until`: null for a loss that goes on. */
  const note = (peer: string, from: number, until: number | null) => {
    // A loss that ended before the drill, or began after it, is not the drill's.
    if ((until ?? endMs) < 0 || from > endMs + afterDrillMs || losses.length >= maxLosses) return;
    losses.push({ peer, from_ms: Math.round(from), until_ms: until === null ? null : Math.round(until) });
  };
  const sent = new Map<number, Sent>();
  const echo = makeEcho(own, openEcho, ({ sequence, payload }) => {
    const request = sent.get(sequence);
    // The nonce proves that the answer belongs to our request.
    if (request === undefined || !Buffer.from(request.nonce).equals(payload)) return;
    const lastAnswer = answeredAt.get(request.address);
    const now = elapsed();
    answeredAt.set(request.address, now);
    if (lastAnswer !== undefined && now - lastAnswer > lostAfterMs) note(request.address, lastAnswer, now);
  });
  const isLost = (peer: string) => elapsed() - (answeredAt.get(peer) ?? elapsed()) > lostAfterMs;
  for (let sequence = 0; ; await system.sleep(everyMs)) {
    endMs = Math.min(endMs, elapsed() + leftMs());
    if (elapsed() > endMs + afterDrillMs || (elapsed() > endMs + lostAfterMs && !peers.some(isLost))) break;
    for (const address of peers) {
      // Sequence numbers of echo requests have 16 bits.
      sequence = (sequence + 1) & 0xffff;
      const nonce = system.random(8);
      // After 65535 the numbers begin again. The requests that this misses then are replaced when their numbers come again.
      sent.delete(sequence - remembered * peers.length);
      sent.set(sequence, { address, nonce });
      await echo.send(address, sequence, nonce);
    }
  }
  echo.close();
  for (const peer of peers) if (isLost(peer)) note(peer, answeredAt.get(peer) ?? 0, null);
  return { peers: answeredAt.size, losses };
}

/** A socket for each family, opened again when a request cannot be sent: the engine may have been restarted meanwhile. */
function makeEcho(own: readonly string[], openEcho: OpenEcho, onReply: Parameters<OpenEcho>[1]) {
  const sockets = new Map<string, EchoSocket>();
  const sourceOf = (address: string) => own.find((each) => each.includes(":") === address.includes(":"));
  return {
    async send(address: string, sequence: number, nonce: Uint8Array): Promise<void> {
      const from = sourceOf(address);
      if (from === undefined) return;
      const opened = sockets.get(from) ?? (await openEcho(from, onReply));
      if (typeof opened === "string") return;
      sockets.set(from, opened);
      if (opened.send(address, sequence, nonce)) return;
      opened.close();
      sockets.delete(from);
    },
    close() {
      for (const socket of sockets.values()) socket.close();
    },
  };
}
