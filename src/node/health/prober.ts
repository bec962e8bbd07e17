// Probes overlay addresses by ICMP echo, and remembers which ones answer. An answer proves that packets pass both
// ways. No answer proves nothing about a peer that never answered, because administrators may delete the firewall
// rule for ICMP.

import type { EchoReply, EchoSocket, NoEcho, OpenEcho } from "../../platform/network/echo-socket.ts";
import { brokenAfter, burst, historyMs, isBroken, type ProbeRecord } from "./probe-record.ts";

export const probeEveryMs = 10_000;
/** How long an answer may take before it counts as missed. A later answer still counts, as long as it is remembered. */
const answerWithinMs = 1000;
const rememberRequestMs = 5000;
/** In this time it is decided whether a peer answers: by four probes, 1 s each, which a busy machine sends late. */
export const decidedWithinMs = 8000;
/** Most records of addresses that are no longer probed. */
const mostFormer = 1000;
/** Sequence numbers have 16 bits. */
const sequences = 0x1_0000;

type Target = ProbeRecord & {
  /** When the next probe is sent, monotonic ms. */
  dueAt: number;
  everyMs: number;
  /** After so many more misses the next probe follows at once, not after `everyMs`. */
  burstLeft: number;
  awaiting: { sequence: number; sentAt: number } | undefined;
  /** How many of the `sent` probes sentSince() has already returned. */
  counted: number;
};
type Request = { address: string; nonce: Uint8Array; sentAt: number };

type ProberDeps = {
  open: OpenEcho;
  random(bytes: number): Uint8Array;
  /** ms that never go back. */
  monotonic(): number;
};

export class Prober {
  readonly #deps: ProberDeps;
  readonly #targets = new Map<string, Target>();
  /** Addresses that are no longer probed and have answered. */
  readonly #former = new Map<string, Target>();
  /** By sequence number. */
  readonly #requests = new Map<number, Request>();
  /** By the overlay address of this machine from which they send, as the problems are. */
  readonly #sockets = new Map<string, EchoSocket>();
  readonly #problems = new Map<string, NoEcho>();
  /** Those who wait for nextChange(). */
  readonly #waiting = new Set<() => void>();
  #sequence = 0;

  constructor(deps: ProberDeps) {
    this.#deps = deps;
  }

  /** Replaces the probed addresses. New ones are due at once. `paces`: ms between probes, of those whose loss is urgent. */
  setTargets(addresses: readonly string[], paces: ReadonlyMap<string, number> = new Map()): void {
    const wanted = new Set(addresses);
    for (const [address, target] of this.#targets) {
      if (wanted.has(address)) continue;
      this.#targets.delete(address);
      this.#former.set(address, { ...target, awaiting: undefined });
    }
    const now = this.#deps.monotonic();
    for (const address of wanted) {
      const everyMs = paces.get(address) ?? probeEveryMs;
      const target = this.#targets.get(address);
      if (target !== undefined) {
        target.everyMs = everyMs;
        if (target.missed === 0) target.dueAt = Math.min(target.dueAt, now + everyMs);
        continue;
      }
      const former = this.#former.get(address);
      this.#former.delete(address);
      this.#targets.set(address, { ...(former ?? newTarget(now)), everyMs, dueAt: now });
    }
    this.#limitFormer();
  }

