// Removes a secret from the command line that other users of this machine can see (ps, /proc/PID/cmdline).

import { defer } from "../base/defer.ts";
import { closeSync, writeSync } from "node:fs";
import { openPlain, readBytes } from "../base/open-file.ts";

/**
 * Overwrites the word in this process's own argument memory, whose beginning the kernel shows (proc(5), field 48 of stat).
 * Linux only; elsewhere, and where that memory may not be written, the word stays visible.
 */
export function hideWord(word: string): void {
  if (process.platform !== "linux" || word === "") return;
  try {
    const stat = readBytes("/proc/self/stat").toString("latin1");
    // The name may contain spaces and brackets, so fields are counted from its end: field 3 is the first one behind it.
    const start = Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[48 - 3]);
    const places = placesOf(Buffer.from(word), readBytes("/proc/self/cmdline"));
    if (places.length === 0) return;
    const { length } = Buffer.from(word);
    const memory = openPlain("/proc/self/mem", "update");
    using _ = defer(() => closeSync(memory));
    for (const place of places) writeSync(memory, Buffer.alloc(length, "x"), 0, length, start + place);
  } catch {
    // Hardened kernels forbid it.
  }
}

/** Where the word is a whole argument, or the value in --flag=value. Each argument ends with a zero byte. */
function placesOf(word: Uint8Array, line: Buffer): number[] {
  const end = Buffer.concat([word, Buffer.alloc(1)]);
  const places: number[] = [];
  for (let at = line.indexOf(end); at >= 0; at = line.indexOf(end, at + 1)) {
    if (at === 0 || line[at - 1] === 0 || line[at - 1] === 0x3d) places.push(at);
  }
  return places;
}
