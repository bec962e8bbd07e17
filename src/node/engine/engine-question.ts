// The question whether an engine listens: a packet of a tunnel that it does not have, which it answers with "recv_error".

const headerBytes = 16;
/** Version 1, type 1 (message). The answer has type 2. */
const message = 0x11;
const recvError = 0x12;

export function engineQuestion(): Uint8Array<ArrayBuffer> {
  const packet = new Uint8Array(headerBytes);
  // No tunnel has this index and counter.
  packet.set([message, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff]);
  packet[15] = 1;
  return packet;
}

export const isEngineAnswer = (bytes: Uint8Array): boolean =>
  bytes.length >= headerBytes && bytes[0] === recvError;
