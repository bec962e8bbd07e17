// The daemon as a scheduled task that starts with Windows: its XML (Task Scheduler schema 1.2), and the changes that
// install or remove it. It cannot be a service, because Bun has no interface to the service control manager.

import { existsSync } from "node:fs";
import { posix, win32 } from "node:path";
import { brand, defaultPlaces } from "../../brand.ts";
import { readTextIfThere } from "../../base/files.ts";
import type { Change } from "../machine-changes.ts";
import { daemonArgs, placesOn, type DaemonPlaces, type Machine } from "../daemon-args.ts";

type TaskPlaces = DaemonPlaces & { executable: string };
const taskFileName = "task.xml";
type Env = Record<string, string | undefined>;

/**
 * Runs as SYSTEM from boot without a time limit, also on battery. Restarts one minute after a crash. Priority 5 is that of usual
 * programs; a task has 7 by default, which is lower.
 */
export function taskXml(places: TaskPlaces, env: Env): string {
  const logFile = beside(places.stateDb, "daemon.log");
  const flags = ["--ipc-mode", "pipe", "--log-file", logFile, ...daemonArgs(places, "win32", env)];
  const args = flags.map(quoted).join(" ");
  return `<Task version="1.2" xmlns="http://schemas.microsoft.com/windows/2004/02/mit/task">
  <RegistrationInfo>
    <Description>${brand.title}: daemon. Written by ${brand.executable} install-tap, which replaces it.</Description>
  </RegistrationInfo>
  <Triggers>
    <BootTrigger>
      <Enabled>true</Enabled>
    </BootTrigger>
  </Triggers>
  <Principals>
    <Principal id="Author">
      <UserId>S-1-5-18</UserId>
      <RunLevel>HighestAvailable</RunLevel>
    </Principal>
  </Principals>
  <Settings>
    <MultipleInstancesPolicy>IgnoreNew</MultipleInstancesPolicy>
    <DisallowStartIfOnBatteries>false</DisallowStartIfOnBatteries>
    <StopIfGoingOnBatteries>false</StopIfGoingOnBatteries>
    <StartWhenAvailable>true</StartWhenAvailable>
    <ExecutionTimeLimit>PT0S</ExecutionTimeLimit>
    <Priority>5</Priority>
    <RestartOnFailure>
      <Interval>PT1M</Interval>
      <Count>999</Count>
    </RestartOnFailure>
  </Settings>
  <Actions Context="Author">
    <Exec>
      <Command>${escaped(places.executable)}</Command>
      <Arguments>${escaped(args)}</Arguments>
    </Exec>
  </Actions>
</Task>
`;
}

/** The copy of the task's XML, which shows whether the installed task is up to date: equal only after `/create`. */
type TaskFile = { file: string; present: string | undefined };

function taskFile(places: DaemonPlaces, system: Machine): TaskFile {
  const { stateDb } = placesOn("win32", places, system);
  const file = beside(stateDb, taskFileName);
  return { file, present: readTextIfThere(file) };
}

function beside(path: string, name: string): string {
  const { dirname, join } = path.startsWith("/") ? posix : win32;
  return join(dirname(path), name);
}

/** The config root of the installed task; undefined without one. */
export function rootOfTask(places: DaemonPlaces, system: Machine): string | undefined {
  const { present } = taskFile(places, system);
  return present === undefined ? undefined : rootIn(present, system.env);
}

/** The config root in the XML of a task. */
export function rootIn(task: string, env: Env): string {
  const [, args = ""] = /<Arguments>([^<]*)<\/Arguments>/.exec(task) ?? [];
  const text = args.replace(/&#(\d{1,7});/g, (_, code: string) => String.fromCodePoint(Number(code)));
  const [, inQuotes, plain] = /(?:^| )--config-root (?:"([^"]*)"|(\S+))/.exec(text) ?? [];
  const [, path = "", end = ""] = /^(.*?)(\\*)$/.exec(inQuotes ?? "") ?? [];
  // A closing quote has its backslashes doubled.
  const written = inQuotes === undefined ? plain : path + end.slice(end.length / 2);
  return written ?? defaultPlaces("win32", env).configRoot;
}

/** Installs or updates the task. If it is up to date, only starts it. */
export function taskInstallation(places: DaemonPlaces, system: Machine): Change[] {
  const { env } = system;
  const { file, present } = taskFile(places, system);
  const content = taskXml(placesOn("win32", places, system), env);
  const write = (text: string): Change => ({ change: "file", path: file, content: text, mode: 0o644 });
  const changes: Change[] = [];
  if (present !== content) {
    // The line feed marks the copy until the task is created: a later run tries again after a failure.
    changes.push(write(`${content}\n`), schtasks(env, "/create", "/tn", brand.id, "/xml", file, "/f"));
    // A running task would keep its former arguments.
    if (present !== undefined) changes.push({ ...schtasks(env, "/end", "/tn", brand.id), mayFail: true });
  }
  return [...changes, write(content), schtasks(env, "/run", "/tn", brand.id)];
}

/** The new daemon takes over the engines of the killed one. */
export function taskRestart(places: { stateDb: string }, env: Env): Change[] {
  if (!existsSync(beside(places.stateDb, taskFileName))) return [];
  return [
    { ...schtasks(env, "/end", "/tn", brand.id), mayFail: true },
    schtasks(env, "/run", "/tn", brand.id),
  ];
}

/** Stop the daemon first: ending the task kills it, and leaves its engines running. */
export function taskRemoval(places: DaemonPlaces, system: Machine): Change[] {
  const { env } = system;
  const { file, present } = taskFile(places, system);
  if (present === undefined) return [];
  return [
    { ...schtasks(env, "/end", "/tn", brand.id), mayFail: true },
    schtasks(env, "/delete", "/tn", brand.id, "/f"),
    { change: "remove", path: file },
  ];
}

function schtasks(env: Env, ...words: string[]): Change & { change: "run" } {
  const program = `${env["SystemRoot"] ?? "C:\\Windows"}\\System32\\schtasks.exe`;
  return { change: "run", argv: [program, ...words] };
}

/**
 * One argument for CommandLineToArgvW: doubles backslashes before the closing quote. Windows paths contain no quotes.
 */
function quoted(arg: string): string {
  if (/^[\w:\\.=-]+$/.test(arg)) return arg;
  let end = arg.length;
  while (arg.charAt(end - 1) === "\\") end -= 1;
  return `"${arg}${arg.slice(end)}"`;
}

/** Writes non-ASCII letters as numbers, because Windows may read the file in any encoding. */
function escaped(text: string): string {
  return text.replace(/[&<>"]|[^ -~]/gu, (each) => `&#${each.codePointAt(0) ?? 0};`);
}
