// Drives the checks: `bun test/run.ts test|ok|unit|e2e|soak`. `test` is for a fresh machine: it installs what is
// missing first. Processes with test files run side by side, as test/support/test-files.ts says. The last line is
// "N passed, N failed" over all runs; the status is 0 only if nothing failed and, in CI, nothing was skipped. `soak` takes
// names of files, of entries of `bySources`, or `due` for those whose sources changed; it records what passed. Imports
// nothing that `bun install` brings.

import { closeSync, existsSync, mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { inCi, installMissing } from "./support/debian.ts";
import { countsOf, type Counts } from "./support/junit.ts";
import { mountMemory } from "./support/memory.ts";
import { runAgain, runSideBySide, type Job } from "./support/side-by-side.ts";
import { digests, isDue, isFileDue, passedEntries, writeRecord } from "./support/last-soak.ts";
import {
  alone,
  batchesOf,
  bySources,
  filesFor,
  filesOf,
  kindOf,
  maxAgain,
  shortRuns,
  unitPrograms,
  type Kind,
} from "./support/test-files.ts";

const root = join(import.meta.dir, "..");
const total = { passed: 0, failed: 0, skipped: 0 };
/** Files that failed beside others, and passed when they were run again by themselves. */
const passedAgain: string[] = [];
/** Failures, printed again at the end of a long output. */
const broken: string[] = [];
const fileLimitMs = { unit: 600_000, e2e: 1_200_000, soak: 5 * 3_600_000 };
const processors = availableParallelism();
/** Processes side by side: tests wait most of their time, those with real engines most. */
const width = { unit: 2 * processors + 1, e2e: 2 * processors, soak: 1 };

/** For outputs and reports. Removed however this process ends, except by SIGKILL. */
const work = mkdtempSync(join(tmpdir(), "agent-run-"));
process.once("exit", () => rmSync(work, { recursive: true, force: true }));
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.once(signal, () => process.exit(130));
let made = 0;

/** `processorMs` counts the process and those that it started and waited for. */
type Outcome = { status: number | null; output: string; processorMs: number };

/** Runs `bun ARGV…` with its output collected, so that the lines of programs that run side by side do not mix. */
async function runBun(
  argv: readonly string[],
  env: Record<string, string>,
  limitMs: number,
): Promise<Outcome> {
  const path = join(work, `output-${made++}`);
  const file = openSync(path, "a");
  try {
    const child = Bun.spawn([process.execPath, ...argv], {
      cwd: root,
      env: { ...process.env, ...env },
      stdio: ["ignore", file, file],
      timeout: limitMs,
      killSignal: "SIGKILL",
    });
    await child.exited;
    const processorMs = Number(child.resourceUsage()?.cpuTime.total ?? 0) / 1000;
    return { status: child.exitCode, output: readFileSync(path, "utf8"), processorMs };
  } finally {
    closeSync(file);
    rmSync(path);
  }
}

const seconds = (ms: number) => `${(ms / 1000).toFixed(1)} s`;
const secondsSince = (begin: number) => seconds(performance.now() - begin);

/** A command that must succeed; it counts only if it fails. */
async function step(title: string, argv: readonly string[]): Promise<boolean> {
  const begin = performance.now();
  const { status, output } = await runBun(argv, {}, fileLimitMs.unit);
  const isGood = status === 0;
  process.stdout.write(`\n== ${title}: ${argv.join(" ")}\n${output}`);
  process.stdout.write(`== ${title}: ${isGood ? "passed" : "failed"}, ${secondsSince(begin)}\n`);
  if (isGood) return true;
  total.failed++;
  broken.push(title);
  return false;
}

/** Test files in one process, killed after a while. The counts come from its own report. */
async function testFiles(
  files: readonly string[],
  limitMs: number,
  env: Record<string, string>,
): Promise<Counts & Pick<Outcome, "output" | "processorMs">> {
  const report = join(work, `report-${made++}.xml`);
  const flags = ["--timeout=120000", "--reporter=junit", `--reporter-outfile=${report}`];
  const { status, output, processorMs } = await runBun(
    ["test", ...flags, ...files.map((file) => `./test/${file}`)],
    env,
    limitMs,
  );
  const counts = countsOf(existsSync(report) ? readFileSync(report, "utf8") : "", status);
  rmSync(report, { force: true });
  return { ...counts, output, processorMs };
}

type Run = { title: string; files: readonly string[]; env: Record<string, string>; kind: Kind };

async function run({ title, files, env, kind }: Run): Promise<Counts> {
  const begin = performance.now();
  const { output, processorMs, ...counts } = await testFiles(files, fileLimitMs[kind], env);
  const times = `${secondsSince(begin)}, processor ${seconds(processorMs)}`;
  process.stdout.write(
    `\n${output}== ${title}: ${counts.passed} passed, ${counts.failed} failed, ${times}\n`,
  );
  return counts;
}

function add({ passed, failed, skipped }: Counts): void {
  total.passed += passed;
  total.failed += failed;
  total.skipped += skipped;
}

const linesOf = ({ title }: Run, { reasons }: Counts) => [title, ...reasons].join("\n   ");

/** Files of soak run alone already. Returns the files that failed in the end. */
async function judge(failed: readonly [Run, Counts][], kind: Kind): Promise<string[]> {
  const bad: string[] = [];
  const again = (each: Run) => {
    process.stdout.write(`\n== Once more, by itself: ${each.title}\n`);
    return run(each);
  };
  for (const [each, first, last] of await runAgain(failed, kind === "soak" ? 0 : maxAgain, again)) {
    add(last);
    if (last.failed > 0) {
      broken.push(linesOf(each, last));
      bad.push(...each.files);
    } else passedAgain.push(linesOf(each, first));
  }
  return bad;
}

/** Ticks of all processors since the boot: all, and those in which they were busy. */
function ticks(): { all: number; busy: number } {
  if (process.platform !== "linux") return { all: 0, busy: 0 };
  // proc(5): user, nice, system, idle, iowait, irq, softirq, steal; the time of guests is in the first two already.
  const [first = ""] = readFileSync("/proc/stat", "utf8").split("\n");
  const each = first.trim().split(/\s+/).slice(1, 9).map(Number);
  const all = each.reduce((sum, one) => sum + one, 0);
  return { all, busy: all - (each[3] ?? 0) - (each[4] ?? 0) };
}

/** The share of their time since these ticks in which the processors were busy. */
function busySince(before: ReturnType<typeof ticks>): number {
  const now = ticks();
  return (now.busy - before.busy) / Math.max(1, now.all - before.all);
}

/** Above this share, one more beside the others makes the steps of all of them late, and nothing ends sooner. */
const fullShare = 0.7;

/** Until the processors have time for one more, or one of them has no file any more. */
async function untilRoom(others: () => number): Promise<void> {
  while (others() >= processors) {
    const before = ticks();
    await Bun.sleep(3000);
    if (busySince(before) <= fullShare) return;
  }
}

/**
 * Files of a kind. At the end it says how busy the processors were: whether more files fit side by side. Returns the files
 * that passed; `onPass` gets them as they pass.
 */
async function tests(
  kind: Kind,
  chosen: readonly string[],
  { all = false, onPass }: { all?: boolean; onPass?: (files: readonly string[]) => void } = {},
): Promise<string[]> {
  const [begin, before] = [performance.now(), ticks()];
  const batches = batchesOf(kind, chosen);
  const count = `${batches.flat().length} files, ${width[kind]} processes side by side`;
  process.stdout.write(`\n== ${kind} tests: ${count}\n`);
  // Unit tests sync small files thousands of times, which takes minutes on a slow disk. End-to-end tests keep the disk.
  using memory = kind === "unit" ? mountMemory() : undefined;
  const env: Record<string, string> = {
    ...(kind === "unit" ? shortRuns : {}),
    ...(all ? { TEST_ALL: "1" } : {}),
    ...(memory === undefined ? {} : { TMPDIR: memory.path }),
  };
  const failed: [Run, Counts][] = [];
  const job = (files: readonly string[]): Job => {
    const [first = ""] = files;
    const each = { title: files.join(" "), files, env, kind };
    const keep = (counts: Counts) => {
      if (counts.failed > 0) return failed.push([each, counts]);
      onPass?.(files);
      return add(counts);
    };
    return { alone: Object.hasOwn(alone, first), run: () => run(each).then(keep) };
  };
  await runSideBySide(batches.map(job), width[kind], kind === "e2e" ? untilRoom : undefined);
  const bad = await judge(failed, kind);
  const share = busySince(before);
  process.stdout.write(
    `\n== ${kind} tests: ${secondsSince(begin)}, processors busy for ${(100 * share).toFixed(0)}%\n`,
  );
  return chosen.filter((file) => !bad.includes(file));
}

/** All files of a kind but those that are not due. What does not run is no part of this gate, and is said. */
async function gate(kind: Kind): Promise<void> {
  const [due = [], left = []] = [true, false].map((is) =>
    filesOf(kind).filter((file) => isFileDue(file) === is),
  );
  if (left.length > 0)
    process.stdout.write(`\n== Not run, unchanged since test/last-soak: ${left.join(", ")}\n`);
  await tests(kind, due);
}

async function unit(): Promise<void> {
  const missing = installMissing(unitPrograms);
  if (missing !== undefined) process.stdout.write(`\n== ${missing}\n`);
  await gate("unit");
}

/** Built once, before the tests that run it side by side. */
const build = () => step("build", ["test/support/agent.ts"]);

/** These files and entries of `bySources`; or all, the latter in their long form where they have one. */
async function soak(names: readonly string[]): Promise<void> {
  const entries = Object.keys(bySources);
  const wanted = names.flatMap((name) => (name === "due" ? entries.filter(isDue) : name));
  const whole = filesOf("soak");
  const isLong = (file: string) => whole.includes(file.replace("e2e/", "soak/"));
  const files = new Set(
    names.length > 0
      ? wanted.flatMap(filesFor)
      : [...whole, ...entries.flatMap(filesFor).filter((file) => !isLong(file))],
  );
  const absent = [...files].filter((file) => !existsSync(join(root, "test", file)));
  if (absent.length > 0) throw new Error(`There is no test ${absent.join(", ")}: name files below test/`);
  const before = digests();
  const head = Bun.spawnSync(["git", "rev-parse", "--short=12", "HEAD"], { cwd: root, stderr: "ignore" });
  const commit = head.stdout.toString().trim() || "unknown";
  const passed = new Set<string>();
  // Written as they pass: a long run that is ended keeps what it has.
  const onPass = (some: readonly string[]): string[] => {
    for (const file of some) passed.add(file);
    const added = passedEntries(before, [...passed]);
    if (added.length > 0) writeRecord(new Map(added.map((name) => [name, before.get(name) ?? ""])), commit);
    return added;
  };
  if (!(await build())) return;
  for (const kind of ["unit", "e2e", "soak"] as const) {
    const chosen = [...files].filter((file) => kindOf(file) === kind);
    if (chosen.length > 0) onPass(await tests(kind, chosen, { all: true, onPass }));
  }
  process.stdout.write(`\n== Written to test/last-soak: ${onPass([]).join(", ") || "nothing"}\n`);
}

/** `before`: a step that the end-to-end tests need, beside the build and the checks of the source. */
async function ok(before: () => Promise<boolean> = async () => true): Promise<void> {
  let isReady = false;
  const needed = async () => {
    const done = await Promise.all([before(), build()]);
    isReady = done.every(Boolean);
  };
  // The import rules are among the unit tests (test/architecture.test.ts).
  const checks = ["lint", "types", "fmt:check"].map((name) => ({ run: () => step(name, ["run", name]) }));
  await runSideBySide([{ run: needed }, ...checks], processors);
  await unit();
  if (isReady) await gate("e2e");
}

async function fresh(): Promise<void> {
  // Downloads wait for the network, and compilers for each other, so both run beside the checks.
  if (await step("install", ["install", "--frozen-lockfile"]))
    await ok(() => step("tools", ["test/support/tools.ts"]));
}

const tasks: Record<string, () => Promise<void>> = {
  test: fresh,
  ok,
  unit,
  async e2e() {
    if (await build()) await gate("e2e");
  },
  soak: () => soak(process.argv.slice(3)),
};

const task = tasks[process.argv[2] ?? ""];
if (task === undefined) {
  process.stderr.write(`Usage: bun test/run.ts ${Object.keys(tasks).join("|")}\n`);
  process.exitCode = 2;
} else {
  const begin = performance.now();
  await task();
  const { passed, failed, skipped } = total;
  for (const what of passedAgain)
    process.stdout.write(`\n== Failed beside others, passed when run again by itself: ${what}`);
  for (const what of broken) process.stdout.write(`\n== Failed: ${what}`);
  if (inCi && skipped > 0) process.stdout.write("\n== In CI nothing may be skipped.");
  process.stdout.write(`\n\n== ${secondsSince(begin)}`);
  process.stdout.write(
    `\n${passed} passed, ${failed} failed${skipped === 0 ? "" : `, ${skipped} skipped`}\n`,
  );
  process.exitCode = failed > 0 || (inCi && skipped > 0) ? 1 : 0;
}
