// Access to the outside world: clock, randomness, network, processes, environment, terminal. Functions take only the
// members they use, so that tests can replace clock, processes and network.

import { defer } from "./defer.ts";
import { brand } from "../brand.ts";
import { systemErrorCode } from "./system-errors.ts";
import type { MachineState } from "../platform/machine-state.ts";
import { readText } from "./open-file.ts";
import { isPrivileged } from "../platform/privilege.ts";
import { runProgram, type RunOptions, type RunResult } from "../platform/run-program.ts";
import { readStandardInput } from "../platform/standard-input.ts";

export type System = {
  /** Wall clock, milliseconds since 1970. It may jump: use it for certificates, never for scheduling. */
  now(): number;
  /**
   * `ms`: time since the machine started, with the time that it slept; setting the clock does not change it. `id`: of this
   * start; undefined if the system has none. `isShared`: all programs of the machine see the same id. It is false in containers
   * of LXC and systemd-nspawn, which mount an id of their own over the kernel's: sandboxed units there see the kernel's.
   */
  bootTime(): { id: string | undefined; isShared: boolean; ms: number };
  /** Milliseconds since any moment; never jumps. For limits and durations within this process. */
  monotonic(): number;
  /** Waits on the monotonic clock. Rejects with the signal's reason when aborted. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
  random(bytes: number): Uint8Array;
  fetch: (url: string, init?: FetchInit) => Promise<Response>;
  /**
   * All addresses of a host name; empty if it does not exist. "system" uses the resolver of the operating system, which
   * follows changed name servers (laptops), but blocks one of Bun's few threads until the answer.
   */
  lookup(host: string, way?: "system"): Promise<readonly string[]>;
  /**
   * The texts of the TXT records of a name; empty if there are none, or no answer.
   */
  lookupTexts(name: string): Promise<readonly string[]>;
  /**
   * Sends an empty datagram from an address of this machine. Rejects if this machine does not have the address, or has no route.
   * Whether the datagram arrives is not known.
   */
  sendDatagram(from: string, to: string, port: number): Promise<void>;
  /** The interfaces, networks, routes, name servers and ports of this machine. */
  machineState(): Promise<MachineState>;
  /**
   * Runs a program, given by absolute path, until it ends. Fails if it cannot start, or prints too much.
   */
  run(argv: readonly string[], options?: RunOptions): Promise<RunResult>;
  env: Record<string, string | undefined>;
  platform: NodeJS.Platform;
  arch: string;
  isRoot: boolean;
  /** Path of the running executable, read once at start: an update replaces the file later. */
  executable: string;
  stdout: Output;
  stderr: Output;
  /** All of standard input as text. */
  readStdin(): Promise<string>;
  stdinIsTerminal: boolean;
};

export type FetchInit = {
  method?: string;
  headers?: Record<string, string>;
  body?: string | Uint8Array<ArrayBuffer>;
  signal?: AbortSignal;
  redirect?: "error" | "follow" | "manual";
  /** Certificates are always verified. */
  tls?: { ca?: string; serverName?: string };
  keepalive?: boolean;
};

export type Output = { write(text: string): void; isTerminal: boolean; columns: number };

/** Whether escape sequences may be written: the consoles of editors and of rescue systems show them as text. */
export function takesEscapes(output: Output, env: System["env"]): boolean {
  return env["TERM"] !== "dumb" && output.isTerminal;
}

/**
 * The environment for child processes: without BUN_* and NODE_*, which change how a Bun executable runs, and without
 * AGENT_*, which may contain tokens and passwords.
 */
export function childEnvironment(env: Record<string, string | undefined>): Record<string, string> {
  const kept: Record<string, string> = {};
  for (const [name, value] of Object.entries(env)) {
    const isOurs = ["BUN_", "NODE_", brand.envPrefix].some((prefix) => name.startsWith(prefix));
    if (value !== undefined && !isOurs) kept[name] = value;
  }
  return kept;
}

async function lookup(host: string, way?: "system"): Promise<string[]> {
  try {
    return (await Bun.dns.lookup(host, { backend: way ?? "c-ares" })).map((each) => each.address);
  } catch {
    // Unknown name or no name server: either way there is no address to connect to.
    return [];
  }
}

/** Throws the cause of a failed connection, which the runtime sometimes hides. */
async function throwTrueFailure(error: unknown, url: string): Promise<never> {
  const { findTrueFailure } = await import("./connect-failure.ts");
  throw await findTrueFailure(error, url, { lookup: (host) => lookup(host, "system"), env: process.env });
}

