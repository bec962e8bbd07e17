// Exchanges two directories in one step, where the system and the file system can: renameat2(2) on Linux, renamex_np(2)
// on macOS. No process ever sees neither of them, and no kill or power cut leaves neither.

import { libraryNames } from "./file-lock.ts";

type Exchange = (a: Uint8Array, b: Uint8Array) => number;

/** False if nothing was exchanged: on Windows, with an older C library, or on a file system that cannot do it. */
export function exchangeDirectories(a: string, b: string): boolean {
  const [from, to] = [Buffer.from(`${a}\0`), Buffer.from(`${b}\0`)];
  try {
    return open()(from, to) === 0;
  } catch {
    return false;
  }
}

/** Throws where the function is missing, and in a hardened service that forbids just-in-time code. */
function open(): Exchange {
  // Loaded here, because few commands need it.
  const { dlopen, FFIType }: typeof import("bun:ffi") = require("bun:ffi");
  const { i32, u32, ptr } = FFIType;
  const [library = ""] = libraryNames();
  if (process.platform === "darwin") {
    const swap = 2;
    const c = dlopen(library, { renamex_np: { args: [ptr, ptr, u32], returns: i32 } });
    return (a, b) => c.symbols.renamex_np(a, b, swap);
  }
  const [workingDirectory, exchange] = [-100, 2];
  const c = dlopen(library, { renameat2: { args: [i32, ptr, i32, ptr, u32], returns: i32 } });
  return (a, b) => c.symbols.renameat2(workingDirectory, a, workingDirectory, b, exchange);
}
