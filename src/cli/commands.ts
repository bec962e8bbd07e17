// The table of commands. A command's file is loaded only when it is called; root help needs the summaries alone.

import { adminCommands } from "./admin/admin.ts";
import type { Command } from "./command.ts";

type Entry = { summary: string; load(): Promise<{ command: Command }> };

export const sections: readonly { title: string; commands: Record<string, Entry> }[] = [
  {
    title: "NODE",
    commands: {
      register: {
        summary: "Register this machine with an organization",
        load: () => import("./register.ts"),
      },
      "sync-config": {
        summary: "Update the local configuration from the control plane",
        load: () => import("./sync-config.ts"),
      },
      "check-auth": {
        summary: "Verify that the credentials are still valid",
        load: () => import("./check-auth.ts"),
      },
      checkin: { summary: "Send a heartbeat to the control plane", load: () => import("./checkin.ts") },
      doctor: {
        summary: "Examine this machine and its organizations, and say what to do",
        load: () => import("./doctor.ts"),
      },
      unregister: {
        summary: "Leave an organization: stop its overlay and remove its files",
        load: () => import("./unregister.ts"),
      },
    },
  },
  {
    title: "DAEMON",
    commands: {
      status: {
        summary: "Show the teams of this machine and how they do",
        load: () => import("./status.ts"),
      },
      start: { summary: "Start a team's overlay", load: () => import("./start.ts") },
      stop: { summary: "Stop a team's overlay", load: () => import("./stop.ts") },
      restart: { summary: "Restart a team's overlay", load: () => import("./restart.ts") },
      switch: { summary: "Start a team, stop the others", load: () => import("./switch.ts") },
      logs: { summary: "Show the logs of the overlay engines", load: () => import("./logs.ts") },
    },
  },
  {
    title: "OVERLAY ENGINE AND SERVICES",
    commands: {
      "overlay check": {
        summary: "Check whether the overlay engine is installed and report its version",
        load: () => import("./overlay-check.ts"),
      },
      "overlay install": {
        summary: "Download and install the overlay engine",
        load: () => import("./overlay-install.ts"),
      },
      "overlay update": {
        summary: "Update the overlay engine to the latest version",
        load: () => import("./overlay-update.ts"),
      },
      "check-port": {
        summary: "Check whether UDP ports are available",
        load: () => import("./check-port.ts"),
      },
      "install-systemd": {
        summary: "Create or recreate the systemd units (Linux)",
        load: () => import("./install-systemd.ts"),
      },
      "install-launchd": {
        summary: "Create or recreate the launchd plist (macOS)",
        load: () => import("./install-launchd.ts"),
      },
      "install-tap": {
        summary: "Install the Wintun network driver and the daemon's start-up task (Windows)",
        load: () => import("./install-tap.ts"),
      },
    },
  },
  {
    title: "CONTROL PLANE",
    commands: {
      serve: { summary: "Run the control plane", load: () => import("./serve.ts") },
      ...adminCommands,
    },
  },
  {
    title: "ABOUT",
    commands: {
      demo: {
        summary: "See three nodes talk over a real overlay, and one of them revoked",
        load: () => import("./demo.ts"),
      },
      version: { summary: "Print the version and check for updates", load: () => import("./version.ts") },
      completion: {
        summary: "Print the completion script of a shell",
        load: () => import("./completion.ts"),
      },
      "self-update": {
        summary: "Replace this executable with the latest published release",
        load: () => import("./self-update.ts"),
      },
    },
  },
];

export const commands: Record<string, Entry> = Object.assign(
  {},
  ...sections.map((section) => section.commands),
);
