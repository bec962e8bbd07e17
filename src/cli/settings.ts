// The global flags of the specification, and what they become once a command runs.

import { defaultPlaces } from "../brand.ts";
import type { System } from "../system.ts";
import type { Flags, Values } from "./values.ts";

/** Global flags, with the defaults of this machine for help. */
export function globalFlags(system: Pick<System, "platform" | "env">): Flags {
  const places = defaultPlaces(system.platform, system.env);
  return {
    verbose: { type: "boolean", alias: "v", description: "Debug logging" },
    "log-file": { type: "string", valueHint: "FILE", description: "Write logs to this file" },
    "dry-run": { type: "boolean", description: "Print what would be done, in order, and change nothing" },
    json: { type: "boolean", description: "One JSON object on standard output" },
    "no-color": { type: "boolean", description: "No colours (NO_COLOR and TERM=dumb do the same)" },
    "config-root": {
      type: "string",
      valueHint: "DIR",
      default: places.configRoot,
      description: "Where the organizations' directories lie",
    },
    "ipc-mode": { type: "string", valueHint: "socket|pipe", description: "Run as the daemon" },
    "socket-path": {
      type: "string",
      valueHint: "PATH",
      default: places.socketPath,
      description: "The daemon's Unix socket",
    },
    "pipe-name": {
      type: "string",
      valueHint: "NAME",
      default: places.pipeName,
      description: "The daemon's named pipe (Windows)",
    },
    "state-db-path": {
      type: "string",
      valueHint: "FILE",
      default: places.stateDb,
      description: "The daemon's state database",
    },
    autostart: {
      type: "boolean",
      default: places.autostart,
      description: "Start the configured teams when the daemon starts",
    },
    "overlay-binary": {
      type: "string",
      valueHint: "PATH",
      default: places.overlayBinary,
      description: "The overlay engine",
    },
    help: { type: "boolean", alias: "h", description: "Show help" },
  };
}

export type Settings = {
  verbose: boolean;
  logFile: string | undefined;
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
  /** The overlay binary was named by a person, so no other place is tried. */
  overlayBinaryGiven: boolean;
};

export function readSettings(values: Values, system: Pick<System, "platform" | "env" | "stdout">): Settings {
  const places = defaultPlaces(system.platform, system.env);
  const { env } = system;
  const configRoot = values.text("config-root");
  return {
    verbose: values.on("verbose"),
    logFile: values.text("log-file"),
    dryRun: values.on("dry-run"),
    json: values.on("json"),
    // Asked late: to know a terminal costs a module, and most commands never colour anything.
    get color() {
      if (values.on("no-color") || (env["NO_COLOR"] ?? "") !== "" || env["TERM"] === "dumb") return false;
      return system.stdout.isTerminal;
    },
    configRoot: configRoot === undefined ? places.configRoot : absolute(configRoot),
    ipcMode: values.choice("ipc-mode", ["socket", "pipe"]) ?? places.ipcMode,
    socketPath: values.text("socket-path") ?? places.socketPath,
    pipeName: values.text("pipe-name") ?? places.pipeName,
    stateDb: values.text("state-db-path") ?? places.stateDb,
    autostart: values.text("autostart") === undefined ? places.autostart : values.on("autostart"),
    overlayBinary: values.text("overlay-binary") ?? places.overlayBinary,
    overlayBinaryGiven: values.text("overlay-binary") !== undefined,
  };
}

/** A path that gets into files and units that others read from elsewhere. */
function absolute(path: string): string {
  // node:path costs a tenth of an empty start, and most paths are given whole.
  return path.startsWith("/") ? path : process.getBuiltinModule("node:path").resolve(path);
}
