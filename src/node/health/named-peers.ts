// Peers that a user asked for: they are probed for a minute.

const mostNamed = 200;
const probedForMs = 60_000;

export class NamedPeers {
  /** Address → when a user named it, monotonic ms. */
  readonly #namedAt = new Map<string, number>();

  /**
   * `now`: monotonic ms; earlier than in a former call for names that another run has saved (saved-probes.ts). The peers that were named
   * last are kept, each with its latest time.
   */
  add(addresses: readonly string[], now: number): void {
    for (const address of addresses.slice(0, mostNamed)) {
      if ((this.#namedAt.get(address) ?? Number.NEGATIVE_INFINITY) > now) continue;
      this.#namedAt.delete(address);
      this.#namedAt.set(address, now);
    }
    for (const address of this.addresses(now).slice(0, -mostNamed)) this.#namedAt.delete(address);
  }

  addresses(now: number): string[] {
    for (const [address, at] of this.#namedAt) if (now - at > probedForMs) this.#namedAt.delete(address);
    return [...this.#namedAt.keys()];
  }

  /** Monotonic ms; undefined: not named in the last minute. */
  namedAt(address: string, now: number): number | undefined {
    const at = this.#namedAt.get(address);
    return at !== undefined && now - at <= probedForMs ? at : undefined;
  }
}
