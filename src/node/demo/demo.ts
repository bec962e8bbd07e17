// `agent demo` outside its namespaces: finds or installs the programs it needs, starts itself again inside new namespaces
// (a user namespace without root), and removes everything. stage.ts is what happens inside.

import { accessSync, constants, mkdtempSync, rmSync } from "node:fs";
import { constants as osConstants, tmpdir } from "node:os";
import { join } from "node:path";
import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import type { Log } from "../../base/log.ts";
import type { Step } from "../../base/plan/plan.ts";
import { findPackageManager } from "../../platform/packages.ts";
import { childEnvironment, type System } from "../../base/system.ts";
import { findEngine, requireEngine } from "../engine/find-engine.ts";
import { planProvision, provideEngine, type ProvidingSettings } from "../enroll/provide-engine.ts";
import { requireProgram, systemProgram } from "./network.ts";
import { playDemo, type Timeline } from "./stage.ts";

type DemoDeps = { system: System; log: Log; say(text: string): void };

/** Set for the process inside the namespaces: the directory that the outer one created. */
const insideVariable = "OVERLAY_DEMO_DIRECTORY";

/** Packages that contain each program, by package manager; `other` is for the rest. */
const programs: readonly { name: string; packages: Record<string, string> }[] = [
  { name: "ip", packages: { dnf: "iproute", other: "iproute2" } },
  { name: "ping", packages: { apt: "iputils-ping", other: "iputils" } },
];

/** The demo's directory inside the namespaces; undefined outside. */
export function insideDirectory(system: Pick<System, "env">): string | undefined {
  return system.env[insideVariable];
}

/** The steps that install the missing programs. With `isRenewed` an old engine counts as missing, as for `agent up`. */
export async function planMissing(
  settings: ProvidingSettings,
  isRenewed: boolean,
  system: System,
): Promise<Step[]> {
  const manager = findPackageManager(missingPackages());
  const tools = missingPackages().length === 0 ? [] : (manager?.install ?? []);
  const isEnough = !isRenewed && findEngine(settings, system) !== undefined;
  return [
    ...tools.map((argv): Step => ({ step: "run", argv })),
    ...(isEnough ? [] : await planProvision(settings, system)),
  ];
}

function missingPackages(): string[] {
  const manager = findPackageManager()?.name ?? "";
  return programs
    .filter(({ name }) => systemProgram(name) === undefined)
    .map(({ name, packages }) => packages[manager] ?? packages["other"] ?? name);
}

/** Installs what `planMissing` lists. */
export async function installMissing(
  settings: ProvidingSettings,
  { system, log, say }: DemoDeps,
): Promise<void> {
  const packages = missingPackages();
  const tools = packages.length === 0 ? [] : (findPackageManager(packages)?.install ?? []);
  for (const argv of tools) {
    say(`installing   ${argv.join(" ")}`);
    const env = { ...childEnvironment(system.env), DEBIAN_FRONTEND: "noninteractive" };
    const result = await system.run(argv, { timeoutMs: 600_000, env });
    // Without a new list of packages, the installation may still succeed.
    if (result.status === 0 || argv.includes("update")) continue;
    throw new AppError("failed", `${argv.join(" ")}: ${result.stderr.trim().split("\n").at(-1) ?? ""}`);
  }
  await provideEngine(settings, { system, log });
}

/** The program that creates the namespaces, with its flags. */
function unshareCommand(system: Pick<System, "isRoot">): string[] {
  // With a pid namespace, no process of the demo can outlive it.
  // Only /proc is mounted, so mount propagation can stay unchanged: inside a chroot it cannot be changed.
  const flagsOfUnshare = [
    "--net",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
    "--propagation",
    "unchanged",
  ];
  return [
    requireProgram("unshare"),
    ...flagsOfUnshare,
    ...(system.isRoot ? [] : ["--user", "--map-root-user"]),
  ];
}

/** This program, to run inside the namespaces. */
function insideCommand(
  engine: string,
  flags: readonly string[],
  system: Pick<System, "executable">,
): string[] {
  return [system.executable, "demo", "--overlay-binary", engine, ...flags];
}

/** The plan of enterNamespaces. */
export function planDemo(settings: ProvidingSettings, flags: readonly string[], system: System): Step {
  const engine = findEngine(settings, system)?.path ?? settings.overlayBinary;
  return { step: "run", argv: [...unshareCommand(system), ...insideCommand(engine, flags, system)] };
}

/** Runs this program inside new namespaces, with our output. Returns its exit status, or that of the signal which ended it. */
export async function enterNamespaces(
  settings: ProvidingSettings,
  flags: readonly string[],
  { system }: DemoDeps,
): Promise<number> {
  const engine = requireEngine(settings, system);
  checkTun(system);
  const unshare = unshareCommand(system);
  const probe = await system.run([...unshare, requireProgram("true")]);
  if (probe.status !== 0) {
    throw new AppError("os_permission", `Cannot create namespaces: ${probe.stderr.trim()}`, {
      hint: system.isRoot ? "In a container, the demo needs a privileged one." : "Run it as root (sudo).",
    });
  }
  const directory = mkdtempSync(join(tmpdir(), `${brand.id}-demo-`));
  const child = Bun.spawn([...unshare, ...insideCommand(engine.path, flags, system)], {
    // No other variable: AGENT_ variables would change the commands, and a session bus would lead to the user's keyring.
    env: { PATH: system.env["PATH"] ?? "", LC_ALL: "C", [insideVariable]: directory },
    // The child ends when its standard input ends, so also when we are killed.
    stdin: "pipe",
    stdout: "inherit",
    stderr: "inherit",
  });
  let endedBy: NodeJS.Signals | undefined;
  const stop = (signal: NodeJS.Signals) => {
    endedBy ??= signal;
    void child.stdin.end();
  };
  const signals = ["SIGINT", "SIGTERM", "SIGHUP"] as const;
  for (const signal of signals) process.on(signal, stop);
  try {
    const status = await child.exited;
    // The status that a shell reports for a signal: scripts must not take it for a failure of the demo.
    return endedBy === undefined || status === 0 ? status : 128 + osConstants.signals[endedBy];
  } finally {
    for (const signal of signals) process.off(signal, stop);
    rmSync(directory, { recursive: true, force: true });
  }
}

/** Plays the demo inside the namespaces. Stops early at a signal or when the outer process is gone. */
export async function playInside(
  directory: string,
  settings: ProvidingSettings,
  deps: DemoDeps,
): Promise<Timeline> {
  const stop = new AbortController();
  const abort = () => stop.abort();
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, abort);
  // Standard input ends when the outer process ends it, or is gone (enterNamespaces).
  const starter = Bun.stdin.stream().getReader();
  void starter.read().then(abort, abort);
  try {
    return await playDemo(directory, settings.overlayBinary, deps, stop.signal);
  } finally {
    await starter.cancel();
    rmSync(directory, { recursive: true, force: true });
  }
}

function checkTun(system: Pick<System, "isRoot">): void {
  const device = "/dev/net/tun";
  if (system.isRoot) return;
  try {
    accessSync(device, constants.R_OK | constants.W_OK);
  } catch (error) {
    throw new AppError("os_permission", `This user cannot open ${device}`, {
      cause: error,
      hint: "Run the demo as root (sudo).",
    });
  }
}
