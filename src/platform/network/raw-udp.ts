// Raw UDP sockets (raw(7), ipv6(7)), which Bun lacks: copies of all datagrams to this machine, whichever process owns
// the port. Linux only, needs CAP_NET_RAW. Must not send.

import { dlopen, FFIType, ptr } from "bun:ffi";
import { closeSync } from "node:fs";

export type Datagram = { port: number; payload: Uint8Array };
export type RawUdp = {
  /** The next received datagram, or undefined. */
  read(): Datagram | undefined;
  close(): void;
};

const [inet, inet6, raw, udp, nonBlocking] = [2, 10, 3, 17, 0o4000];
const symbols = {
  socket: { args: [FFIType.i32, FFIType.i32, FFIType.i32], returns: FFIType.i32 },
  recv: { args: [FFIType.i32, FFIType.ptr, FFIType.u64, FFIType.i32], returns: FFIType.i64 },
} as const;

/** Undefined without permission. */
export function openRawUdp(): RawUdp | undefined {
  if (process.platform !== "linux") return undefined;
  const c = openLibrary();
  const sockets = [inet, inet6]
    .map((family) => ({ family, fd: c?.socket(family, raw | nonBlocking, udp) ?? -1 }))
    .filter(({ fd }) => fd >= 0);
  if (c === undefined || sockets.length === 0) return undefined;
  const buffer = new Uint8Array(65_536);
  const readOne = ({ family, fd }: { family: number; fd: number }): Datagram | undefined => {
    const length = Number(c.recv(fd, ptr(buffer), buffer.length, 0));
    // IPv4 includes its header, whose length counts words of four bytes. IPv6 does not.
    const start = family === inet ? ((buffer[0] ?? 0) & 0x0f) * 4 : 0;
    if (length < start + 8) return undefined;
    const port = ((buffer[start + 2] ?? 0) << 8) | (buffer[start + 3] ?? 0);
    return { port, payload: buffer.slice(start + 8, length) };
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

function openLibrary() {
  const musl = process.arch === "arm64" ? "libc.musl-aarch64.so.1" : "libc.musl-x86_64.so.1";
  for (const name of ["libc.so.6", musl]) {
    try {
      return dlopen(name, symbols).symbols;
    } catch {
      // Try the other C library.
    }
  }
  return undefined;
}
