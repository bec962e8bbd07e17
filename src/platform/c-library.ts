// The C library of this system, for the few calls that Bun has no function for; and the exchange of two directories by it.

import { existsSync, readdirSync } from "node:fs";
import type { FFIFunction, Library } from "bun:ffi";

/**
 * These functions of it. Throws where it cannot be opened or lacks one: on Windows, and in a hardened service that forbids
 * just-in-time code, such as by MemoryDenyWriteExecute=.
 */
export function openCLibrary<Fns extends Record<string, FFIFunction>>(symbols: Fns): Library<Fns>["symbols"] {
  // Loaded here, because a command that runs every minute must start fast.
  const { dlopen }: typeof import("bun:ffi") = require("bun:ffi");
  let failure: unknown = new Error("The C library of this system is unknown");
  for (const name of libraryNames()) {
    try {
      return dlopen(name, symbols).symbols;
    } catch (error) {
      failure = error;
    }
  }
  throw failure;
}

/** Possible names, to try in order. */
function libraryNames(): string[] {
  if (process.platform === "win32") return [];
  if (process.platform === "darwin") return ["libSystem.B.dylib"];
  const musl = existsSync("/lib") ? readdirSync("/lib").filter((name) => name.startsWith("libc.musl-")) : [];
  return ["libc.so.6", ...musl];
}

type Exchange = (a: Uint8Array, b: Uint8Array) => number;

/**
 * Exchanges two directories in one step: renameat2(2) on Linux, renamex_np(2) on macOS. At each moment, also after a kill or a
 * power cut, both paths exist. False if nothing was exchanged: on Windows, with an older C library, or on a file system that cannot
 * do it.
 */
export function exchangeDirectories(a: string, b: string): boolean {
  const [from, to] = [Buffer.from(`${a}\0`), Buffer.from(`${b}\0`)];
  try {
    return openExchange()(from, to) === 0;
  } catch {
    return false;
  }
}

function openExchange(): Exchange {
  if (process.platform === "darwin") {
    // RENAME_SWAP.
    const swap = 2;
    const c = openCLibrary({ renamex_np: { args: ["ptr", "ptr", "u32"], returns: "i32" } });
    return (a, b) => c.renamex_np(a, b, swap);
  }
  // AT_FDCWD and RENAME_EXCHANGE.
  const [workingDirectory, exchange] = [-100, 2];
  const c = openCLibrary({ renameat2: { args: ["i32", "ptr", "i32", "ptr", "u32"], returns: "i32" } });
  return (a, b) => c.renameat2(workingDirectory, a, workingDirectory, b, exchange);
}
