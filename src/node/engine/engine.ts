// What is known of the overlay engine as a program: its version, its configuration test, what its log says (all
// versions from 1.6.1 on), and how a running one is reloaded. Starting and stopping it belongs to others.

import { statSync } from "node:fs";
import {
  advisoriesFor,
  isOlderThan,
  isRefusedEngine,
  oldestEngine,
  parseEngineVersion,
} from "../../engine-features.ts";
import { AppError } from "../../errors.ts";
import { clean } from "../../log.ts";
import { takesHangUp } from "../../platform/processes.ts";
import type { System } from "../../system.ts";
import type { LogSource, LogTail } from "./engine-log.ts";
import type { Stopping } from "../files/orders.ts";
import { isAlive, signalProcess, type ProcessIdentity } from "../../platform/process-identity.ts";

/** How to reach an organization's running engine: made by the daemon, systemd, the demo, or "nothing runs". */
export type EngineControl = {
  running(): Promise<boolean>;
  /** Resolves when the engine's log shows that this reload was applied; AppError("engine_failed") else. */
  reload(): Promise<void>;
  /** Resolves when the engine says that it is active. */
  restart(): Promise<void>;
  /** Rejects if the engine ends within `ms`. */
  alive(ms: number): Promise<void>;
};

/** An engine that orders of the control plane may stop and start. */
export type TeamControl = EngineControl & Stopping;

/** So much of the engine's own words goes into an error. */
const maxReasonLength = 400;
/** Longer lines of its log are cut before they are read: the engine's own are a few hundred characters long. */
const maxLineLength = 16_384;
/** Longest wait for a reload to show; 20,000 blocklist entries take 0.3 s. */
const reloadTimeoutMs = 10_000;
const readyTimeoutMs = 15_000;
const lookEveryMs = 5;
/** Without evidence in the log (its level is above info), an engine that lives this long counts as ready. */
const silentMs = 1500;

/** "1.6.1". Throws engine_missing where there is no such program, engine_failed where it is another one. */
export async function engineVersion(binary: string, system: Pick<System, "run">): Promise<string> {
  let text: string;
  try {
    const result = await system.run([binary, "-version"], { timeoutMs: 5000 });
    text = result.stdout;
  } catch (error) {
    throw new AppError("engine_missing", `There is no overlay engine at ${binary}`, {
      cause: error,
      hint: "Install one with `agent overlay install`.",
    });
  }
  const version = /^Version: v?(\d+\.\d+\.\d+)/m.exec(text)?.[1];
  if (version === undefined) {
    throw new AppError("engine_failed", `${binary} does not report a version as the overlay engine does`);
  }
  return version;
}

/** An engine is asked once for its version, and again when its file has changed. */
export function rememberVersions(system: Pick<System, "run">): (engine: string) => Promise<string> {
  const known = new Map<string, Promise<string>>();
  return (engine) => {
    const { ino, mtimeMs } = statSync(engine);
    const key = `${engine} ${ino} ${mtimeMs}`;
    const version = known.get(key) ?? engineVersion(engine, system);
    known.set(key, version);
    // No answer is none to remember.
    version.catch(() => known.delete(key));
    return version;
  };
}

/** Versions that must not run: too old, or with a published hole that no configuration closes. */
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
 * The engine's own check of a configuration. Its output holds the whole configuration, inline private keys too, so
 * only the error's own words are used. Throws bad_configuration.
 */
export async function testConfig(
  binary: string,
  configPath: string,
  system: Pick<System, "run">,
): Promise<void> {
  const result = await system.run([binary, "-test", "-config", configPath], { timeoutMs: 20_000 });
  if (result.status === 0) return;
  const reason = result.timedOut ? "the test did not end" : testError(result.stdout + result.stderr);
  throw new AppError("bad_configuration", `The overlay engine refuses ${configPath}: ${reason}`);
}

