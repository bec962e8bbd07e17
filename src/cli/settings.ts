// The global flags, and the settings that a command reads from them.

import { defaultPlaces } from "../brand.ts";
import type { LogOptions } from "../base/log.ts";
import { readPinnedEngine } from "../engine/pinned-engine.ts";
import { takesEscapes, type System } from "../base/system.ts";
import { switchFlag, valueFlag, type Flags, type Values } from "./values.ts";

/** The global flags, with the defaults of this machine. */
export function globalFlags(system: Pick<System, "platform" | "env">): Flags {
  const places = defaultPlaces(system.platform, system.env);
  return {
    verbose: switchFlag("Log debug messages, too", { alias: "v" }),
    "log-file": valueFlag("FILE", "Append log lines to this file instead of standard error"),
    "log-format": valueFlag("text|json", "Format of log lines", { default: "text" }),
    "dry-run": switchFlag("Print what would change, in order, and change nothing"),
    json: switchFlag("Print the result as one JSON object"),
    "no-color": switchFlag("Print no colors (like NO_COLOR or TERM=dumb)"),
    "config-root": valueFlag("DIR", "Directory with one subdirectory per organization", {
      default: places.configRoot,
    }),
    "ipc-mode": valueFlag("socket|pipe", "Run the daemon"),
    "socket-path": valueFlag("PATH", "Unix socket of the daemon", { default: places.socketPath }),
    "pipe-name": valueFlag("NAME", "Named pipe of the daemon (Windows)", { default: places.pipeName }),
    "state-db-path": valueFlag("FILE", "State database of the daemon", { default: places.stateDb }),
    autostart: switchFlag("Start all organizations when the daemon starts", {
      default: places.autostart,
      negativeDescription: "Start none of them",
    }),
    "overlay-binary": valueFlag("PATH", "Path of the overlay engine", { default: places.overlayBinary }),
    help: switchFlag("Show help", { alias: "h" }),
  };
}

/** Global flags that only the daemon, and commands that talk to it, read. */
export const daemonFlags: readonly string[] = [
  "ipc-mode",
  "socket-path",
  "pipe-name",
  "state-db-path",
  "autostart",
];

export type Settings = {
  verbose: boolean;
  logFile: string | undefined;
  logFormat: "text" | "json";
  dryRun: boolean;
  json: boolean;
  color: boolean;
  configRoot: string;
  ipcMode: "socket" | "pipe";
  socketPath: string;
  pipeName: string;
  stateDb: string;
  autostart: boolean;
  overlayBinary: string;
  /** --overlay-binary was given, now or when the services were installed, so no other path is tried. */
  overlayBinaryGiven: boolean;
};

export function readSettings(values: Values, system: Pick<System, "platform" | "env" | "stdout">): Settings {
  const places = defaultPlaces(system.platform, system.env);
  const { env } = system;
  const configRoot = values.text("config-root");
  const engine = once(() => values.text("overlay-binary") ?? readPinnedEngine());
  return {
    verbose: values.on("verbose"),
    logFile: values.text("log-file"),
    logFormat: values.choice("log-format", ["text", "json"]) ?? "text",
    dryRun: values.on("dry-run"),
    json: values.on("json"),
    // A getter: looking for a terminal loads a module, and most commands never use colors.
    get color() {
      if (values.on("no-color") || (env["NO_COLOR"] ?? "") !== "") return false;
      return takesEscapes(system.stdout, env);
    },
    configRoot: configRoot === undefined ? places.configRoot : absolute(configRoot),
    ipcMode: values.choice("ipc-mode", ["socket", "pipe"]) ?? places.ipcMode,
    socketPath: values.text("socket-path") ?? places.socketPath,
    pipeName: values.text("pipe-name") ?? places.pipeName,
    stateDb: values.text("state-db-path") ?? places.stateDb,
    autostart: values.text("autostart") === undefined ? places.autostart : values.on("autostart"),
    // Getters: only commands that need the engine read the units.
    get overlayBinary() {
      return engine() ?? places.overlayBinary;
    },
    get overlayBinaryGiven() {
      return engine() !== undefined;
    },
  };
}

/** Reads at the first call only, also if the value is undefined. */
function once<T>(read: () => T): () => T {
  let known: { value: T } | undefined;
  return () => (known ??= { value: read() }).value;
}

/** Log lines as the flags say: to standard error or a file. */
export function logOptions(
  { verbose, logFile, logFormat, dryRun }: Settings,
  { stderr, now }: Pick<System, "stderr" | "now">,
): LogOptions {
  // A plan changes nothing, so its log lines go to standard error.
  const file = logFile === undefined || dryRun ? {} : { file: logFile };
  return { verbose, ...file, format: logFormat, write: stderr.write, now, stamped: false };
}

/** Absolute: the path is written into files and units, which are read from other directories. */
function absolute(path: string): string {
  // Loaded late: node:path costs a tenth of an empty start, and most paths are absolute.
  if (path.startsWith("/")) return path;
  const { resolve }: typeof import("node:path") = require("node:path");
  return resolve(path);
}
