// Datagrams inside messages of a byte stream: each after its length, two bytes, big endian. Several in one message, because
// each message costs a system call and a record of TLS.

/** Longer ones are dropped. The engine's largest interface makes datagrams of about 9,000 bytes. */
export const longestDatagram = 16_384;
/** The maximum of a message, for both sides. */
export const longestMessage = 65_536;

/** The datagrams of a message. Everything from the first wrong length on is dropped. */
export function datagramsIn(message: Uint8Array): Uint8Array[] {
  const found: Uint8Array[] = [];
  for (let at = 0; at + 2 < message.length;) {
    const length = ((message[at] ?? 0) << 8) | (message[at + 1] ?? 0);
    const end = at + 2 + length;
    if (length === 0 || length > longestDatagram || end > message.length) break;
    found.push(message.subarray(at + 2, end));
    at = end;
  }
  return found;
}

/**
 * Sends a datagram. It may be lost, as any datagram may. Bun throws what the kernel says: a firewall forbids it, or nothing listened
 * when the datagram before it arrived.
 */
export function sendOrLose(send: () => void): void {
  try {
    send();
  } catch {
    // Lost.
  }
}

/** Sends what was added since the last turn of the event loop as one message. */
export class DatagramBatch {
  readonly #send: (message: Uint8Array<ArrayBuffer>) => void;
  #parts: Uint8Array[] = [];
  #length = 0;
  #timer: ReturnType<typeof setImmediate> | undefined;

  constructor(send: (message: Uint8Array<ArrayBuffer>) => void) {
    this.#send = send;
  }

  /** Copies the datagram: the buffers of Bun's sockets are used again. */
  add(datagram: Uint8Array): void {
    const { length } = datagram;
    if (length === 0 || length > longestDatagram) return;
    if (this.#length + 2 + length > longestMessage) this.flush();
    const part = new Uint8Array(2 + length);
    part[0] = length >> 8;
    part[1] = length & 0xff;
    part.set(datagram, 2);
    this.#parts.push(part);
    this.#length += part.length;
    this.#timer ??= setImmediate(() => this.flush());
  }

  flush(): void {
    clearImmediate(this.#timer);
    this.#timer = undefined;
    const parts = this.#parts;
    const length = this.#length;
    if (length === 0) return;
    this.#parts = [];
    this.#length = 0;
    const message = new Uint8Array(length);
    let at = 0;
    for (const part of parts) {
      message.set(part, at);
      at += part.length;
    }
    this.#send(message);
  }
}
