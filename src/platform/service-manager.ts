// What runs services on which system, and what its command is called here.

import { brand } from "../brand.ts";
import { AppError } from "../errors.ts";

export type ServiceManager = "systemd" | "launchd" | "task";

type Edge = { platform: string };

const run = brand.executable;
type Known = { manager: ServiceManager; command: string; daemon: string; start: string };

const known: Readonly<Record<string, Known>> = {
  linux: {
    manager: "systemd",
    command: "install-systemd",
    daemon: "socket",
    start: `systemctl start ${brand.id}`,
  },
  darwin: {
    manager: "launchd",
    command: "install-launchd",
    daemon: "socket",
    start: `launchctl kickstart system/${brand.launchdLabel}`,
  },
  win32: { manager: "task", command: "install-tap", daemon: "pipe", start: `schtasks /run /tn ${brand.id}` },
};

/** systemd is what runs this machine (sd_booted(3)). */
export function hasSystemd({ platform }: Edge = process): boolean {
  return platform === "linux" && process.getBuiltinModule("node:fs").existsSync("/run/systemd/system");
}

/** Undefined where nothing runs that we can give a service to: a container, another init. */
export function serviceManager(system: Edge): ServiceManager | undefined {
  const { manager } = known[system.platform] ?? {};
  return manager === "systemd" && !hasSystemd(system) ? undefined : manager;
}

/** The command that installs services here, and the words that run the daemon by hand. */
export function serviceCommand({ platform }: Edge): string {
  return `${run} ${known[platform]?.command ?? "install-systemd"}`;
}

export function daemonByHand({ platform }: Edge): string {
  return `${run} --ipc-mode ${known[platform]?.daemon ?? "socket"}`;
}

/** How a daemon that does not answer is started. */
export function daemonStartHint({ platform }: Edge = process): string {
  const start = (known[platform] ?? known["linux"])?.start;
  return `Start it: ${start}, or ${daemonByHand({ platform })} as administrator.`;
}

/** Refuses a command that belongs to another system, and names the one that belongs here. */
export function requireManager(manager: ServiceManager, { platform }: Edge): void {
  if (known[platform]?.manager === manager) return;
  const command = Object.values(known).find((each) => each.manager === manager)?.command ?? "";
  const right = known[platform]?.command;
  throw new AppError("failed", `${command} does not belong to this system (${platform})`, {
    hint: right === undefined ? "There is no such command for it." : `Here it is: ${run} ${right}`,
  });
}

/** A socket where the kernel says who calls, a pipe where its access list does: neither can stand for the other. */
export function requireIpcMode(mode: "socket" | "pipe", { platform }: Edge): void {
  const right = known[platform]?.daemon ?? "socket";
  if (mode === right) return;
  throw new AppError("usage", `--ipc-mode ${mode} is not for this system (${platform})`, {
    hint: `Here it is: ${daemonByHand({ platform })}`,
  });
}

/** Server mode is systemd's: elsewhere the daemon runs the engines, and knows one mode alone. */
export function refuseMode(mode: "server" | "desktop", { platform }: Edge): void {
  if (mode === "desktop" || known[platform]?.manager === "systemd") return;
  throw new AppError(
    "usage",
    `--mode server is for Linux; on this system (${platform}) the daemon runs the overlay`,
    {
      hint: "Leave --mode out.",
    },
  );
}
