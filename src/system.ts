// The injected edge: clock, randomness, network, processes, environment, terminal. Functions take only the
// members they use; tests hand in fakes for clock, spawn and network alone.

import { brand } from "./brand.ts";
import { AppError, systemErrorCode } from "./errors.ts";
import { isPrivileged } from "./platform/privilege.ts";
import { readStandardInput } from "./platform/standard-input.ts";

export type RunOptions = {
  /** Ended with SIGKILL after this; 30 s unless said. */
  timeoutMs?: number;
  input?: string;
  env?: Record<string, string>;
  cwd?: string;
};

export type RunResult = { status: number; stdout: string; stderr: string; timedOut: boolean };

export type System = {
  /** Wall clock, milliseconds since 1970. May jump: compare certificates with it, never schedule by it. */
  now(): number;
  /** Resolves after ms on the monotonic clock; rejects with the signal's reason when aborted. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
  random(bytes: number): Uint8Array;
  fetch: (url: string, init?: FetchInit) => Promise<Response>;
  /**
   * All addresses of a host name; none where there is no such name. "system" asks as the machine's other programs do and
   * sees a change of its name servers (a laptop's), but holds one of Bun's few threads until somebody answers.
   */
  lookup(host: string, way?: "system"): Promise<readonly string[]>;
  /**
   * An empty datagram from an address of this machine; rejects where the address is none of this machine's, or where
   * there is no way. Whether it arrives is not known.
   */
  sendDatagram(from: string, to: string, port: number): Promise<void>;
  /** Runs a program given by absolute path to its end. ENOENT and EACCES become an AppError. */
  run(argv: readonly string[], options?: RunOptions): Promise<RunResult>;
  env: Record<string, string | undefined>;
  platform: NodeJS.Platform;
  arch: string;
  isRoot: boolean;
  /** Path of the running executable, read once at start (an update replaces the file under it). */
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
  tls?: { ca?: string; rejectUnauthorized?: boolean; serverName?: string };
  keepalive?: boolean;
};

export type Output = { write(text: string): void; isTerminal: boolean; columns: number };

/** Whether escape sequences may be written: the consoles of editors and of rescue systems show them as text. */
export function takesEscapes(output: Output, env: System["env"]): boolean {
  return env["TERM"] !== "dumb" && output.isTerminal;
}

/**
 * The environment that children get: ours without what would steer a Bun executable (BUN_*, NODE_*), and without what was
 * meant for us (AGENT_*), tokens and passwords among it.
 */
export function childEnvironment(env: Record<string, string | undefined>): Record<string, string> {
  const kept: Record<string, string> = {};
  for (const [name, value] of Object.entries(env)) {
    const isOurs = ["BUN_", "NODE_", brand.envPrefix].some((prefix) => name.startsWith(prefix));
    if (value !== undefined && !isOurs) kept[name] = value;
  }
  return kept;
}

export function realSystem(): System {
  const env = process.env;
  return {
    now: Date.now,
    sleep,
    random: (bytes) => crypto.getRandomValues(new Uint8Array(bytes)),
    fetch: (url, init = {}) =>
      fetch(url, {
        ...init,
        tls: { ...init.tls, rejectUnauthorized: true },
        redirect: init.redirect ?? "error",
      }),
    lookup: async (host, way) => {
      try {
        return (await Bun.dns.lookup(host, { backend: way ?? "c-ares" })).map((each) => each.address);
      } catch {
        // No such name, or no name server: the caller has nothing to connect to either way.
        return [];
      }
    },
    sendDatagram,
    run,
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

/** Neither `process.stdout` (8 ms at start, twice what a whole command may take) nor, where it can be helped, node:fs. */
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

/** Bun's own writer takes everything, also where the reader is slow, and loads nothing. */
function writeOut(text: string): void {
  try {
    // oxlint-disable-next-line no-console
    const written = console.write(text);
    if (typeof written !== "number") written.catch(ignoreGoneReader);
  } catch (error) {
    ignoreGoneReader(error);
  }
}

/** A reader that went away (`| head`) is no failure of ours. */
function ignoreGoneReader(error: unknown): void {
  if (systemErrorCode(error) !== "EPIPE") throw error;
}

function writeError(text: string): void {
  const { writeSync } = process.getBuiltinModule("node:fs");
  const bytes = Buffer.from(text);
  for (let at = 0; at < bytes.length;) {
    try {
      at += writeSync(2, bytes, at);
    } catch (error) {
      // A slow reader is waited for.
      if (systemErrorCode(error) !== "EAGAIN") return ignoreGoneReader(error);
      Bun.sleepSync(1);
    }
  }
}

/** Cheap where the descriptor is a pipe or a file; node:tty is loaded only for a character device. */
function isTerminal(fd: number): boolean {
  try {
    return (
      process.getBuiltinModule("node:fs").fstatSync(fd).isCharacterDevice() &&
      process.getBuiltinModule("node:tty").isatty(fd)
    );
  } catch (error) {
    if (systemErrorCode(error) === "EBADF") return false;
    throw error;
  }
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

async function sendDatagram(from: string, to: string, port: number): Promise<void> {
  const socket = await Bun.udpSocket({ hostname: from });
  try {
    socket.send("", port, to);
  } finally {
    socket.close();
  }
}

/** How long output is read on after its program has ended: what that has left running may hold it open for ever. */
const outputGraceMs = 2000;

async function readOutput(stream: ReadableStream<Uint8Array>, exited: Promise<number>): Promise<string> {
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  const over = new AbortController();
  void exited
    .then(() => sleep(outputGraceMs, over.signal))
    .then(() => reader.cancel())
    .catch(() => undefined);
  let text = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    text += decoder.decode(part.value, { stream: true });
  }
  over.abort();
  return text;
}

async function run(argv: readonly string[], options: RunOptions = {}): Promise<RunResult> {
  const program = argv[0] ?? "";
  if (!program.startsWith("/") && !/^[A-Za-z]:\\/.test(program)) {
    throw new AppError("internal", `Cannot run "${program}": programs are started by absolute path only`);
  }
  try {
    const child = Bun.spawn([...argv], {
      env: options.env ?? childEnvironment(process.env),
      stdin: options.input === undefined ? "ignore" : new Blob([options.input]),
      stdout: "pipe",
      stderr: "pipe",
      ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
      timeout: options.timeoutMs ?? 30_000,
      killSignal: "SIGKILL",
    });
    const [stdout, stderr, status] = await Promise.all([
      readOutput(child.stdout, child.exited),
      readOutput(child.stderr, child.exited),
      child.exited,
    ]);
    return { status, stdout, stderr, timedOut: child.signalCode === "SIGKILL" };
  } catch (error) {
    const code = systemErrorCode(error);
    const why = code === "ENOENT" ? "not found" : code === "EACCES" ? "not executable" : String(error);
    throw new AppError("failed", `Cannot run ${program}: ${why}`, { cause: error });
  }
}
