// The compiled executable for tests, and a control plane with it. Builds it only if a source is newer.

import { mkdirSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { runSync } from "./debian.ts";

export const root = join(import.meta.dir, "../..");

export const agent = join(root, "dist/agent");

/** Builds dist/agent if it is older than a source. Returns its path. */
export function buildAgent(): string {
  if (isOlderThanSources(agent)) {
    // Build elsewhere and rename, so that a concurrent test never starts an incomplete file.
    const beside = join(root, `dist/.agent-${process.pid}`);
    mkdirSync(join(root, "dist"), { recursive: true });
    runSync([process.execPath, "build.ts", "--outfile", beside], { cwd: root });
    runSync(["mv", beside, agent]);
  }
  return agent;
}

/** Whether this executable must be built again, or is not there. */
export function isOlderThanSources(executable: string): boolean {
  const sources = ["src", "build.ts", "package.json", "bun.lock"].map((name) => join(root, name));
  const built = statSync(executable, { throwIfNoEntry: false })?.mtimeMs ?? 0;
  return Math.max(...sources.map(newest)) > built;
}

function newest(path: string): number {
  const stat = statSync(path);
  if (!stat.isDirectory()) return stat.mtimeMs;
  return Math.max(stat.mtimeMs, ...readdirSync(path).map((name) => newest(join(path, name))));
}

/** The environment of children: only PATH, so that no AGENT_ variable of the developer has an effect. */
export function cleanEnvironment(extra: Record<string, string> = {}): Record<string, string> {
  return { PATH: process.env["PATH"] ?? "/usr/sbin:/usr/bin:/sbin:/bin", LC_ALL: "C", ...extra };
}

export type AgentResult = { status: number; stdout: string; stderr: string };

/** Runs one command to its end. */
export async function runAgent(
  args: readonly string[],
  options: {
    input?: string;
    env?: Record<string, string>;
    cwd?: string;
    /** Wraps argv, to run the command elsewhere. */
    inside?: (argv: readonly string[]) => string[];
  } = {},
): Promise<AgentResult> {
  const { inside = (argv) => [...argv] } = options;
  const child = Bun.spawn(inside([agent, ...args]), {
    env: cleanEnvironment(options.env),
    stdin: new Blob([options.input ?? ""]),
    stdout: "pipe",
    stderr: "pipe",
    ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
  });
  const [stdout, stderr, status] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
    child.exited,
  ]);
  return { status, stdout, stderr };
}

/** Runs one command that must succeed. Returns its --json object. */
export async function agentJson(
  args: readonly string[],
  options: Parameters<typeof runAgent>[1] = {},
): Promise<Record<string, unknown>> {
  const { status, stdout, stderr } = await runAgent([...args, "--json"], options);
  if (status !== 0) throw new Error(`agent ${args.join(" ")}: exit ${status}\n${stdout}${stderr}`);
  const parsed: unknown = JSON.parse(stdout);
  if (typeof parsed !== "object" || parsed === null) throw new Error(`agent ${args.join(" ")}: no object`);
  return { ...parsed };
}

export type ControlPlane = AsyncDisposable & {
  url: string;
  dataDirectory: string;
  pid: number;
  /** Its standard error so far. */
  log(): string;
  /** Runs `agent admin …` on its data directory. */
  admin(args: readonly string[], input?: string): Promise<AgentResult>;
  /** Sends SIGTERM and waits. Returns the exit status. */
  stop(): Promise<number>;
};

/** Starts `agent serve` on a loopback port, by default a free one. The caller removes the directory. */
export async function startControlPlane(
  dataDirectory: string,
  flags: readonly string[] = [],
  port = 0,
  inside: (argv: readonly string[]) => string[] = (argv) => [...argv],
): Promise<ControlPlane> {
  const where = ["--listen", `127.0.0.1:${port}`, "--data-dir", dataDirectory];
  const argv = [agent, "serve", "--json", ...where, ...flags];
  const child = Bun.spawn(inside(argv), {
    env: cleanEnvironment(),
    stdin: "ignore",
    stdout: "pipe",
    stderr: "pipe",
  });
  let log = "";
  void (async () => {
    for await (const chunk of child.stderr) log += new TextDecoder().decode(chunk);
  })();
  const stop = async () => {
    child.kill("SIGTERM");
    return await child.exited;
  };
  const url = await firstLine(child.stdout);
  if (url === undefined) throw new Error(`agent serve ended with ${await stop()}\n${log}`);
  return {
    url,
    dataDirectory,
    pid: child.pid,
    log: () => log,
    admin: (args, input = "") => runAgent(["admin", ...args, "--data-dir", dataDirectory], { input }),
    stop,
    [Symbol.asyncDispose]: async () => void (await stop()),
  };
}

async function firstLine(stream: ReadableStream<Uint8Array>): Promise<string | undefined> {
  let text = "";
  for await (const chunk of stream) {
    text += new TextDecoder().decode(chunk);
    const line: unknown = text.includes("\n") ? JSON.parse(text.slice(0, text.indexOf("\n"))) : undefined;
    if (line !== undefined) {
      return typeof line === "object" && line !== null && "url" in line ? String(line.url) : undefined;
    }
  }
  return undefined;
}

if (import.meta.main) process.stdout.write(`${buildAgent()}\n`);
