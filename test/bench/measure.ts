// What the benches share: starting a program that says its address, loading it with wrk, medians and their spread.
// Knows nothing of what is measured.

import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { agent, cleanEnvironment } from "../support/agent.ts";
import { installMissing } from "../support/debian.ts";

/** What the guide measured, requests a second. */
export const guide = { handler: 65_000, commit: 54_000 } as const;

export type Program = AsyncDisposable & { url: string; pid: number; stop(): Promise<void> };

/** Starts a program that prints `{"url":…}` as its first line. `fsyncs`: a file for strace's count of them. */
export async function startProgram(
  argv: readonly string[],
  options: { fsyncs?: string } = {},
): Promise<Program> {
  const trace =
    options.fsyncs === undefined
      ? []
      : ["strace", "-f", "-qq", "--seccomp-bpf", "-c", "-e", "trace=fsync,fdatasync", "-o", options.fsyncs];
  const child = Bun.spawn([...trace, ...argv], {
    env: cleanEnvironment(),
    stdin: "ignore",
    stdout: "pipe",
    // A server logs each change: that would drown what is measured. An answer that is an error ends the bench.
    stderr: "ignore",
  });
  const reader = child.stdout.getReader();
  let text = "";
  while (!text.includes("\n")) {
    const { value, done } = await reader.read();
    if (done)
      throw new Error(`${argv.join(" ")} ended with ${await child.exited} before it said its address`);
    text += new TextDecoder().decode(value);
  }
  reader.releaseLock();
  const { url } = v.parse(v.object({ url: v.string() }), JSON.parse(text.slice(0, text.indexOf("\n"))));
  const pid = options.fsyncs === undefined ? child.pid : childOf(child.pid);
  const stop = async () => {
    if (child.exitCode === null) process.kill(pid, "SIGTERM");
    await child.exited;
  };
  return { url, pid, stop, [Symbol.asyncDispose]: stop };
}

function childOf(pid: number): number {
  const { stdout } = Bun.spawnSync(["cat", `/proc/${pid}/task/${pid}/children`]);
  return Number(stdout.toString().trim().split(" ")[0]);
}

/** A floor is a process of its own. */
export function startFloor(name: string, args: readonly string[] = [], options = {}): Promise<Program> {
  return startProgram([process.execPath, join(import.meta.dir, "floor.ts"), name, ...args], options);
}

/** The compiled control plane. `flags`: --data-dir at least. */
export function startServer(flags: readonly string[], options = {}): Promise<Program> {
  return startProgram([agent, "serve", "--json", "--listen", "127.0.0.1:0", ...flags], options);
}

export type Request = { method: string; path: string; token?: string; body?: unknown };

/** Writes the file that `load` sends. */
export function writeRequests(path: string, requests: Iterable<Request>): string {
  const lines = Array.from(requests, ({ method, path, token = "", body }) =>
    [method, path, token, body === undefined ? "" : JSON.stringify(body)].join("\t"),
  );
  writeFileSync(path, `${lines.join("\n")}\n`);
  return path;
}

const Report = v.object({
  requests: v.number(),
  duration_us: v.number(),
  p50_us: v.number(),
  p99_us: v.number(),
  max_us: v.number(),
  refused: v.number(),
  broken: v.number(),
});

export type Load = { requests: number; rate: number; p50Ms: number; p99Ms: number; maxMs: number };

/** Loads the address with wrk. Throws if any answer was an error: an error is answered faster than work is done. */
export async function load(
  url: string,
  requests: string,
  {
    connections = 32,
    seconds = 3,
    pauseMs,
  }: { connections?: number; seconds?: number; pauseMs?: number } = {},
): Promise<Load> {
  const missing = installMissing(["/usr/bin/wrk"]);
  if (missing !== undefined) throw new Error(missing);
  const argv = [
    "wrk",
    "-t1",
    `-c${connections}`,
    `-d${seconds}s`,
    "--timeout",
    "30s",
    "-s",
    join(import.meta.dir, "load.lua"),
    url,
  ];
  const pause = pauseMs === undefined ? [] : [String(pauseMs)];
  const child = Bun.spawn([...argv, "--", requests, ...pause], { stdout: "pipe", stderr: "inherit" });
  const text = await new Response(child.stdout).text();
  if ((await child.exited) !== 0) throw new Error(`wrk failed\n${text}`);
  const report = v.parse(Report, JSON.parse(text.split("\n").find((line) => line.startsWith("{")) ?? ""));
  if (report.refused + report.broken > 0) {
    throw new Error(`${report.refused} answers were errors, ${report.broken} connections broke (${url})`);
  }
  return {
    requests: report.requests,
    rate: report.requests / (report.duration_us / 1e6),
    p50Ms: report.p50_us / 1000,
    p99Ms: report.p99_us / 1000,
    maxMs: report.max_us / 1000,
  };
}

/** What `startProgram` counted, once the program has ended. */
export function countFsyncs(path: string, requests: number): string {
  const lines = readFileSync(path, "utf8").matchAll(/^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+).*f(?:data)?sync$/gm);
  const total = Array.from(lines, (match) => Number(match[1])).reduce((sum, each) => sum + each, 0);
  return `${total} fsyncs for ${requests} requests: one for ${(requests / total).toFixed(1)} (under strace)`;
}

/** Anonymous memory of a process, in MB. */
export function anonymousMb(pid: number): number {
  return Number(/^RssAnon:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) / 1024;
}

/** Resident memory of a process, KiB. */
export function residentKb(pid: number): number {
  return Number(/^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]);
}

