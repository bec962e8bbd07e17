// Runs a program to its end, with a maximum of time and output.

import { AppError, messageOf } from "../base/errors.ts";
import { systemErrorCode } from "../base/system-errors.ts";
import { given } from "../base/given.ts";

export type RunOptions = {
  /** Sends SIGKILL after this time. Default: 30 s. */
  timeoutMs?: number;
  input?: string;
  env?: Record<string, string>;
  cwd?: string;
};

export type RunResult = { status: number; stdout: string; stderr: string; timedOut: boolean };

type Sleep = (ms: number, signal?: AbortSignal) => Promise<void>;

/** Stop reading this long after the program ended: its own children may keep the pipe open. */
const outputGraceMs = 2000;

/** The limit of each of the two streams of a program. `nebula -test` prints the configuration, which has at most 8 MiB. */
export const maxOutputBytes = 32 * 1024 * 1024;

async function readOutput(
  stream: ReadableStream<Uint8Array>,
  exited: Promise<number>,
  sleep: Sleep,
): Promise<string> {
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  const done = new AbortController();
  void exited
    .then(() => sleep(outputGraceMs, done.signal))
    .then(() => reader.cancel())
    .catch(() => undefined);
  let text = "";
  let size = 0;
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    size += part.value.length;
    if (size > maxOutputBytes)
      throw new Error(`it printed more than ${maxOutputBytes} bytes and was stopped`);
    text += decoder.decode(part.value, { stream: true });
  }
  done.abort();
  return text;
}

/** Throws `failed` if the program cannot be started or prints too much. A status other than 0 is no error. */
export async function runProgram(
  argv: readonly string[],
  options: RunOptions & { env: Record<string, string> },
  sleep: Sleep,
): Promise<RunResult> {
  const program = argv[0] ?? "";
  if (!program.startsWith("/") && !/^[A-Za-z]:\\/.test(program)) {
    throw new AppError("internal", `Cannot run "${program}": programs are started by absolute path only`);
  }
  try {
    const child = Bun.spawn([...argv], {
      env: options.env,
      stdin: options.input === undefined ? "ignore" : new Blob([options.input]),
      stdout: "pipe",
      stderr: "pipe",
      ...given({ cwd: options.cwd }),
    });
    let isLate = false;
    const timer = setTimeout(() => {
      isLate = true;
      child.kill("SIGKILL");
    }, options.timeoutMs ?? 30_000);
    void child.exited.finally(() => clearTimeout(timer));
    const outputs = [child.stdout, child.stderr].map((each) => readOutput(each, child.exited, sleep));
    const [[stdout = "", stderr = ""], status] = await Promise.all([
      Promise.all(outputs),
      child.exited,
    ]).catch((error: unknown) => {
      child.kill("SIGKILL");
      throw error;
    });
    // The system may send SIGKILL, too, if memory is short. That is no end of the time.
    return { status, stdout, stderr, timedOut: isLate && child.signalCode === "SIGKILL" };
  } catch (error) {
    const reasons: Record<string, string> = { ENOENT: "not found", EACCES: "not executable" };
    const why = reasons[systemErrorCode(error) ?? ""] ?? messageOf(error);
    throw new AppError("failed", `Cannot run ${program}: ${why}`, { cause: error });
  }
}
