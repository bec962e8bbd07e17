// The daemon as a scheduled task that starts with Windows: its XML (Task Scheduler schema 1.2) as a pure function, and
// what has to be done to install or remove it. A service it cannot be: Bun has no answer for the service control
// manager.

import { existsSync } from "node:fs";
import { posix, win32 } from "node:path";
import { brand } from "../brand.ts";
import { readTextIfThere } from "../files.ts";
import type { Change } from "./apply.ts";
import { daemonWords, placesOn, type DaemonPlaces, type Machine } from "./daemon-args.ts";

type TaskPlaces = DaemonPlaces & { executable: string };
const taskName = "task.xml";
type Env = Record<string, string | undefined>;

/** Runs as SYSTEM, at boot, without limit, also on battery; started again a minute after a crash. */
export function taskXml(places: TaskPlaces, env: Env): string {
  const logFile = beside(places.stateDb, "daemon.log");
  const flags = ["--ipc-mode", "pipe", "--log-file", logFile, ...daemonWords(places, "win32", env)];
  const words = flags.map(quoted).join(" ");
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
      <Arguments>${escaped(words)}</Arguments>
    </Exec>
  </Actions>
</Task>
`;
}

/** Where the task's XML is kept, so that a renewal can tell whether anything differs, and what is there. */
type TaskFile = { file: string; present: string | undefined };

function taskFile(places: DaemonPlaces, system: Machine): TaskFile {
  const { stateDb } = placesOn("win32", places, system);
  const file = beside(stateDb, taskName);
  return { file, present: readTextIfThere(file) };
}

function beside(path: string, name: string): string {
  const { dirname, join } = path.startsWith("/") ? posix : win32;
  return join(dirname(path), name);
}

/** Installs or renews; a task that is as it should be is only started if it does not run. */
export function taskInstallation(places: DaemonPlaces, system: Machine): Change[] {
  const { env } = system;
  const { file, present } = taskFile(places, system);
  const content = taskXml(placesOn("win32", places, system), env);
  const changes: Change[] = [{ change: "file", path: file, content, mode: 0o644 }];
  if (present !== content) changes.push(schtasks(env, "/create", "/tn", brand.id, "/xml", file, "/f"));
  // One that runs already would go on with its former words.
  if (present !== undefined && present !== content)
    changes.push({ ...schtasks(env, "/end", "/tn", brand.id), mayFail: true });
  return [...changes, schtasks(env, "/run", "/tn", brand.id)];
}

/** A daemon of a new version takes the engines over from the one that is killed. */
export function taskRestart(places: { stateDb: string }, env: Env): Change[] {
  if (!existsSync(beside(places.stateDb, taskName))) return [];
  return [
    { ...schtasks(env, "/end", "/tn", brand.id), mayFail: true },
    schtasks(env, "/run", "/tn", brand.id),
  ];
}

/** The daemon has been told to stop before: ending a task kills it, and leaves its engines. */
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

/** One word as CommandLineToArgvW reads it: a backslash before a quote is doubled. Paths of Windows hold no quotes. */
function quoted(word: string): string {
  return /^[\w:\\.=-]+$/.test(word) ? word : `"${word.replace(/\\+$/, "$&$&")}"`;
}

/** Letters beyond ASCII by number: the file then means the same in every encoding that Windows may take it for. */
function escaped(text: string): string {
  return text.replace(/[&<>"]|[^ -~]/gu, (each) => `&#${each.codePointAt(0) ?? 0};`);
}
