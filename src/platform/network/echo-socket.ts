// ICMP echo (RFC 792, RFC 4443), which Bun lacks: sends requests from one address of this machine and reports replies.
// Uses a ping socket (icmp(7), no privilege where net.ipv4.ping_group_range permits it), else a raw one (CAP_NET_RAW).
// Windows has neither kind.

import { FFIType, ptr } from "bun:ffi";
import { closeSync } from "node:fs";
import { addressBytes, parseAddress } from "../../base/ip.ts";
import { openCLibrary } from "../c-library.ts";

export type EchoReply = { sequence: number; payload: Uint8Array };

export type EchoSocket = {
  /** `sequence`: 16 bits. False if the system refuses the packet: no route, or the sender's address is gone. */
  send(to: string, sequence: number, payload: Uint8Array): boolean;
  close(): void;
};

/** denied: no permission, or not on this system. absent: `from` is no address of this machine. */
export type NoEcho = "denied" | "absent";

/** `from`: an address of this machine. On Linux also `10.77.0.2%ov-acme`: whatever the routes say, by that interface. */
export type OpenEcho = (from: string, onReply: (reply: EchoReply) => void) => Promise<EchoSocket | NoEcho>;

const symbols = {
  socket: { args: [FFIType.i32, FFIType.i32, FFIType.i32], returns: FFIType.i32 },
  bind: { args: [FFIType.i32, FFIType.ptr, FFIType.u32], returns: FFIType.i32 },
  setsockopt: {
    args: [FFIType.i32, FFIType.i32, FFIType.i32, FFIType.ptr, FFIType.u32],
    returns: FFIType.i32,
  },
  sendto: {
    args: [FFIType.i32, FFIType.ptr, FFIType.u64, FFIType.i32, FFIType.ptr, FFIType.u32],
    returns: FFIType.i64,
  },
} as const;

type Library = ReturnType<typeof openCLibrary<typeof symbols>>;
/**
 * `domain`: AF_INET or AF_INET6; `protocol`: IPPROTO_ICMP or IPPROTO_ICMPV6; `request`, `reply`: ICMP types. `filter`: the option that
 * keeps other ICMP types from a raw socket (raw(7): ICMP_FILTER of SOL_RAW, ICMPV6_FILTER), with the bytes of its value: a bit a type.
 */
type Family = {
  domain: number;
  protocol: number;
  request: number;
  reply: number;
  filter: { level: number; name: number; bytes: number };
};

/** socket(2): SOCK_DGRAM and SOCK_RAW. */
const [datagram, raw] = [2, 3];
/** The length of an ICMP header. */
const headerBytes = 8;
const ipv4: Family = {
  domain: 2,
  protocol: 1,
  request: 8,
  reply: 0,
  filter: { level: 255, name: 1, bytes: 4 },
};
const ipv6: Family = {
  domain: process.platform === "darwin" ? 30 : 10,
  protocol: 58,
  request: 128,
  reply: 129,
  filter: { level: 58, name: 1, bytes: 32 },
};
/** socket(2): SOCK_NONBLOCK | SOCK_CLOEXEC. On macOS they are no flags of the type, and Bun sets both. */
const flags = process.platform === "linux" ? 0o4000 | 0o2000000 : 0;

export const openEchoSocket: OpenEcho = async (source, onReply) => {
  const [from = "", device] = source.split("%");
  const c = process.platform === "win32" ? undefined : load();
  const family = from.includes(":") ? ipv6 : ipv4;
  const { fd, isRaw } = c === undefined ? { fd: -1, isRaw: false } : openFd(c, family);
  if (c === undefined || fd < 0) return "denied";
  // The kernel gives each reply to all raw sockets. For a ping socket it sets an identifier itself, and compares it.
  const identifier = isRaw ? crypto.getRandomValues(new Uint8Array(2)) : new Uint8Array(2);
  const own = socketAddress(from, family);
  if ((device !== undefined && !bindTo(c, fd, device)) || c.bind(fd, ptr(own), own.length) !== 0) {
    closeSync(fd);
    return "absent";
  }
  // Bun takes over the open `fd`, and connects nothing. Its type requires `unix`, too.
  const options = { unix: "", fd };
  const socket = await Bun.connect({
    ...options,
    socket: {
      data(_, bytes) {
        const reply = readReply(bytes, family, isRaw ? identifier : undefined);
        if (reply !== undefined) onReply(reply);
      },
      // An unreachable peer says nothing about the others.
      error() {},
    },
  });
  socket.unref();
  let isClosed = false;
  return {
    send(to, sequence, payload) {
      if (isClosed || to.includes(":") !== (family === ipv6)) return false;
      const packet = requestOf(sequence, payload, { family, identifier });
      const target = socketAddress(to, family);
      return Number(c.sendto(fd, ptr(packet), packet.length, 0, ptr(target), target.length)) > 0;
    },
    close() {
      isClosed = true;
      socket.terminate();
    },
  };
};

