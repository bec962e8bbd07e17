// The question whether an engine listens: a packet of a tunnel that it does not have, which it answers with "recv_error".

const headerBytes = 16;
/** Where the header has the index of the tunnel, and the counter of its messages. */
const indexAt = 4;
const messageCounterAt = 8;
/** The first byte of a packet: version 1 of the protocol, and the type. */
const message = 0x11;
const recvError = 0x12;
/** The index of a tunnel that no engine has. */
const unknownIndex = 0x7f_ff_ff_ff;

export function engineQuestion(): Uint8Array<ArrayBuffer> {
  const packet = new Uint8Array(headerBytes);
  const view = new DataView(packet.buffer);
  view.setUint8(0, message);
  view.setUint32(indexAt, unknownIndex);
  view.setBigUint64(messageCounterAt, 1n);
  return packet;
}

export const isEngineAnswer = (bytes: Uint8Array): boolean =>
  bytes.length >= headerBytes && bytes[0] === recvError;
