// Raw UDP sockets (raw(7), ipv6(7)), which Bun lacks: copies of all datagrams to this machine, whichever process owns
// the port, and datagrams from the port of another process. Linux only, needs CAP_NET_RAW.

import { FFIType, ptr } from "bun:ffi";
import { closeSync } from "node:fs";
import { addressBytes, parseAddress } from "../../base/ip.ts";
import { openCLibrary } from "../c-library.ts";

/** `port`: the one that it was sent to. */
export type Datagram = { port: number; payload: Uint8Array };
export type RawUdp = {
  /** The next received datagram, or undefined. */
  read(): Datagram | undefined;
  close(): void;
};

/** socket(2): address families, SOCK_RAW, IPPROTO_UDP, SOCK_NONBLOCK. */
const [inet, inet6, raw, udp, nonBlocking] = [2, 10, 3, 17, 0o4000];
/** The length of a UDP header. */
const headerBytes = 8;
const symbols = {
  socket: { args: [FFIType.i32, FFIType.i32, FFIType.i32], returns: FFIType.i32 },
  recv: { args: [FFIType.i32, FFIType.ptr, FFIType.u64, FFIType.i32], returns: FFIType.i64 },
  sendto: {
    args: [FFIType.i32, FFIType.ptr, FFIType.u64, FFIType.i32, FFIType.ptr, FFIType.u32],
    returns: FFIType.i64,
  },
} as const;

/** Undefined without permission. */
export function openRawUdp(): RawUdp | undefined {
  if (process.platform !== "linux") return undefined;
  const c = clib();
  const sockets = [inet, inet6]
    .map((family) => ({ family, fd: c?.socket(family, raw | nonBlocking, udp) ?? -1 }))
    .filter(({ fd }) => fd >= 0);
  if (c === undefined || sockets.length === 0) return undefined;
  const buffer = new Uint8Array(65_536);
  const readOne = ({ family, fd }: { family: number; fd: number }): Datagram | undefined => {
    const length = Number(c.recv(fd, ptr(buffer), buffer.length, 0));
    // IPv4 includes its header, whose length counts words of four bytes. IPv6 does not.
    const start = family === inet ? ((buffer[0] ?? 0) & 0x0f) * 4 : 0;
    if (length < start + headerBytes) return undefined;
    const port = ((buffer[start + 2] ?? 0) << 8) | (buffer[start + 3] ?? 0);
    return { port, payload: buffer.slice(start + headerBytes, length) };
  };
  return {
    read() {
      for (const each of sockets) {
        const datagram = readOne(each);
        if (datagram !== undefined) return datagram;
      }
      return undefined;
    },
    close: () => sockets.forEach(({ fd }) => closeSync(fd)),
  };
}

/**
 * Sends a datagram from a UDP port that another process has: the receiver takes it for that program's, and answers to it.
 * IPv4 only. False if this process cannot. Whether it arrives is not known.
 */
export function sendFromPort(from: number, to: { host: string; port: number }, payload: Uint8Array): boolean {
  const address = parseAddress(to.host);
  if (process.platform !== "linux" || address?.family !== 4) return false;
  const c = clib();
  const fd = c?.socket(inet, raw, udp) ?? -1;
  if (c === undefined || fd < 0) return false;
  try {
    // The header of UDP (RFC 768) without a checksum, which IPv4 permits. The kernel adds that of IP.
    const packet = new Uint8Array(headerBytes + payload.length);
    const view = new DataView(packet.buffer);
    for (const [at, value] of [from, to.port, packet.length].entries()) view.setUint16(2 * at, value);
    packet.set(payload, headerBytes);
    // struct sockaddr_in: the family, a port that raw sockets ignore, the address.
    const target = new Uint8Array(16);
    new Uint16Array(target.buffer)[0] = inet;
    target.set(addressBytes(address), 4);
    const sent = c.sendto(fd, ptr(packet), packet.length, 0, ptr(target), target.length);
    return Number(sent) === packet.length;
  } finally {
    closeSync(fd);
  }
}

/** Opened once for all datagrams: each time compiles its functions anew, and nothing frees them. */
let library: ReturnType<typeof openCLibrary<typeof symbols>> | undefined;

function clib() {
  try {
    return (library ??= openCLibrary(symbols));
  } catch {
    return undefined;
  }
}