/** socket(7): SO_BINDTODEVICE. */
function bindTo(c: Library, fd: number, device: string): boolean {
  const name = Buffer.from(`${device}\0`);
  return process.platform === "linux" && c.setsockopt(fd, 1, 25, ptr(name), name.length) === 0;
}

function openFd(c: Library, family: Family): { fd: number; isRaw: boolean } {
  const ping = c.socket(family.domain, datagram | flags, family.protocol);
  if (ping >= 0) return { fd: ping, isRaw: false };
  const fd = c.socket(family.domain, raw | flags, family.protocol);
  // Only replies: otherwise every ICMP packet of the machine would wake this process.
  const dropped = new Uint32Array(8).fill(0xffff_ffff);
  const word = family.reply >> 5;
  dropped[word] = ~(1 << (family.reply & 31)) >>> 0;
  const { level, name, bytes } = family.filter;
  if (fd >= 0) c.setsockopt(fd, level, name, ptr(dropped), bytes);
  return { fd, isRaw: true };
}

function requestOf(
  sequence: number,
  payload: Uint8Array,
  { family, identifier }: { family: Family; identifier: Uint8Array },
): Uint8Array {
  const packet = new Uint8Array(headerBytes + payload.length);
  packet.set([family.request, 0, 0, 0, ...identifier, sequence >> 8, sequence & 0xff]);
  packet.set(payload, headerBytes);
  // The kernel computes the checksum of IPv6.
  if (family === ipv4) packet.set(checksum(packet), 2);
  return packet;
}

/** Undefined for anything but an echo reply to this identifier, or to any. Raw sockets, and those of macOS, deliver the IPv4 header too. */
function readReply(
  bytes: Uint8Array,
  family: Family,
  identifier: Uint8Array | undefined,
): EchoReply | undefined {
  // The first byte of an IPv4 header: version, and length in words of four bytes. That of an echo reply is 0.
  const firstByte = bytes[0] ?? 0;
  const start = family === ipv4 && firstByte >> 4 === 4 ? (firstByte & 0x0f) * 4 : 0;
  if (bytes.length < start + headerBytes || bytes[start] !== family.reply) return undefined;
  if (identifier?.some((byte, at) => bytes[start + 4 + at] !== byte) === true) return undefined;
  const sequence = ((bytes[start + 6] ?? 0) << 8) | (bytes[start + 7] ?? 0);
  // Bun reuses the buffer.
  return { sequence, payload: bytes.slice(start + headerBytes) };
}

/** RFC 1071. */
function checksum(packet: Uint8Array): [number, number] {
  let sum = 0;
  for (let at = 0; at < packet.length; at += 2) sum += ((packet[at] ?? 0) << 8) | (packet[at + 1] ?? 0);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return [(~sum >> 8) & 0xff, ~sum & 0xff];
}

/** struct sockaddr_in and sockaddr_in6. macOS has the length in front of a family of one byte. */
function socketAddress(address: string, { domain }: Family): Uint8Array {
  const parsed = parseAddress(address);
  const bytes = parsed === undefined ? [] : addressBytes(parsed);
  const at = domain === ipv4.domain ? 4 : 8;
  const result = new Uint8Array(domain === ipv4.domain ? 16 : 28);
  result.set(process.platform === "darwin" ? [result.length, domain] : [domain, 0]);
  result.set(bytes, at);
  return result;
}

let library: Library | undefined;

/** Once: each time compiles its functions anew, and nothing frees them. */
function load(): Library | undefined {
  try {
    return (library ??= openCLibrary(symbols));
  } catch {
    return undefined;
  }
}
