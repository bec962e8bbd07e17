// The few calls of the C library that Bun has no function for: the peer credentials of a socket, a group's number, a
// datagram to systemd. The daemon opens the library once and passes it on.

import { FFIType, ptr, read, type Pointer } from "bun:ffi";
import { closeSync } from "node:fs";
import { AppError } from "../base/errors.ts";
import { openCLibrary } from "./c-library.ts";
import { restrictPipe } from "./windows/access.ts";

/** `groups`: every group of the process when it connected. */
export type PeerCredentials = { pid: number; uid: number; gid: number; groups: number[] };

export type Libc = {
  /** The kernel's record of the connected process; undefined if the kernel gives none. */
  peerOf(fd: number): PeerCredentials | undefined;
  /** The number of a group; undefined if no group has that name. */
  groupId(name: string): number | undefined;
  /** Gives administrators and the named group access to a named pipe; false on failure. */
  restrictPipe(name: string, group: string): boolean;
  /** Sends one datagram to a Unix socket ("@name" is an abstract one); false if nothing received it. */
  sendDatagram(address: string, text: string): boolean;
};

const symbols = {
  getsockopt: {
    args: [FFIType.i32, FFIType.i32, FFIType.i32, FFIType.ptr, FFIType.ptr],
    returns: FFIType.i32,
  },
  getgrnam: { args: [FFIType.ptr], returns: FFIType.ptr },
  socket: { args: [FFIType.i32, FFIType.i32, FFIType.i32], returns: FFIType.i32 },
  sendto: {
    args: [FFIType.i32, FFIType.ptr, FFIType.u64, FFIType.i32, FFIType.ptr, FFIType.u32],
    returns: FFIType.i64,
  },
} as const;

/** Throws where the library cannot be opened: in a hardened service that forbids just-in-time code. */
export function openLibc(): Libc {
  if (process.platform === "win32") return windows;
  const c = load();
  const readOption = (fd: number, level: number, name: number, bytes: number): DataView | undefined => {
    const buffer = new Uint8Array(bytes);
    const length = new Uint32Array([bytes]);
    if (c.getsockopt(fd, level, name, ptr(buffer), ptr(length)) !== 0) return undefined;
    return new DataView(buffer.buffer, 0, length[0]);
  };
  return {
    peerOf: (fd) => (process.platform === "darwin" ? darwinPeer(fd, readOption) : linuxPeer(fd, readOption)),
    groupId(name) {
      const entry = c.getgrnam(ptr(Buffer.from(`${name}\0`)));
      return !entry ? undefined : groupNumber(entry);
    },
    restrictPipe: () => false,
    sendDatagram(address, text) {
      const [unix, datagram] = [1, 2];
      const fd = c.socket(unix, datagram, 0);
      if (fd < 0) return false;
      const name = socketAddress(address);
      const bytes = Buffer.from(text);
      const sent = c.sendto(fd, ptr(bytes), bytes.length, 0, ptr(name), name.length);
      closeSync(fd);
      return Number(sent) === bytes.length;
    },
  };
}

/** On Windows the access list of the pipe controls access. */
const windows: Libc = {
  peerOf: () => undefined,
  groupId: () => undefined,
  restrictPipe,
  sendDatagram: () => false,
};

function load() {
  try {
    return openCLibrary(symbols);
  } catch (error) {
    throw new AppError("failed", "Cannot open the C library: local clients cannot be told apart", {
      cause: error,
      hint: "MemoryDenyWriteExecute= and LimitAS= must not be set for the daemon.",
    });
  }
}

type ReadOption = (fd: number, level: number, name: number, bytes: number) => DataView | undefined;

/** socket(7): SO_PEERCRED is { pid, uid, gid }, SO_PEERGROUPS an array of gid. */
function linuxPeer(fd: number, readOption: ReadOption): PeerCredentials | undefined {
  const [level, credentials, groups] = [1, 17, 59];
  const answer = readOption(fd, level, credentials, 12);
  if (answer === undefined || answer.byteLength < 12) return undefined;
  return {
    pid: answer.getInt32(0, true),
    uid: answer.getUint32(4, true),
    gid: answer.getUint32(8, true),
    // Room for 1024 groups. With more the call fails, and only the primary group counts.
    groups: readNumbers(readOption(fd, level, groups, 4 * 1024), 0),
  };
}

/** unix(4): LOCAL_PEERCRED is struct xucred { version, uid, short count, groups[16] }, LOCAL_PEERPID a pid. */
function darwinPeer(fd: number, readOption: ReadOption): PeerCredentials | undefined {
  const [level, credentials, peerPid] = [0, 1, 2];
  const answer = readOption(fd, level, credentials, 76);
  if (answer === undefined || answer.byteLength < 16) return undefined;
  const groups = readNumbers(answer, 12).slice(0, answer.getInt16(8, true));
  const [gid] = groups;
  if (gid === undefined) return undefined;
  return {
    // 0: not known.
    pid: readOption(fd, level, peerPid, 4)?.getInt32(0, true) ?? 0,
    uid: answer.getUint32(4, true),
    gid,
    groups,
  };
}

function readNumbers(view: DataView | undefined, from: number): number[] {
  const count = view === undefined ? 0 : Math.floor((view.byteLength - from) / 4);
  return Array.from({ length: count }, (_, index) => view?.getUint32(from + 4 * index, true) ?? 0);
}

/** struct group { char *name; char *password; gid_t gid; … } on every 64-bit system. */
function groupNumber(entry: Pointer | bigint): number {
  return read.u32(Number(entry), 16);
}

/** struct sockaddr_un: the family, then the path; an abstract name begins with NUL and has no terminator. */
function socketAddress(address: string): Uint8Array {
  const abstract = address.startsWith("@");
  const path = Buffer.from(abstract ? `\0${address.slice(1)}` : `${address}\0`);
  return Buffer.concat([new Uint8Array(new Uint16Array([1]).buffer), path]);
}