function testError(output: string): string {
  const lines = output.split("\n").filter((line) => line.trim() !== "");
  const last = parseLogLine(lines.at(-1) ?? "");
  const plain = lines.find((line) => /^(panic: |failed to load config: )/.test(line));
  const text = last?.level === "error" || last?.level === "fatal" ? describe(last) : plain;
  return clean(text ?? "it gives no reason", maxReasonLength);
}

export type EngineLine = {
  /** RFC 3339 as the engine wrote it; undefined where timestamps are turned off. */
  time: string | undefined;
  level: "trace" | "debug" | "info" | "warn" | "error" | "fatal";
  msg: string;
  fields: Record<string, unknown>;
};

/** One line of the engine's log, JSON or text, of either of its two loggers; undefined if it is something else. */
export function parseLogLine(line: string): EngineLine | undefined {
  const fields = line.startsWith("{") ? jsonFields(line) : textFields(line.slice(0, maxLineLength));
  const msg = fields?.["msg"];
  if (fields === undefined || typeof msg !== "string") return undefined;
  const { time, level, msg: _, ...rest } = fields;
  return {
    time: typeof time === "string" ? time : undefined,
    level: readLevel(String(level)),
    msg,
    fields: rest,
  };
}

/** "Cannot load …: reason", as a person reads it. */
export function describe(line: EngineLine): string {
  const reason = line.fields["error"];
  return typeof reason === "string" ? `${line.msg}: ${reason}` : line.msg;
}

function jsonFields(line: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(line);
    return typeof value === "object" && value !== null ? { ...value } : undefined;
  } catch {
    // Half a line after a crash: not a log line.
    return undefined;
  }
}

/** key=value and key="quoted value", as both loggers write their text form. */
function textFields(line: string): Record<string, unknown> | undefined {
  const fields: Record<string, unknown> = {};
  for (const [, key = "", quoted, bare] of line.matchAll(
    /(?<![\w.])([\w.]+)=(?:"((?:[^"\\]|\\.)*)"|(\S*))/g,
  )) {
    fields[key] =
      quoted === undefined ? bare : quoted.replace(/\\(.)/g, (_, char) => (char === "n" ? "\n" : char));
  }
  return fields["level"] === undefined ? undefined : fields;
}

function readLevel(text: string): EngineLine["level"] {
  const level = text.toLowerCase();
  if (level.startsWith("debug-")) return "trace";
  if (level.startsWith("warn")) return "warn";
  if (level === "panic" || level === "fatal") return "fatal";
  return level === "error" || level === "debug" || level === "trace" ? level : "info";
}

/** Every version says this once the interface is up and SIGHUP no longer kills. */
export function isReady(line: EngineLine): boolean {
  return line.msg === "Nebula interface is active";
}

/**
 * What a line says of a reload. Every version writes "begun" first, then, whatever changed and also if nothing did,
 * "applied" for certificates and key. There is no line for the end.
 */
export function reloadEvidence(line: EngineLine): "begun" | "applied" | "failed" | undefined {
  if (line.msg === "Caught HUP, reloading config") return "begun";
  if (/^Client cert(ificate\(s\))? refreshed from disk$/.test(line.msg)) return "applied";
  return line.level === "error" && failedReload.test(line.msg) ? "failed" : undefined;
}

/** Each part of the engine reloads by itself and words its own failure; peers' errors in between are not ours. */
const failedReload =
  /reload|refresh|reconfigure|configure the logger|load client cert|load ca from config|in new (v\d )?cert|Removing a V2 cert|marshaling (new|old) config|tun mtu|tun tx queue/i;

/** Waits for the ready line. `alive` is asked at each look; throws engine_failed with the engine's own last error. */
export async function waitUntilReady(
  tail: LogTail,
  alive: () => boolean,
  options: { silent: boolean },
  system: Pick<System, "sleep">,
): Promise<void> {
  let lastError = "";
  const wait = options.silent ? silentMs : readyTimeoutMs;
  for (let waited = 0; waited < wait; waited += lookEveryMs) {
    for (const line of tail.read().map(parseLogLine)) {
      if (line === undefined) continue;
      if (isReady(line)) return;
      if (line.level === "error" || line.level === "fatal")
        lastError = clean(describe(line), maxReasonLength);
    }
    if (!alive())
      throw new AppError("engine_failed", `The overlay engine ended: ${lastError || "no reason given"}`);
    await system.sleep(lookEveryMs);
  }
  if (!options.silent)
    throw new AppError("engine_failed", "The overlay engine did not become active in time");
}