/** The system of this process. Tests replace members of it. */
export function realSystem(): System {
  const env = process.env;
  return {
    now: Date.now,
    bootTime,
    monotonic: () => performance.now(),
    sleep,
    random: (bytes) => crypto.getRandomValues(new Uint8Array(bytes)),
    fetch: async (url, init = {}) => {
      const sent = fetch(url, {
        ...init,
        headers: { "Accept-Encoding": "gzip", ...init.headers },
        tls: { ...init.tls, rejectUnauthorized: true },
        redirect: init.redirect ?? "error",
        decompress: false,
      });
      return unpacked(await sent.catch((error: unknown) => throwTrueFailure(error, url)));
    },
    lookup,
    lookupTexts: async (name) => {
      try {
        const { resolveTxt } = await import("node:dns/promises");
        return (await resolveTxt(name)).map((parts) => parts.join(""));
      } catch {
        return [];
      }
    },
    sendDatagram,
    machineState: async () => (await import("../platform/machine-state.ts")).machineState(),
    run: (argv, options) => runProgram(argv, { env: childEnvironment(process.env), ...options }, sleep),
    env,
    platform: process.platform,
    arch: process.arch,
    get isRoot() {
      return isPrivileged();
    },
    executable: process.execPath,
    stdout: output(1, writeOut),
    stderr: output(2, writeError),
    readStdin: readStandardInput,
    get stdinIsTerminal() {
      return isTerminal(0);
    },
  };
}

/** Read once: a server asks with each request, and looking at file systems costs a tenth of a check-in. */
let boot: { id: string; isShared: boolean } | undefined;

function readIfThere(path: string): string | undefined {
  try {
    return readText(path);
  } catch {
    return undefined;
  }
}

function bootTime(): ReturnType<System["bootTime"]> {
  const { uptime }: typeof import("node:os") = require("node:os");
  // Units of earlier versions hide the file from the control plane (ProcSubset=pid).
  const id = process.platform === "linux" && boot === undefined ? readIfThere(bootIdFile)?.trim() : undefined;
  if (id !== undefined) boot = { id, isShared: !isMountedOver(bootIdFile) };
  return { id: boot?.id, isShared: boot?.isShared === true, ms: uptime() * 1000 };
}

const bootIdFile = "/proc/sys/kernel/random/boot_id";

/** Whether a file of /proc belongs to another file system. */
function isMountedOver(path: string): boolean {
  const { statSync }: typeof import("node:fs") = require("node:fs");
  return statSync(path).dev !== statSync("/proc").dev;
}

/** Decompresses the body here, because Bun's own decompression writes its failures to standard error. */
function unpacked(response: Response): Response {
  if (response.headers.get("content-encoding") !== "gzip" || response.body === null) return response;
  const { status, statusText, headers } = response;
  const body = response.body.pipeThrough(new DecompressionStream("gzip"));
  return new Response(body, { status, statusText, headers });
}

/** Avoids `process.stdout`, which adds 8 ms to every start, and loads node:fs only when needed. */
function output(fd: 1 | 2, write: (text: string) => void): Output {
  return {
    write,
    get isTerminal() {
      return isTerminal(fd);
    },
    get columns() {
      return (fd === 1 ? process.stdout : process.stderr).columns || 80;
    },
  };
}

/** Uses console.write, which loads no module, and writes everything even to a slow reader. */
function writeOut(text: string): void {
  try {
    // oxlint-disable-next-line no-console
    const written = console.write(text);
    if (typeof written !== "number") written.catch(ignoreClosedPipe);
  } catch (error) {
    ignoreClosedPipe(error);
  }
}

/** The reader may end early, as in `| head`. */
function ignoreClosedPipe(error: unknown): void {
  if (systemErrorCode(error) !== "EPIPE") throw error;
}

function writeError(text: string): void {
  const { writeSync }: typeof import("node:fs") = require("node:fs");
  const bytes = Buffer.from(text);
  for (let at = 0; at < bytes.length;) {
    try {
      at += writeSync(2, bytes, at);
    } catch (error) {
      // EAGAIN: wait for a slow reader.
      if (systemErrorCode(error) !== "EAGAIN") return ignoreClosedPipe(error);
      Bun.sleepSync(1);
    }
  }
}

/** The test that node:tty uses, without loading node:tty, which takes as long as a short command. */
function isTerminal(fd: number): boolean {
  const { isTTY } = process.binding("tty_wrap") as { isTTY(fd: number): boolean };
  return isTTY(fd);
}

function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(abortReason(signal));
    const onAbort = () => {
      clearTimeout(timer);
      if (signal !== undefined) reject(abortReason(signal));
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", onAbort);
      resolve();
    }, ms);
    signal?.addEventListener("abort", onAbort, { once: true });
  });
}

function abortReason(signal: AbortSignal): Error {
  return signal.reason instanceof Error ? signal.reason : new Error("Aborted");
}

/** The discard port (RFC 863): an empty packet to it only makes an engine notice its peer. */
export const discardPort = 9;

async function sendDatagram(from: string, to: string, port: number): Promise<void> {
  const socket = await Bun.udpSocket({ hostname: from });
  using _ = defer(() => socket.close());
  socket.send("", port, to);
}
