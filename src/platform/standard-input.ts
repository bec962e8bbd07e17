// Reads all of standard input. On Windows Bun's own reader does not keep the process alive until the end of the input.

export async function readStandardInput(): Promise<string> {
  if (process.platform !== "win32") return Bun.stdin.text();
  // Loaded here, because only Windows needs it.
  const { readFileSync }: typeof import("node:fs") = require("node:fs");
  return readFileSync(0, "utf8");
}
