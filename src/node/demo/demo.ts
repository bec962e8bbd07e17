// `agent demo` from outside: finds or installs what it needs, starts itself again inside fresh namespaces (of a
// user's own where we are not root), and removes what was made. The play itself is stage.ts.

import { accessSync, constants, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { brand } from "../../brand.ts";
import { AppError } from "../../errors.ts";
import type { Log } from "../../log.ts";
import type { Step } from "../../plan.ts";
import { findPackageManager } from "../../platform/packages.ts";
import { childEnvironment, type System } from "../../system.ts";
import { findEngine, requireEngine } from "../engine/overlay.ts";
import { planEngine } from "../engine/overlay-install.ts";
import { requireProgram, systemProgram } from "./network.ts";
import { playDemo, type Timeline } from "./stage.ts";

export type DemoSettings = { overlayBinary: string; overlayBinaryGiven: boolean; configRoot: string };

export type DemoDeps = { system: System; log: Log; say(text: string): void };

/** Set for the second start of ourselves, to the directory that the first made. */
const insideVariable = "OVERLAY_DEMO_DIRECTORY";

/** Program → packages that bring it, by package manager (the name that most of them use stands for the rest). */
const programs: readonly { name: string; packages: Record<string, string> }[] = [
  { name: "ip", packages: { dnf: "iproute", other: "iproute2" } },
  { name: "ping", packages: { apt: "iputils-ping", other: "iputils" } },
];

/** The directory that we play in if this is the second start, else undefined. */
export function insideDirectory(system: Pick<System, "env">): string | undefined {
  return system.env[insideVariable];
}

/** What is missing on this machine, as the commands that bring it. */
export function planMissing(settings: DemoSettings, system: System): Step[] {
  const manager = findPackageManager(missingPackages());
  const tools = missingPackages().length === 0 ? [] : (manager?.install ?? []);
  return [
    ...tools.map((argv): Step => ({ step: "run", argv })),
    ...(findEngine(settings, system) === undefined ? planEngine({ source: "auto" }, settings, system) : []),
  ];
}

function missingPackages(): string[] {
  const manager = findPackageManager()?.name ?? "";
  return programs
    .filter(({ name }) => systemProgram(name) === undefined)
    .map(({ name, packages }) => packages[manager] ?? packages["other"] ?? name);
}

/** Installs what planMissing names. The engine through our own command, as a person would. */
export async function installMissing(settings: DemoSettings, { system, say }: DemoDeps): Promise<void> {
  const packages = missingPackages();
  const tools = packages.length === 0 ? [] : (findPackageManager(packages)?.install ?? []);
  const engine = ["overlay", "install", "--overlay-binary", settings.overlayBinary];
  const commands =
    findEngine(settings, system) === undefined ? [...tools, [system.executable, ...engine]] : [...tools];
  for (const argv of commands) {
    say(`installing   ${argv.join(" ")}`);
    const env = { ...childEnvironment(system.env), DEBIAN_FRONTEND: "noninteractive" };
    const result = await system.run(argv, { timeoutMs: 600_000, env });
    if (result.status === 0 || argv.includes("update")) continue;
    throw new AppError("failed", `${argv.join(" ")}: ${result.stderr.trim().split("\n").at(-1) ?? ""}`);
  }
}

/** Starts ourselves inside fresh namespaces and waits; its exit status. Its output is ours. */
export async function enterNamespaces(
  settings: DemoSettings,
  flags: readonly string[],
  { system }: DemoDeps,
): Promise<number> {
  const engine = requireEngine(settings, system);
  checkTun(system);
  // With a process namespace, nothing that the demo starts can outlive it, however it ends.
  // Nothing is mounted but its /proc, so the propagation of mounts may stay as it is: a chroot could not change it.
  const flagsOfUnshare = [
    "--net",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
    "--propagation",
    "unchanged",
  ];
  const unshare = [requireProgram("unshare"), ...flagsOfUnshare];
  if (!system.isRoot) unshare.push("--user", "--map-root-user");
  const probe = await system.run([...unshare, requireProgram("true")]);
  if (probe.status !== 0) {
    throw new AppError("os_permission", `The kernel gives us no namespaces: ${probe.stderr.trim()}`, {
      hint: system.isRoot ? "Containers need to be privileged for the demo." : "Run it as root (sudo).",
    });
  }
  const directory = mkdtempSync(join(tmpdir(), `${brand.id}-demo-`));
  const argv = [system.executable, "demo", "--overlay-binary", engine.path, ...flags];
  const child = Bun.spawn([...unshare, ...argv], {
    // Nothing else: no AGENT_ variable steers what is called, and no session bus leads to a person's keyring.
    env: { PATH: system.env["PATH"] ?? "", LC_ALL: "C", [insideVariable]: directory },
    // The child ends when its standard input does: also when we are killed.
    stdin: "pipe",
    stdout: "inherit",
    stderr: "inherit",
  });
  const stop = () => void child.stdin.end();
  const signals = ["SIGINT", "SIGTERM", "SIGHUP"] as const;
  for (const signal of signals) process.on(signal, stop);
  try {
    return await child.exited;
  } finally {
    for (const signal of signals) process.off(signal, stop);
    rmSync(directory, { recursive: true, force: true });
  }
}

/** Inside the namespaces: plays, and stops early at a signal or when whoever started us is gone. */
export async function playInside(
  directory: string,
  settings: DemoSettings,
  deps: DemoDeps,
): Promise<Timeline> {
  const stop = new AbortController();
  const abort = () => stop.abort();
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, abort);
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
