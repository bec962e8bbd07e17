// Drives the checks: `bun test/run.ts test|ok|unit|e2e|soak`. `test` is for a fresh machine (installs what is
// missing first). The last line is "N passed, N failed" over all runs; the status is 0 only if nothing failed and,
// in CI, nothing was skipped. Imports nothing that `bun install` brings.

import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buildAgent } from "./support/agent.ts";
import { inCi, installMissing } from "./support/debian.ts";

const root = join(import.meta.dir, "..");
const total = { passed: 0, failed: 0, skipped: 0 };
/** Files that failed and then passed: a machine that was busy, or a race that wants to be found. */
const unsteady: string[] = [];
/** What failed, said again at the end of a long output. */
const broken: string[] = [];
const fileLimitMs = { unit: 600_000, e2e: 600_000, soak: 5 * 3_600_000 };

/** Runs a command with its output shown; false, and one failure, if it fails. */
async function step(title: string, argv: string[]): Promise<boolean> {
  process.stdout.write(`\n== ${title}: ${argv.join(" ")}\n`);
  const child = Bun.spawn([process.execPath, ...argv], {
    cwd: root,
    stdio: ["ignore", "inherit", "inherit"],
  });
  if ((await child.exited) === 0) return true;
  total.failed++;
  broken.push(title);
  process.stdout.write(`== ${title}: failed\n`);
  return false;
}

function filesOf(kind: "unit" | "e2e" | "soak"): string[] {
  const all = [...new Bun.Glob("**/*.test.ts").scanSync(join(root, "test"))].sort();
  const of = (file: string) => (/^(e2e|soak)\//.exec(file)?.[1] ?? "unit") === kind;
  return all.filter(of).map((file) => `./test/${file}`);
}

type Counts = { passed: number; failed: number; skipped: number; reasons: string[] };

/** One file in a process of its own, ended after a while; its counts come from its own report. */
async function testFile(file: string, limitMs: number): Promise<Counts> {
  const directory = mkdtempSync(join(tmpdir(), "agent-tests-"));
  try {
    const report = join(directory, "report.xml");
    const flags = ["--timeout=120000", "--reporter=junit", `--reporter-outfile=${report}`];
    const child = Bun.spawn([process.execPath, "test", ...flags, file], {
      cwd: root,
      stdio: ["ignore", "inherit", "inherit"],
      timeout: limitMs,
      killSignal: "SIGKILL",
    });
    const status = await child.exited;
    const text = existsSync(report) ? readFileSync(report, "utf8") : "";
    const summary = /<testsuites[^>]*>/.exec(text)?.[0] ?? "";
    const count = (name: string) => Number(new RegExp(` ${name}="(\\d+)"`).exec(summary)?.[1] ?? 0);
    const [tests, failures, skipped] = [count("tests"), count("failures"), count("skipped")];
    // A file that cannot be loaded, hangs or tests nothing is a failure too.
    const failed = Math.max(failures, status === 0 && tests > 0 ? 0 : 1);
    const failure = /<testcase name="([^"]*)"[^>]*>\s*<failure[^>]*?message="([^"]{0,400})/g;
    const reasons = [...text.matchAll(failure)].map(([, name, reason]) =>
      `${name}: ${reason}`.replace(/&#10;|\s+/g, " "),
    );
    return { passed: tests - skipped - failures, failed, skipped, reasons };
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

/** Runs of a file before it counts as failed. Booted machines and tunnels share the processors with strangers. */
const tries = { unit: 2, e2e: 3, soak: 1 };

/** All files of a kind. One that fails is run again, and said to be unsteady if it passes then; no soak is. */
async function tests(kind: "unit" | "e2e" | "soak"): Promise<void> {
  const files = filesOf(kind);
  process.stdout.write(`\n== ${kind} tests: ${files.length} files\n`);
  for (const file of files) {
    const begin = performance.now();
    let counts = await testFile(file, fileLimitMs[kind]);
    const met: string[] = [];
    for (let left = tries[kind] - 1; counts.failed > 0 && left > 0; left--) {
      process.stdout.write(`\n== ${file} failed, once more\n`);
      met.push(...counts.reasons);
      counts = await testFile(file, fileLimitMs[kind]);
      if (counts.failed === 0) unsteady.push([file, ...met].join("\n   "));
    }
    const seconds = ((performance.now() - begin) / 1000).toFixed(1);
    process.stdout.write(`== ${file}: ${counts.passed} passed, ${counts.failed} failed, ${seconds} s\n`);
    total.passed += counts.passed;
    total.failed += counts.failed;
    total.skipped += counts.skipped;
    if (counts.failed > 0) broken.push([file, ...counts.reasons].join("\n   "));
  }
}

function built(): boolean {
  try {
    process.stdout.write(`\n== build: ${buildAgent()}\n`);
    return true;
  } catch (error) {
    total.failed++;
    broken.push("build");
    process.stdout.write(`== build: failed\n${String(error)}\n`);
    return false;
  }
}

async function ok(): Promise<void> {
  await step("format", ["run", "fmt:check"]);
  await step("lint", ["run", "lint"]);
  await step("types", ["run", "types"]);
  // The import rules are among the unit tests (test/architecture.test.ts).
  await tests("unit");
  if (built()) await tests("e2e");
}

async function fresh(): Promise<void> {
  if (!(await step("install", ["install", "--frozen-lockfile"]))) return;
  const missing = installMissing();
  if (missing !== undefined) process.stdout.write(`\n== ${missing}\n`);
  await ok();
}

const tasks: Record<string, () => Promise<void>> = {
  test: fresh,
  ok,
  unit: () => tests("unit"),
  e2e: async () => void (built() && (await tests("e2e"))),
  soak: async () => void (built() && (await tests("soak"))),
};

const task = tasks[process.argv[2] ?? ""];
if (task === undefined) {
  process.stderr.write(`Usage: bun test/run.ts ${Object.keys(tasks).join("|")}\n`);
  process.exitCode = 2;
} else {
  await task();
  const { passed, failed, skipped } = total;
  for (const what of unsteady) process.stdout.write(`\n== Passed only when run again: ${what}`);
  for (const what of broken) process.stdout.write(`\n== Failed: ${what}`);
  if (inCi && skipped > 0) process.stdout.write("\n== In CI nothing may be skipped.");
  process.stdout.write(
    `\n\n${passed} passed, ${failed} failed${skipped === 0 ? "" : `, ${skipped} skipped`}\n`,
  );
  process.exitCode = failed > 0 || (inCi && skipped > 0) ? 1 : 0;
}
