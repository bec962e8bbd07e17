// Reading all of standard input. On Windows Bun's own reader does not keep the program alive until the end has come.

export async function readStandardInput(): Promise<string> {
  if (process.platform !== "win32") return Bun.stdin.text();
  return process.getBuiltinModule("node:fs").readFileSync(0, "utf8");
}
