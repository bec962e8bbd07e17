// Removes a secret from the command line that other users of this machine can see (ps, /proc/PID/cmdline).

import { closeSync, openSync, readFileSync, writeSync } from "node:fs";

/**
 * Overwrites the word in this process's own argument memory, whose place the kernel shows (proc(5), fields 48 and 49 of
 * stat). Linux only; elsewhere, and where that memory may not be written, the word stays visible.
 */
export function hideWord(word: string): void {
  if (process.platform !== "linux" || word === "") return;
  try {
    const stat = readFileSync("/proc/self/stat", "latin1");
    // The name may contain spaces and brackets, so count fields from its end.
    const start = Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[45]);
    const line = readFileSync("/proc/self/cmdline");
    const bytes = Buffer.from(word);
    const memory = openSync("/proc/self/mem", "r+");
    try {
      for (let at = line.indexOf(bytes); at >= 0; at = line.indexOf(bytes, at + bytes.length))
        writeSync(memory, Buffer.alloc(bytes.length, "x"), 0, bytes.length, start + at);
    } finally {
      closeSync(memory);
    }
  } catch {
    // Hardened kernels forbid it. The key ends within the hour, and works once.
  }
}
