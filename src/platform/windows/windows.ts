// Calls of the Windows kernel that Bun lacks: start times of processes, locks, directories with a security descriptor,
// and handles for access.ts.

import { defer } from "../../base/defer.ts";

const symbols = {
  OpenProcess: { args: ["u32", "i32", "u32"], returns: "u64" },
  WaitForSingleObject: { args: ["u64", "u32"], returns: "u32" },
  GetProcessTimes: { args: ["u64", "ptr", "ptr", "ptr", "ptr"], returns: "i32" },
  CreateFileW: { args: ["ptr", "u32", "u32", "ptr", "u32", "u32", "u64"], returns: "u64" },
  WriteFile: { args: ["u64", "ptr", "u32", "ptr", "ptr"], returns: "i32" },
  CreateDirectoryW: { args: ["ptr", "ptr"], returns: "i32" },
  CloseHandle: { args: ["u64"], returns: "i32" },
} as const;

let opened: ReturnType<typeof open> | undefined;

/** Opened at the first use: other systems do not have this library, and their commands do not load bun:ffi for it. */
function kernel() {
  return (opened ??= open());
}

function open() {
  const { dlopen }: typeof import("bun:ffi") = require("bun:ffi");
  return dlopen("kernel32.dll", symbols).symbols;
}

/** Null-terminated UTF-16 text. */
export function wide(text: string): Uint8Array {
  return Buffer.from(`${text}\0`, "utf16le");
}

/** Start time in units of 100 ns since 1601, as text; undefined if no process with this id runs. */
export function windowsStart(pid: number): string | undefined {
  const [queryLimited, synchronize, stillRunning] = [0x1000, 0x10_0000, 0x102];
  const c = kernel();
  const process = c.OpenProcess(queryLimited | synchronize, 0, pid);
  if (process === 0n) return undefined;
  using _ = defer(() => c.CloseHandle(process));
  // An ended process can be opened while another process has a handle of it.
  if (c.WaitForSingleObject(process, 0) !== stillRunning) return undefined;
  const times = Array.from({ length: 4 }, () => new BigUint64Array(1));
  const [created, exited, inKernel, inUser] = times;
  if (!created || !exited || !inKernel || !inUser) return undefined;
  return c.GetProcessTimes(process, created, exited, inKernel, inUser) === 0 ? undefined : String(created[0]);
}

/** Age in ms. */
export function windowsAge(started: string, nowMs: number): number {
  const from1601To1970Ms = 11_644_473_600_000;
  return nowMs - (Number(started) / 10_000 - from1601To1970Ms);
}

/**
 * Opens a file exclusively and writes a note that others may read. Windows deletes the file when it is closed or the
 * process ends. Returns the function that closes it; undefined if another process has it open.
 */
export function holdFile(path: string, note: string): (() => void) | undefined {
  const [write, readers, openAlways, deleteOnClose] = [0x4000_0000, 1, 4, 0x0400_0000];
  const c = kernel();
  const handle = c.CreateFileW(wide(path), write, readers, null, openAlways, deleteOnClose, 0n);
  if (!isHandle(handle)) return undefined;
  const bytes = Buffer.from(note);
  if (bytes.length > 0) c.WriteFile(handle, bytes, bytes.length, new Uint32Array(1), null);
  return () => void c.CloseHandle(handle);
}

/** Calls `work` with a handle of a directory or pipe; undefined if it cannot be opened with these rights. */
export function withHandle<T>(path: string, rights: number, work: (handle: bigint) => T): T | undefined {
  const [shared, openExisting, directoriesToo] = [7, 3, 0x0200_0000];
  const c = kernel();
  const flags = path.startsWith("\\\\.\\pipe\\") ? 0 : directoriesToo;
  const handle = c.CreateFileW(wide(path), rights, shared, null, openExisting, flags, 0n);
  if (!isHandle(handle)) return undefined;
  using _ = defer(() => c.CloseHandle(handle));
  return work(handle);
}

/** Creates a directory with this security descriptor. Returns false if it exists or that fails. */
export function createDirectory(path: string, descriptor: bigint): boolean {
  // struct SECURITY_ATTRIBUTES { u32 length; void *descriptor; i32 inherit }, 24 bytes with the padding.
  const attributes = new BigUint64Array([24n, descriptor, 0n]);
  return kernel().CreateDirectoryW(wide(path), attributes) !== 0;
}

function isHandle(handle: bigint): boolean {
  return handle !== 0n && handle !== 0xffff_ffff_ffff_ffffn;
}
