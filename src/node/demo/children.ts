// The demo's child processes: the product's own commands, called as a person would, and the engines. Whoever
// starts one here can forget it: endAll() ends what is left.

import { closeSync, openSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { brand } from "../../brand.ts";
import { AppError, messageOf } from "../../errors.ts";
import { childEnvironment, type System } from "../../system.ts";
import { fileLog, lastLines } from "../engine/engine-log.ts";
import { controlEngine, waitUntilReady, type OverlayControl } from "../engine/engine.ts";
import { identifyProcess } from "../../platform/process-identity.ts";
import type { Network } from "./network.ts";

export type Children = {
  /** Runs `agent …` to its end and reads what it prints; throws with its own words if it fails. */
  agent<T>(args: readonly string[], schema: v.GenericSchema<unknown, T>, input?: string): Promise<T>;
  /** Starts `agent serve` on a free loopback port; its URL, as soon as it answers. */
  serve(dataDirectory: string): Promise<string>;
  /** Starts the engine inside a host; resolves when it is active. */
  engine(host: string, binary: string, directory: string, logFile: string): Promise<OverlayControl>;
  endAll(): Promise<void>;
};

export function makeChildren(
  network: Network,
  system: Pick<System, "env" | "executable" | "sleep" | "platform">,
): Children {
  const running = new Set<Bun.Subprocess>();
  const env = childEnvironment(system.env);
  const start = <T extends Bun.Subprocess>(child: T): T => {
    running.add(child);
    void child.exited.finally(() => running.delete(child));
    return child;
  };

  return {
    async agent(args, schema, input = "") {
      const child = start(
        Bun.spawn([system.executable, ...args, "--json"], {
          env,
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
    },

    async serve(dataDirectory) {
      const argv = [system.executable, "serve", "--json", "--listen", "127.0.0.1:0"];
      const log = join(dataDirectory, "../control-plane.log");
      const child = start(
        Bun.spawn([...argv, "--data-dir", dataDirectory], {
          env,
          stdin: "ignore",
          stdout: "pipe",
          stderr: Bun.file(log),
        }),
      );
      const reader = child.stdout.getReader();
      const { value } = await reader.read();
      const line = new TextDecoder().decode(value);
      const answer = line.startsWith("{")
        ? v.safeParse(v.object({ url: v.pipe(v.string(), v.maxLength(2048)) }), JSON.parse(line))
        : undefined;
      if (answer?.success === true) return answer.output.url;
      throw failure(["serve"], line, lastLines(log, 1)[0] ?? "it says nothing");
    },

    async engine(host, binary, directory, logFile) {
      const tail = fileLog(logFile)();
      const startProcess = () => {
        const log = openSync(logFile, "a", 0o600);
        const argv = network.inside(host, [binary, "-config", join(directory, "config.yml")]);
        const child = Bun.spawn(argv, { env, stdin: "ignore", stdout: log, stderr: log });
        closeSync(log);
        return start(child);
      };
      let child = startProcess();
      const ready = () =>
        waitUntilReady(tail, () => child.exitCode === null, { silent: false }, system).catch(
          (error: unknown) => {
            const said = lastLines(logFile, 1)[0] ?? "";
            throw new AppError(
              "engine_failed",
              `${host}: ${messageOf(error)}${said === "" ? "" : ` (${said})`}`,
            );
          },
        );
      await ready();
      const stop = async () => {
        child.kill("SIGTERM");
        await child.exited;
      };
      const restart = async () => {
        await stop();
        child = startProcess();
        await ready();
      };
      const process = () => identifyProcess(child.pid);
      const control = controlEngine({ process, log: fileLog(logFile), restart }, system);
      return { ...control, start: restart, stop };
    },

    async endAll() {
      const left = [...running];
      for (const child of left) child.kill("SIGKILL");
      await Promise.all(left.map((child) => child.exited));
    },
  };
}

const Failure = v.object({ error: v.object({ message: v.string() }) });

function failure(args: readonly string[], stdout: string, stderr: string): AppError {
  const firstFlag = args.findIndex((arg) => arg.startsWith("-"));
  const words = args.slice(0, firstFlag === -1 ? undefined : firstFlag);
  const said = stdout.startsWith("{") ? v.safeParse(Failure, JSON.parse(stdout)) : undefined;
  const reason = said?.success === true ? said.output.error.message : stderr.trim() || stdout.trim();
  return new AppError("failed", `\`${brand.executable} ${words.join(" ")}\` failed: ${reason}`);
}
