// The Go toolchain of tests, from the Go module proxy. Any Go with modules works, also Debian's: it downloads the required
// toolchain.

import { chmodSync, readdirSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { installMissing } from "./debian.ts";

const toolchain = "go1.27.3";

export type Run = (argv: string[], cwd: string) => string;

/** Runs commands with the toolchain, which is downloaded as a module: older Go versions do not do that themselves. */
export function withToolchain(work: string): Run {
  const missing = Bun.which("go") === null ? installMissing(["/usr/bin/go"]) : undefined;
  if (missing !== undefined) throw new Error(missing);
  const local = { GOTOOLCHAIN: "local", GOFLAGS: "-modcacherw", GOWORK: "off" };
  const arch = run(["go", "env", "GOARCH"], work, local).trim();
  const root = downloaded(`golang.org/toolchain@v0.0.1-${toolchain}.linux-${arch}`, work, (argv, cwd) =>
    run(argv, cwd, local),
  );
  for (const directory of [join(root, "bin"), join(root, "pkg/tool", `linux_${arch}`)]) {
    for (const each of readdirSync(directory)) chmodSync(join(directory, each), 0o755);
  }
  const path = `${join(root, "bin")}:${process.env["PATH"] ?? ""}`;
  const env = { ...local, GOFLAGS: "-mod=mod -modcacherw", GOROOT: root, CGO_ENABLED: "0", PATH: path };
  return (argv, cwd) => run(argv, cwd, env);
}

const Download = v.object({ Dir: v.string() });

export function downloaded(what: string, work: string, run: Run): string {
  return v.parse(Download, JSON.parse(run(["go", "mod", "download", "-json", what], work))).Dir;
}

export function run(argv: string[], cwd: string, env: Record<string, string> = {}): string {
  const result = Bun.spawnSync(argv, { cwd, env: { ...process.env, ...env }, stdin: "ignore" });
  if (result.exitCode === 0) return result.stdout.toString();
  throw new Error(`${argv.join(" ")}: exit ${result.exitCode}\n${result.stderr.toString()}`);
}