/** What a process does not share with others, MB: the kernel can drop no part of it without swap, unless it is of a file. */
export function privateMb(pid: number): number {
  const text = readFileSync(`/proc/${pid}/smaps_rollup`, "utf8");
  const sizes = [...text.matchAll(/^Private_(?:Clean|Dirty):\s+(\d+)/gm)].map(([, kb]) => Number(kb));
  return sizes.reduce((sum, kb) => sum + kb, 0) / 1024;
}

/** Of all its threads, also of those that ended. */
export function processorSeconds(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8")
    .replace(/^.*\) /, "")
    .split(" ");
  return (Number(fields[11]) + Number(fields[12])) / 100;
}

/** How often its threads that run were switched, of their own will or not. */
export function switches(pid: number): number {
  const texts = threadsOf(pid).map((path) => readFileSync(`${path}/status`, "utf8"));
  return texts
    .flatMap((text) => [...text.matchAll(/ctxt_switches:\s+(\d+)/g)])
    .reduce((sum, [, count]) => sum + Number(count), 0);
}

function threadsOf(pid: number): string[] {
  return readdirSync(`/proc/${pid}/task`).map((each) => `/proc/${pid}/task/${each}`);
}

/** `floor`: what was measured of it in the same turns. `most`, `least`: the bar. */
type Beside = {
  unit?: string;
  digits?: number;
  floor?: number | readonly number[];
  most?: number;
  least?: number;
};

/** Prints a figure (median and spread), its floor, and whether it meets its bar. A missed bar makes the bench fail. */
export function figure(
  what: string,
  measured: number | readonly number[],
  { unit = "", digits = 1, floor, most, least }: Beside = {},
): void {
  const list = [measured].flat();
  const middle = median(list);
  const show = (values: readonly number[]) =>
    `${values.length === 1 ? written(values[0] ?? Number.NaN, digits) : spread(values, digits)}${unit === "" ? "" : ` ${unit}`}`;
  const isMet = middle <= (most ?? Infinity) && middle >= (least ?? -Infinity);
  if (!isMet) process.exitCode = 1;
  const bar = most ?? least;
  const verdict = bar === undefined ? "" : isMet ? "met" : "MISSED";
  const ofFloor =
    floor === undefined
      ? ""
      : `; floor ${show([floor].flat())}, ${(middle / median([floor].flat())).toFixed(2)} of it`;
  const limit = bar === undefined ? "" : `; bar: at ${most === undefined ? "least" : "most"} ${bar}`;
  print(`${verdict.padEnd(6)} ${what}: ${show(list)}${ofFloor}${limit}`);
}

/** Runs the measurement that the first argument names, else the first one, with the other arguments. */
export async function choose(measurements: Record<string, (args: string[]) => Promise<void>>): Promise<void> {
  const [first = "", ...rest] = process.argv.slice(2);
  const [standard] = Object.values(measurements);
  const chosen = measurements[first];
  if (chosen !== undefined) return chosen(rest);
  if (first !== "" && Number.isNaN(Number(first)))
    throw new Error(
      `There is no measurement "${first}": choose one of ${Object.keys(measurements).join(", ")}`,
    );
  await standard?.(process.argv.slice(2));
}

export function quantile(values: readonly number[], part: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil(sorted.length * part) - 1)] ?? Number.NaN;
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  const upper = sorted[middle] ?? Number.NaN;
  return sorted.length % 2 === 1 ? upper : ((sorted[middle - 1] ?? upper) + upper) / 2;
}

/** "52,300 (49,100 to 55,000)". */
export function spread(values: readonly number[], digits = 0): string {
  const [middle, least, most] = [median(values), Math.min(...values), Math.max(...values)];
  return `${written(middle, digits)} (${written(least, digits)} to ${written(most, digits)})`;
}

function written(value: number, digits: number): string {
  return value.toLocaleString("en", { maximumFractionDigits: digits });
}

/** Runs the contestants in turns, so that a busy machine slows all of them alike. */
export async function inTurns<K extends string, L extends Load>(
  rounds: number,
  contestants: Record<K, () => Promise<L>>,
): Promise<Record<K, L[]>> {
  const names = Object.keys(contestants) as K[];
  const loads = Object.fromEntries(names.map((name) => [name, [] as L[]])) as Record<K, L[]>;
  for (let round = 0; round < rounds; round++) {
    for (const name of names) loads[name].push(await contestants[name]());
  }
  return loads;
}

/** The ratios of rates, round by round. */
export function ratios(of: readonly Load[], to: readonly Load[]): number[] {
  return of.map(({ rate }, at) => rate / (to[at]?.rate ?? Number.NaN));
}

export function print(line: string): void {
  process.stdout.write(`${line}\n`);
}

/** One line for a contestant: rate, its spread, latencies. */
export function describeLoads(name: string, loads: readonly Load[]): string {
  const p50 = median(loads.map((each) => each.p50Ms));
  const p99 = median(loads.map((each) => each.p99Ms));
  const rates = spread(loads.map((each) => each.rate));
  return `${name.padEnd(30)} ${rates} a second, p50 ${p50.toFixed(2)} ms, p99 ${p99.toFixed(2)} ms`;
}

/** A floor counts only if it is no more than 20 % below what the guide measured. */
export function describeFloor(name: string, loads: readonly Load[], guide: number): string {
  const share = median(loads.map((each) => each.rate)) / guide;
  const verdict = share >= 0.8 ? "counts" : "DOES NOT COUNT, more than 20 % below";
  return `${describeLoads(name, loads)}\n${" ".repeat(31)}guide ${guide.toLocaleString("en")}: ${share.toFixed(2)} of it, ${verdict}`;
}
