// The names of peers, also of those without a tunnel: the last ones that were seen.

const most = 1000;

export class PeerNames {
  readonly #names = new Map<string, string>();

  of(address: string): string {
    return this.#names.get(address) ?? address;
  }

  addressOf(name: string): string | undefined {
    for (const [address, each] of this.#names) if (each === name) return address;
    return undefined;
  }

  forget(address: string): void {
    this.#names.delete(address);
  }

  remember(address: string, name: string): void {
    this.#names.delete(address);
    this.#names.set(address, name);
    for (const oldest of this.#names.keys()) {
      if (this.#names.size <= most) return;
      this.#names.delete(oldest);
    }
  }
}
