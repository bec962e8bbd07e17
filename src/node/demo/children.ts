// The demo's child processes: the product's own commands, run as a user would, and the engines. `endAll` ends those that
// are left, so that callers need not keep track.

import { closeSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { boundedText, jsonText } from "../../base/text.ts";
import { brand } from "../../brand.ts";
import { AppError, messageOf } from "../../base/errors.ts";
import { childEnvironment, type System } from "../../base/system.ts";
import { fileLog, lastLines } from "../engine/engine-log.ts";
import { controlEngine, waitUntilReady, type OverlayControl } from "../engine/control-engine.ts";
import { controlSocket } from "../../platform/systemd/control-socket.ts";
import { identifyProcess } from "../../platform/process-identity.ts";
import type { Network } from "./network.ts";
import { openPlain } from "../../base/open-file.ts";

type UsedSystem = Pick<System, "env" | "executable" | "sleep" | "platform">;

/** An engine that does not end at SIGTERM is killed after this time. */
const stopsWithinMs = 10_000;

export class Children {
  readonly #network: Network;
  readonly #system: UsedSystem;
  readonly #env: Record<string, string>;
  readonly #running = new Set<Bun.Subprocess>();

  constructor(network: Network, system: UsedSystem) {
    this.#network = network;
    this.#system = system;
    this.#env = childEnvironment(system.env);
  }

  /** Runs `agent …` to its end and parses its output. Throws its error message if it fails. */
  async agent<T>(args: readonly string[], schema: v.GenericSchema<unknown, T>, input = ""): Promise<T> {
    const child = this.#track(
      Bun.spawn([this.#system.executable, ...args, "--json"], {
        env: this.#env,
        stdin: new Blob([input]),
        stdout: "pipe",
        stderr: "pipe",
      }),
    );
    const [stdout, stderr, status] = await Promise.all([
      new Response(child.stdout).text(),
      new Response(child.stderr).text(),
      child.exited,
    ]);
    if (status !== 0) throw failure(args, stdout, stderr);
    return v.parse(schema, JSON.parse(stdout));
  }

  /** Starts `agent serve` on a free loopback port. Resolves with its URL once it answers. */
  async serve(dataDirectory: string): Promise<string> {
    const argv = [this.#system.executable, "serve", "--json", "--listen", "127.0.0.1:0"];
    const log = join(dataDirectory, "../control-plane.log");
    const stderr = openPlain(log, "append");
    const child = this.#track(
      Bun.spawn([...argv, "--data-dir", dataDirectory], {
        env: this.#env,
        stdin: "ignore",
        stdout: "pipe",
        stderr,
      }),
    );
    closeSync(stderr);
    const line = await firstLine(child.stdout);
    const answer = v.safeParse(jsonText(Serving), line);
    if (answer.success) return answer.output.url;
    throw failure(["serve"], line, lastLines(log, 1)[0] ?? "its log is empty");
  }

  /** Starts the engine inside a host. Resolves when it is active. */
  async engine(host: string, binary: string, directory: string, logFile: string): Promise<OverlayControl> {
    // Before the start: it reads what the log gets from now on.
    const tail = fileLog(logFile)();
    const argv = this.#network.inside(host, [binary, "-config", join(directory, "config.yml")]);
    let child = this.#spawnLogged(argv, logFile);
    const ready = async () => {
      try {
        await waitUntilReady(tail, () => child.exitCode === null, { silent: false }, this.#system);
      } catch (error) {
        const line = lastLines(logFile, 1)[0] ?? "";
        const reason = line === "" ? messageOf(error) : `${messageOf(error)} (${line})`;
        throw new AppError("engine_failed", `${host}: ${reason}`, { cause: error });
      }
    };
    await ready();
    const stop = async () => {
      child.kill("SIGTERM");
      const late = setTimeout(() => child.kill("SIGKILL"), stopsWithinMs);
      await child.exited.finally(() => clearTimeout(late));
    };
    const restart = async () => {
      await stop();
      child = this.#spawnLogged(argv, logFile);
      await ready();
    };
    const process = () => identifyProcess(child.pid);
    const engine = { process, log: fileLog(logFile), controlSocket: controlSocket(directory), restart };
    const control = controlEngine(engine, this.#system);
    return { ...control, start: restart, stop };
  }

  async endAll(): Promise<void> {
    const left = [...this.#running];
    for (const child of left) child.kill("SIGKILL");
    await Promise.all(left.map((child) => child.exited));
  }

  #track<T extends Bun.Subprocess>(child: T): T {
    this.#running.add(child);
    void child.exited.finally(() => this.#running.delete(child));
    return child;
  }

  #spawnLogged(argv: string[], logFile: string): Bun.Subprocess {
    const log = openPlain(logFile, "append");
    const child = Bun.spawn(argv, { env: this.#env, stdin: "ignore", stdout: log, stderr: log });
    closeSync(log);
    return this.#track(child);
  }
}

/** Up to the first line break, or the end; a line may come in several reads. The rest is not read. */
async function firstLine(stream: ReadableStream<Uint8Array>): Promise<string> {
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  let text = "";
  while (!text.includes("\n")) {
    const { done, value } = await reader.read();
    if (done) break;
    text += decoder.decode(value, { stream: true });
  }
  return text.split("\n", 1)[0] ?? "";
}

const Serving = v.object({ url: boundedText(2048) });
const Failure = v.object({ error: v.object({ message: v.string() }) });

function failure(args: readonly string[], stdout: string, stderr: string): AppError {
  const firstFlag = args.findIndex((arg) => arg.startsWith("-"));
  const command = args.slice(0, firstFlag === -1 ? undefined : firstFlag).join(" ");
  const parsed = v.safeParse(jsonText(Failure), stdout);
  const reason = parsed.success ? parsed.output.error.message : stderr.trim() || stdout.trim();
  return new AppError("failed", `\`${brand.executable} ${command}\` failed: ${reason}`);
}
