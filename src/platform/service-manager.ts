// The service manager of each system, and our command that installs services with it.

import { brand } from "../brand.ts";
import { AppError } from "../base/errors.ts";

export type ServiceManager = "systemd" | "launchd" | "task";

type Machine = { platform: string };

/** `command`: our command that installs services. `start`: the line that starts the daemon. */
type ManagerFacts = {
  manager: ServiceManager;
  command: string;
  ipcMode: "socket" | "pipe";
  start: string;
  restart: string;
};

const managers: Readonly<Record<string, ManagerFacts>> = {
  linux: {
    manager: "systemd",
    command: "install-systemd",
    ipcMode: "socket",
    start: `systemctl start ${brand.id}`,
    restart: `systemctl restart ${brand.id}`,
  },
  darwin: {
    manager: "launchd",
    command: "install-launchd",
    ipcMode: "socket",
    start: `launchctl kickstart system/${brand.launchdLabel}`,
    restart: `launchctl kickstart -k system/${brand.launchdLabel}`,
  },
  win32: {
    manager: "task",
    command: "install-tap",
    ipcMode: "pipe",
    start: `schtasks /run /tn ${brand.id}`,
    restart: `schtasks /end /tn ${brand.id}, then schtasks /run /tn ${brand.id}`,
  },
};

/** Whether systemd runs this machine (sd_booted(3)). */
export function hasSystemd({ platform }: Machine = process): boolean {
  if (platform !== "linux") return false;
  const { existsSync }: typeof import("node:fs") = require("node:fs");
  return existsSync("/run/systemd/system");
}

/** Undefined without a supported service manager: in a container, or with another init. */
export function serviceManager(system: Machine): ServiceManager | undefined {
  const { manager } = managers[system.platform] ?? {};
  return manager === "systemd" && !hasSystemd(system) ? undefined : manager;
}

/** The mode of a machine that states none: `server` where systemd runs without a graphical session. */
export function usualMode(system: Machine): "server" | "desktop" {
  if (serviceManager(system) !== "systemd") return "desktop";
  const { existsSync }: typeof import("node:fs") = require("node:fs");
  // Every distribution gives its display manager this alias (systemd.special(7)).
  const places = ["/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system"];
  return places.some((each) => existsSync(`${each}/display-manager.service`)) ? "desktop" : "server";
}

/** Our command that installs services on this system. */
export function serviceCommand({ platform }: Machine): string {
  return `${brand.executable} ${managers[platform]?.command ?? "install-systemd"}`;
}

/** The line that runs a daemon in the terminal. */
export function daemonByHand({ platform }: Machine): string {
  return `${brand.executable} --ipc-mode ${managers[platform]?.ipcMode ?? "socket"}`;
}

/** A hint for a daemon that listens, and does not answer. `pid`: undefined if it is not known. */
export function daemonRestartHint(pid: number | undefined, system: Machine = process): string {
  const service = serviceManager(system) === undefined ? undefined : managers[system.platform]?.restart;
  const end = pid === undefined ? "end its process" : `kill -9 ${pid}`;
  const byHand = `${end}, then run ${daemonByHand(system)} as administrator`;
  const ways = service === undefined ? byHand : `${service} (if it was started by hand: ${byHand})`;
  return `It hangs, or the machine is very busy. If it does not recover, restart it, while tunnels keep running: ${ways}.`;
}

/** A hint for a daemon that does not run. */
export function daemonStartHint({ platform }: Machine = process): string {
  const start = (managers[platform] ?? managers["linux"])?.start;
  return `Start it: ${start}, or ${daemonByHand({ platform })} as administrator.`;
}

/** Whether this is the manager of this system, running or not. */
export function isManagerHere(manager: ServiceManager, { platform }: Machine): boolean {
  return managers[platform]?.manager === manager;
}

/** Refuses a command for another system, and names the right one. */
export function requireManager(manager: ServiceManager, { platform }: Machine): void {
  if (isManagerHere(manager, { platform })) return;
  const command = Object.values(managers).find((each) => each.manager === manager)?.command ?? "";
  const right = managers[platform]?.command;
  throw new AppError("failed", `${command} does not work on this system (${platform})`, {
    hint: right === undefined ? "This system has no such command." : `Use: ${brand.executable} ${right}`,
  });
}

/** Unix sockets and Windows pipes authenticate their clients in different ways: each is for its system only. */
export function requireIpcMode(mode: "socket" | "pipe", { platform }: Machine): void {
  const right = managers[platform]?.ipcMode ?? "socket";
  if (mode === right) return;
  throw new AppError("usage", `--ipc-mode ${mode} does not work on this system (${platform})`, {
    hint: `Use: ${daemonByHand({ platform })}`,
  });
}

/** Server mode needs systemd. Elsewhere the daemon runs the engines, in desktop mode only. */
export function refuseMode(mode: "server" | "desktop", { platform }: Machine): void {
  if (mode === "desktop" || managers[platform]?.manager === "systemd") return;
  throw new AppError(
    "usage",
    `--mode server works only on Linux; on this system (${platform}) the daemon runs the overlay`,
    {
      hint: "Run the command again without --mode.",
    },
  );
}
