// Peers that a user asked for: they are probed for a minute.

const most = 200;
const forMs = 60_000;

export class NamedPeers {
  /** Address → when a user named it, monotonic ms. */
  readonly #at = new Map<string, number>();

  /** The latest are kept, each with its latest time. */
  add(addresses: readonly string[], now: number): void {
    for (const address of addresses.slice(0, most)) {
      if ((this.#at.get(address) ?? Number.NEGATIVE_INFINITY) > now) continue;
      this.#at.delete(address);
      this.#at.set(address, now);
    }
    for (const address of this.addresses(now).slice(0, -most)) this.#at.delete(address);
  }

  addresses(now: number): string[] {
    for (const [address, at] of this.#at) if (now - at > forMs) this.#at.delete(address);
    return [...this.#at.keys()];
  }

  /** Monotonic ms; undefined: not named in the last minute. */
  namedAt(address: string, now: number): number | undefined {
    const at = this.#at.get(address);
    return at !== undefined && now - at <= forMs ? at : undefined;
  }
}
