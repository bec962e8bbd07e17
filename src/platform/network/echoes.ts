// Sends echo requests and notes the answers: what answers, since when, and how fast. Requests carry a mark, by which rules of
// the other machine's kernel can tell them apart.

import { given } from "../../base/given.ts";
import type { EchoSocket, OpenEcho } from "./echo-socket.ts";

/** What is known of one address that is asked. */
export type EchoTarget = {
  from: string;
  to: string;
  /** Hex, in front of what tells the requests apart. It follows from the key, so a target with another mark has another key. */
  mark: string;
  answeredAt: number | undefined;
  /** Since when it answers without a gap. */
  aliveSince: number | undefined;
  /** When the first request without an answer was sent. */
  silentSince: number | undefined;
  rttMs: number | undefined;
  sentAt: number;
};

/** A request that was sent. A target that was replaced since is asked no more: its answer changes nothing that is in use. */
type Probe = { target: EchoTarget; sentAt: number };

/** An answer that comes later than this does not count. */
const rememberMs = 10_000;
/**
 * A socket is used for so long. A new one has another identifier: a kernel on the way tracks its requests anew, and does not
 * translate their addresses as it did for the former ones.
 */
const socketMs = 5000;
/** The share of the newest round trip in the smoothed one. */
const newestShare = 0.2;

/**
 * Times are monotonic ms. A key names what is asked: a network, a router of a network, an exit. Call `set` when what is asked
 * may have changed, then regularly `send`, then `get` and `noteSilence`.
 */
export class Echoes {
  readonly #open: OpenEcho;
  readonly #monotonic: () => number;
  /** By key. */
  readonly #targets = new Map<string, EchoTarget>();
  /** By sequence and payload in hex, "7 5f0c…". */
  readonly #sent = new Map<string, Probe>();
  /** Sockets by the address that they send from. `former` still gets answers. */
  readonly #sockets = new Map<string, { socket: EchoSocket; openedAt: number; former?: EchoSocket }>();
  #sequence = 0;

  constructor({ open, monotonic }: { open: OpenEcho; monotonic(): number }) {
    this.#open = open;
    this.#monotonic = monotonic;
  }

  get(key: string): EchoTarget | undefined {
    return this.#targets.get(key);
  }

  /** Replaces what is asked; what stays keeps its state. */
  set(wanted: ReadonlyMap<string, { from: string; to: string; mark: string }>): void {
    for (const [key, { from, to }] of this.#targets) {
      const next = wanted.get(key);
      if (next?.from !== from || next.to !== to) this.#targets.delete(key);
    }
    for (const [key, each] of wanted) {
      if (this.#targets.has(key)) continue;
      const fresh = {
        answeredAt: undefined,
        aliveSince: undefined,
        silentSince: undefined,
        rttMs: undefined,
      };
      this.#targets.set(key, { ...each, ...fresh, sentAt: Number.NEGATIVE_INFINITY });
    }
  }

  /** Sends what is due. `everyMs`: the pace of each. */
  async send(everyMs: (key: string, target: EchoTarget) => number): Promise<void> {
    const now = this.#monotonic();
    for (const [id, { sentAt }] of this.#sent) if (now - sentAt > rememberMs) this.#sent.delete(id);
    for (const [key, target] of this.#targets) {
      if (now - target.sentAt < everyMs(key, target)) continue;
      target.sentAt = now;
      await this.#request(target, now);
    }
  }

  async #request(target: EchoTarget, now: number): Promise<void> {
    this.#sequence = (this.#sequence + 1) % 0x1_0000;
    const payload = Buffer.concat([
      Buffer.from(target.mark, "hex"),
      crypto.getRandomValues(new Uint8Array(4)),
    ]);
    // Count a request that cannot be sent as well: no address here or no route means that nothing is reached this way.
    target.silentSince ??= now;
    const socket = await this.#socket(target.from);
    if (socket === undefined) return;
    this.#sent.set(`${this.#sequence} ${payload.toString("hex")}`, { target, sentAt: now });
    if (socket.send(target.to, this.#sequence, payload)) return;
    // The socket may be bound to the interface before it was recreated: open it again.
    this.#close(target.from);
  }

  async #socket(from: string): Promise<EchoSocket | undefined> {
    const known = this.#sockets.get(from);
    const openedAt = this.#monotonic();
    if (known !== undefined && openedAt - known.openedAt < socketMs) return known.socket;
    const socket = await this.#open(from, ({ sequence, payload }) =>
      this.#answered(`${sequence} ${Buffer.from(payload).toString("hex")}`),
    );
    // A text: why none can be opened.
    if (typeof socket === "string") return known?.socket;
    known?.former?.close();
    this.#sockets.set(from, { socket, openedAt, ...given({ former: known?.socket }) });
    return socket;
  }

  #close(from: string): void {
    const { socket, former } = this.#sockets.get(from) ?? {};
    socket?.close();
    former?.close();
    this.#sockets.delete(from);
  }

  #answered(id: string): void {
    const probe = this.#sent.get(id);
    this.#sent.delete(id);
    if (probe === undefined) return;
    const { target, sentAt } = probe;
    const now = this.#monotonic();
    const rtt = now - sentAt;
    target.rttMs = target.rttMs === undefined ? rtt : (1 - newestShare) * target.rttMs + newestShare * rtt;
    target.answeredAt = now;
    target.aliveSince ??= now;
    target.silentSince = undefined;
  }

  /** Whether it has been silent for at least `ms`. If so, notes that it is not alive any more: clears `aliveSince`. */
  noteSilence(target: EchoTarget, ms: number): boolean {
    const isSilent = target.silentSince !== undefined && this.#monotonic() - target.silentSince >= ms;
    if (isSilent) target.aliveSince = undefined;
    return isSilent;
  }

  close(): void {
    for (const from of this.#sockets.keys()) this.#close(from);
  }
}
