// The daemon as a launchd job: its property list (launchd.plist(5)) and the changes that install or remove it. Must not
// run programs or write files; machine-changes.ts does that.

import { brand, defaultPlaces } from "../brand.ts";
import { AppError } from "../base/errors.ts";
import type { Change } from "./machine-changes.ts";
import { daemonArgs, placesOn, type DaemonPlaces, type Machine } from "./daemon-args.ts";

export type LaunchdPlaces = DaemonPlaces & { executable: string };

export const plistPath = `/Library/LaunchDaemons/${brand.launchdLabel}.plist`;
const logFile = `/var/log/${brand.id}.log`;
const launchctl = "/bin/launchctl";
const job = `system/${brand.launchdLabel}`;

/** Engines run in their own sessions and survive a crash of the daemon. A stop gives them 25 s to end. */
export function launchdPlist(places: LaunchdPlaces): string {
  return plist({
    Label: brand.launchdLabel,
    ProgramArguments: [
      absolute(places.executable),
      "--ipc-mode",
      "socket",
      "--log-file",
      logFile,
      ...daemonArgs(places, "darwin").map((arg) => (arg.startsWith("--") ? arg : absolute(arg))),
    ],
    RunAtLoad: true,
    KeepAlive: true,
    ThrottleInterval: 10,
    ExitTimeOut: 25,
    AbandonProcessGroup: true,
    Umask: 0o077,
    EnvironmentVariables: { DO_NOT_TRACK: "1" },
    // Gets output before the log is open.
    StandardErrorPath: logFile,
  });
}

/**
 * Installs or updates the job. `present` is the installed file. If it is up to date, the job is only started: writing the same file
 * changes nothing, and a plan shows it as unchanged.
 */
export function launchdInstallation(
  places: DaemonPlaces,
  system: Machine,
  present: string | undefined,
): Change[] {
  const content = launchdPlist(placesOn("darwin", places, system));
  const file: Change = { change: "file", path: plistPath, content, mode: 0o644 };
  const start = run("kickstart", job);
  if (present === content) return [file, start];
  return [
    // The group whose members may ask the daemon. The command fails if it exists.
    { change: "run", argv: ["/usr/sbin/dseditgroup", "-o", "create", brand.id], mayFail: true },
    ...(present === undefined ? [] : [{ ...run("bootout", job), mayFail: true as const }]),
    file,
    run("enable", job),
    run("bootstrap", "system", plistPath),
    start,
  ];
}

/** The new daemon takes over the engines of the killed one. */
export function launchdRestart(present: string | undefined): Change[] {
  return present === undefined ? [] : [run("kickstart", "-k", job)];
}

/** The config root of an installed job; undefined without one. */
export function rootOfPlist(present: string | undefined): string | undefined {
  if (present === undefined) return undefined;
  const [, root] = /<string>--config-root<\/string>\s*<string>([^<]*)<\/string>/.exec(present) ?? [];
  return root === undefined ? defaultPlaces("darwin", {}).configRoot : unescaped(root);
}

/** Stops and removes the job. On launchd's SIGTERM the daemon stops its engines. */
export function launchdRemoval(present: string | undefined): Change[] {
  if (present === undefined) return [];
  return [
    { ...run("bootout", job), mayFail: true },
    { change: "remove", path: plistPath },
  ];
}

function run(...words: string[]): Change & { change: "run" } {
  return { change: "run", argv: [launchctl, ...words] };
}

type PlistValue = string | number | boolean | readonly string[] | Readonly<Record<string, string>>;

/** An XML property list. */
function plist(entries: Record<string, PlistValue>): string {
  const lines = Object.entries(entries).map(([key, value]) => `  <key>${key}</key>\n${valueText(value)}`);
  return [
    '<?xml version="1.0" encoding="UTF-8"?>\n',
    '<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">\n',
    `<!-- Written by ${brand.executable} install-launchd, which replaces it. -->\n`,
    `<plist version="1.0">\n<dict>\n${lines.join("")}</dict>\n</plist>\n`,
  ].join("");
}

function valueText(value: PlistValue): string {
  if (typeof value === "boolean") return `  <${value}/>\n`;
  if (typeof value === "number") return `  <integer>${value}</integer>\n`;
  if (typeof value === "string") return `  <string>${escaped(value)}</string>\n`;
  if (isList(value)) {
    const items = value.map((each) => `    <string>${escaped(each)}</string>\n`);
    return `  <array>\n${items.join("")}  </array>\n`;
  }
  const pairs = Object.entries(value).map(
    ([key, each]) => `    <key>${key}</key>\n    <string>${escaped(each)}</string>\n`,
  );
  return `  <dict>\n${pairs.join("")}  </dict>\n`;
}

function isList(value: PlistValue): value is readonly string[] {
  return Array.isArray(value);
}

function escaped(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

function unescaped(text: string): string {
  return text.replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&amp;", "&");
}

/** launchd needs absolute paths, and XML does not allow control characters. */
function absolute(path: string): string {
  // oxlint-disable-next-line no-control-regex
  if (path.startsWith("/") && !/[\u0000-\u001f]/.test(path)) return path;
  throw new AppError("usage", `A launchd job needs absolute paths without control characters, not "${path}"`);
}
