// Keys and signatures of the real ssh-keygen.

import { readFileSync } from "node:fs";
import { runSync } from "./debian.ts";

/** `line`: the public half. */
export function makeSshKey(file: string): { file: string; line: string } {
  runSync(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", file]);
  return { file, line: readFileSync(`${file}.pub`, "utf8").trim() };
}

export function sshSign(file: string, message: Uint8Array, namespace: string): string {
  const argv = ["ssh-keygen", "-q", "-Y", "sign", "-f", file, "-n", namespace];
  const { exitCode, stdout, stderr } = Bun.spawnSync(argv, { stdin: message });
  if (exitCode !== 0) throw new Error(stderr.toString());
  return stdout.toString();
}
