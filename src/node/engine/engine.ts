// Knows the overlay engine as a program: its version, and its test of a configuration. control-engine.ts controls a running one.

import { existsSync, statSync } from "node:fs";
import {
  advisoriesFor,
  isOlderThan,
  isRefusedEngine,
  oldestEngine,
  parseEngineVersion,
} from "../../engine/features.ts";
import { AppError, messageOf } from "../../base/errors.ts";
import { clean } from "../../base/log.ts";
import { systemErrorCode } from "../../base/system-errors.ts";
import type { System } from "../../base/system.ts";
import { quoteWord } from "../../base/quote.ts";
import { describe, parseLogLine } from "./log-lines.ts";
import { whyForeign } from "../../platform/program-safety.ts";

/** Limit for engine messages in an error, in characters. */
export const maxReasonLength = 400;
export type EngineRunner = Pick<System, "run" | "isRoot" | "platform">;

/**
 * "1.6.1". Throws engine_missing if the program does not exist, engine_failed if it does not run here, if it is not an engine,
 * or if root must not run it.
 */
export async function engineVersion(binary: string, system: EngineRunner): Promise<string> {
  refuseForeign(binary, system);
  const { stdout } = await system.run([binary, "-version"], { timeoutMs: 5000 }).catch((error: unknown) => {
    throw startFailure(binary, error);
  });
  const version = /^Version: v?(\d+\.\d+\.\d+)/m.exec(stdout)?.[1];
  if (version === undefined) {
    throw new AppError("engine_failed", `${binary} does not report a version as the overlay engine does`);
  }
  return version;
}

/** `error`: why the program could not be run. */
function startFailure(binary: string, error: unknown): AppError {
  const install = "`agent overlay install`";
  if (!existsSync(binary))
    return new AppError("engine_missing", `There is no overlay engine at ${binary}`, {
      cause: error,
      hint: `Install one with ${install}.`,
    });
  const code = error instanceof AppError ? systemErrorCode(error.cause) : undefined;
  // ENOENT although the file exists: the system lacks the loader or the interpreter that the file names.
  if (code === "ENOEXEC" || code === "ENOENT")
    return new AppError(
      "engine_failed",
      `The overlay engine ${binary} is not built for this system and processor`,
      {
        cause: error,
        hint: `Install another one with ${install}.`,
      },
    );
  return new AppError("engine_failed", messageOf(error), {
    cause: error,
    hint: `Make the overlay engine executable (chmod 755 ${quoteWord(binary)}), or install another one with ${install}.`,
  });
}

/** Caches the version of an engine until its file changes. */
export function rememberVersions(system: EngineRunner): (engine: string) => Promise<string> {
  const versions = new Map<string, Promise<string>>();
  return (engine) => {
    const { dev, ino, mtimeMs } = statSync(engine);
    // The key has no path: the same engine may be seen as its file and in /proc, where paths are reused.
    const key = `${dev} ${ino} ${mtimeMs}`;
    const version = versions.get(key) ?? engineVersion(engine, system);
    versions.set(key, version);
    // Do not cache failures.
    version.catch(() => versions.delete(key));
    return version;
  };
}

/** Throws for versions that must not run: too old, or with a vulnerability that no configuration avoids. */
export function refuseEngineVersion(version: string): void {
  const engine = parseEngineVersion(version);
  if (isOlderThan(engine, oldestEngine)) {
    const oldest = oldestEngine.join(".");
    throw new AppError("engine_failed", `The overlay engine is ${version}; ${oldest} or later is needed`, {
      hint: "Update it with `agent overlay update`.",
    });
  }
  if (isRefusedEngine(engine)) {
    const ids = advisoriesFor(version).map(({ id }) => id);
    throw new AppError("engine_failed", `The overlay engine ${version} is vulnerable (${ids.join(", ")})`, {
      hint: "Update it with `agent overlay update`.",
    });
  }
}

/**
 * Runs the engine's test of a configuration. Its output contains the whole configuration, even inline private keys, so
 * only the message of the error is used. Throws bad_configuration. `name`: what the error says is refused.
 */
export async function testConfig(
  binary: string,
  configPath: string,
  system: EngineRunner,
  name = configPath,
): Promise<void> {
  refuseForeign(binary, system);
  const result = await system.run([binary, "-test", "-config", configPath], { timeoutMs: 20_000 });
  if (result.status === 0) return;
  const reason = result.timedOut ? "the test did not end" : testError(result.stdout + result.stderr);
  throw new AppError("bad_configuration", `The overlay engine refuses ${name}: ${reason}`);
}

/** Why the test failed: the engine's last error, or the line of a panic. */
function testError(output: string): string {
  const lines = output.split("\n").filter((line) => line.trim() !== "");
  const last = parseLogLine(lines.at(-1) ?? "");
  const plain = lines.find((line) => /^(panic: |failed to load config: )/.test(line));
  const text = last?.level === "error" || last?.level === "fatal" ? describe(last) : plain;
  return clean(text ?? "it gives no reason", maxReasonLength);
}

/** Throws engine_failed if root must not run this file: other users could replace it. */
function refuseForeign(binary: string, system: EngineRunner): void {
  const why = whyForeign(binary, system.isRoot, system);
  if (why === undefined) return;
  throw new AppError("engine_failed", `Root must not run the overlay engine ${binary}: ${why}`, {
    hint: "Allow only root to write there (chown root, chmod go-w), then try again.",
  });
}