export type RunningEngine = {
  /** The engine's process at this moment, undefined if none runs. */
  process(): ProcessIdentity | undefined;
  log: LogSource;
  /** Resolves when the new engine is active. */
  restart(): Promise<void>;
  /** The log's level is above info: nothing will be said. */
  silent?: () => boolean;
};

/** Control over an engine that is known by its process and its log. */
export function controlEngine(
  engine: RunningEngine,
  system: Pick<System, "sleep" | "platform">,
): EngineControl {
  return {
    running: async () => engine.process() !== undefined,
    // Windows has no SIGHUP.
    reload: () => (takesHangUp(system) ? reload(engine, system) : engine.restart()),
    restart: () => engine.restart(),
    alive: async (ms) => {
      const identity = engine.process();
      const lives = () => identity !== undefined && isAlive(identity);
      for (let waited = 0; lives() && waited < ms; waited += 50)
        await system.sleep(Math.min(50, ms - waited));
      if (!lives()) throw new AppError("engine_failed", "The overlay engine ended");
    },
  };
}

/** Where nothing runs, there is nothing to reload: the next start reads the new files. */
export const noEngine: EngineControl = {
  running: async () => false,
  reload: async () => {},
  restart: async () => {},
  alive: async () => {},
};

/**
 * The engine carries its reloads out one after the other and never says that one has ended. So a second SIGHUP
 * follows the first as a fence: when the log shows that it is taken up, the first is over and every complaint of it
 * is written. The second finds nothing changed.
 */
async function reload(engine: RunningEngine, system: Pick<System, "sleep">): Promise<void> {
  const identity = engine.process();
  if (identity === undefined) throw new AppError("engine_failed", "The overlay engine does not run");
  const tail = engine.log();
  const hangUp = () => {
    if (!signalProcess(identity, "SIGHUP")) throw new AppError("engine_failed", "The overlay engine ended");
  };
  hangUp();
  const seen = { begun: 0, applied: false, failure: "" };
  const silent = engine.silent?.() === true;
  for (let waited = 0; waited < (silent ? silentMs : reloadTimeoutMs); waited += lookEveryMs) {
    await system.sleep(lookEveryMs);
    for (const line of tail.read()) {
      const begunBefore = seen.begun;
      note(seen, parseLogLine(line));
      if (seen.begun === 1 && begunBefore === 0 && !silent) hangUp();
      if (seen.begun === 2) return conclude(seen);
    }
    if (!isAlive(identity)) throw new AppError("engine_failed", "The overlay engine ended while it reloaded");
  }
  if (!silent) throw new AppError("engine_failed", "The overlay engine's log shows no reload");
  conclude({ ...seen, applied: true });
}

type Seen = { begun: number; applied: boolean; failure: string };

function note(seen: Seen, line: EngineLine | undefined): void {
  const evidence = line === undefined ? undefined : reloadEvidence(line);
  if (line === undefined || evidence === undefined) return;
  if (evidence === "begun") seen.begun += 1;
  // What an earlier fence left over comes before our own begin.
  if (seen.begun !== 1) return;
  if (evidence === "applied") seen.applied = true;
  if (evidence === "failed" && seen.failure === "") seen.failure = clean(describe(line), maxReasonLength);
}

function conclude(seen: Seen): void {
  if (seen.failure !== "") {
    throw new AppError("engine_failed", `The overlay engine did not take the configuration: ${seen.failure}`);
  }
  if (!seen.applied)
    throw new AppError("engine_failed", "The overlay engine did not load its certificates anew");
}