  /** Drops all that never answered. Of the others, those that stopped answering are dropped last: nothing else knows that they did. */
  #limitFormer(): void {
    for (const [address, { answeredAt }] of this.#former)
      if (answeredAt === undefined) this.#former.delete(address);
    const surplus = this.#former.size - mostFormer;
    if (surplus <= 0) return;
    const lostLast = [...this.#former].toSorted(([, a], [, b]) => Number(isBroken(a)) - Number(isBroken(b)));
    for (const [address] of lostLast.slice(0, surplus)) this.#former.delete(address);
  }

  /** Notes the index of the tunnel in which the address answers. */
  noteIndex(address: string, index: number): void {
    const target = this.#targets.get(address) ?? this.#former.get(address);
    if (target !== undefined) target.index = index;
  }

  /** The peer is gone: its earlier answers say nothing. */
  forget(address: string): void {
    this.#targets.delete(address);
    this.#former.delete(address);
  }

  /** The peer is there, and refuses ICMP since its last answer: its silence says nothing until it answers again. */
  disregard(address: string): void {
    const target = this.#targets.get(address) ?? this.#former.get(address);
    if (target !== undefined) target.answeredAt = target.rttMs = undefined;
  }

  targets(): string[] {
    return [...this.#targets.keys()];
  }

  record(address: string): ProbeRecord | undefined {
    return this.#targets.get(address) ?? this.#former.get(address);
  }

  records(): [address: string, record: ProbeRecord][] {
    return [...this.#former, ...this.#targets];
  }

  /** How many probes went to an address since the last call: tunnels.ts takes them off the packets that the engine counts. */
  sentSince(address: string): number {
    const target = this.#targets.get(address) ?? this.#former.get(address);
    if (target === undefined) return 0;
    const count = target.sent - target.counted;
    target.counted = target.sent;
    return count;
  }

  /** Monotonic ms of the last answer of any address; 0 without one. */
  get lastAnswer(): number {
    return Math.max(0, ...this.records().map(([, { answeredAt }]) => answeredAt ?? 0));
  }

  /** Monotonic ms of the last answer of one of these; undefined without one. */
  lastAnswerOf(addresses: readonly string[]): number | undefined {
    const all = addresses.flatMap((each) => this.record(each)?.answeredAt ?? []);
    return all.length === 0 ? undefined : Math.max(...all);
  }

  /** Takes over the records of an earlier process. */
  restore(address: string, record: ProbeRecord): void {
    const target = {
      ...record,
      awaiting: undefined,
      counted: record.sent,
      everyMs: probeEveryMs,
      burstLeft: Math.max(0, burst - record.missed),
      dueAt: this.#deps.monotonic(),
    };
    if (this.#targets.has(address)) this.#targets.set(address, target);
    else this.#former.set(address, target);
  }

  /**
   * Why nothing can be sent from an address of this machine. denied: this process may not send ICMP. absent: the machine no longer has
   * the address, for example because no engine runs.
   */
  problem(from: string): NoEcho | undefined {
    return this.#problems.get(from);
  }

  /**
   * Makes addresses due now, with a burst if they do not answer. The count of misses stays: until a peer answers, it counts as silent
   * as before.
   */
  hurry(addresses: readonly string[]): void {
    this.makeDue(addresses);
    for (const address of addresses) {
      const target = this.#targets.get(address);
      // With the probe that is due now, a silent address is decided after `burst` misses (isSettled), another one after `brokenAfter`.
      if (target !== undefined) target.burstLeft = target.missed >= brokenAfter ? burst - 1 : burst;
    }
  }

  /** Makes addresses due now, without a burst. */
  makeDue(addresses: readonly string[]): void {
    const now = this.#deps.monotonic();
    for (const address of addresses) {
      const target = this.#targets.get(address);
      if (target !== undefined && target.awaiting === undefined) target.dueAt = now;
    }
  }

  /**
   * Sends what is due and counts what was missed. `fromOf`: the address of this machine that an address is probed from.
   * Resolves with the ms until the next call is needed.
   */
  async step(fromOf: (address: string) => string | undefined): Promise<number> {
    const now = this.#deps.monotonic();
    for (const target of this.#targets.values()) countMissIfLate(target, now);
    for (const [address, target] of this.#targets) {
      if (target.awaiting === undefined && target.dueAt <= now)
        await this.#send(address, target, fromOf(address), now);
    }
    for (const [sequence, { sentAt }] of this.#requests)
      if (now - sentAt > rememberRequestMs) this.#requests.delete(sequence);
    for (const wake of this.#waiting) wake();
    const next = [...this.#targets.values()].map(({ awaiting, dueAt }) =>
      awaiting === undefined ? dueAt : awaiting.sentAt + answerWithinMs,
    );
    return Math.max(0, Math.min(probeEveryMs, ...next.map((at) => at - this.#deps.monotonic())));
  }

  /** Resolves at the next answer or step. */
  nextChange(): Promise<void> {
    return new Promise((resolve) => {
      const wake = () => {
        this.#waiting.delete(wake);
        resolve();
      };
      this.#waiting.add(wake);
    });
  }

  close(): void {
    for (const socket of this.#sockets.values()) socket.close();
    this.#sockets.clear();
  }

  async #send(address: string, target: Target, from: string | undefined, now: number): Promise<void> {
    const sequence = (this.#sequence = (this.#sequence + 1) % sequences);
    const nonce = this.#deps.random(4);
    // Where nothing can be sent, the probe counts as missed as well: the peer is not reached.
    target.awaiting = { sequence, sentAt: now };
    this.#requests.set(sequence, { address, nonce, sentAt: now });
    const socket = from === undefined ? undefined : await this.#socket(from);
    if (from === undefined || socket === undefined) return;
    if (socket.send(address, sequence, nonce)) {
      target.sent += 1;
      return;
    }
    // The socket is still bound to an interface that was recreated since: open a new one for the next probe.
    socket.close();
    this.#sockets.delete(from);
  }

  async #socket(from: string): Promise<EchoSocket | undefined> {
    const known = this.#sockets.get(from);
    if (known !== undefined) return known;
    const opened = await this.#deps.open(from, (reply) => this.#answered(reply));
    if (typeof opened === "string") {
      this.#problems.set(from, opened);
      return undefined;
    }
    this.#problems.delete(from);
    this.#sockets.set(from, opened);
    return opened;
  }

  /** The nonce proves that the answer belongs to our request: other peers cannot know it. */
  #answered({ sequence, payload }: EchoReply): void {
    const request = this.#requests.get(sequence);
    if (request === undefined || !Buffer.from(request.nonce).equals(payload)) return;
    this.#requests.delete(sequence);
    const target = this.#targets.get(request.address);
    if (target === undefined) return;
    const now = this.#deps.monotonic();
    target.answeredAt = now;
    target.rttMs = now - request.sentAt;
    target.missed = 0;
    target.burstLeft = burst;
    if (target.awaiting?.sequence === sequence) {
      target.awaiting = undefined;
      addResult(target, { at: now, answered: true });
      target.dueAt = request.sentAt + target.everyMs;
    } else if (target.awaiting === undefined) target.dueAt = now + target.everyMs;
    for (const wake of this.#waiting) wake();
  }
}

function newTarget(now: number): Omit<Target, "dueAt" | "everyMs"> {
  return {
    answeredAt: undefined,
    rttMs: undefined,
    missed: 0,
    since: now,
    index: undefined,
    sent: 0,
    history: [],
    burstLeft: burst,
    awaiting: undefined,
    counted: 0,
  };
}

/** A probe without an answer in time counts as missed. */
function countMissIfLate(target: Target, now: number): void {
  if (target.awaiting === undefined || now - target.awaiting.sentAt < answerWithinMs) return;
  target.missed += 1;
  // After the burst at the usual pace, whatever `everyMs` is: the loss, which was urgent, is known by then.
  target.dueAt = target.burstLeft > 0 ? now : target.awaiting.sentAt + probeEveryMs;
  target.burstLeft = Math.max(0, target.burstLeft - 1);
  target.awaiting = undefined;
  addResult(target, { at: now, answered: false });
}

function addResult(target: Target, result: ProbeRecord["history"][number]): void {
  const recent = target.history.filter(({ at }) => result.at - at < historyMs);
  target.history = [...recent, result];
}
