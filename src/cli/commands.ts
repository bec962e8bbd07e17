// The table of commands, in the order of the help. A command's file is loaded only when the command is called, and the
// admin commands, two thirds of all, only when they may be meant: each node runs `checkin` every minute.

import { lazyCommand, type CommandTable } from "./command.ts";

export type Section = {
  title: string;
  /** The global flags that the help of these commands shows. */
  flags: readonly string[];
  commands: CommandTable;
  /** Further commands of the section; the first word of each is "admin". */
  admin?: () => Promise<CommandTable>;
};

const organizationCommands = () => import("./node/organization-command.ts");

const sections: readonly Section[] = [
  {
    title: "NODE",
    flags: ["json", "dry-run", "verbose", "config-root", "overlay-binary"],
    commands: {
      up: lazyCommand(
        "Join an organization with a key, or start what this machine is registered with",
        () => import("./join/up.ts"),
        "up",
      ),
      down: lazyCommand(
        "Stop the overlay of all organizations, or of one",
        () => import("./join/up.ts"),
        "down",
      ),
      register: lazyCommand("Register this machine with an organization", () => import("./join/register.ts")),
      "sync-config": lazyCommand(
        "Fetch the configuration from the control plane and apply it",
        () => import("./node/sync-config.ts"),
      ),
      "check-auth": lazyCommand(
        "Check that the control plane still accepts this node",
        () => import("./node/check-auth.ts"),
      ),
      checkin: lazyCommand("Send a heartbeat to the control plane", () => import("./node/checkin.ts")),
      "key-words": lazyCommand(
        "Print the words of this machine's host key, for a signer",
        () => import("./node/key-words.ts"),
      ),
      netcheck: lazyCommand(
        "Say what the network between this machine and its organizations permits",
        () => import("./node/netcheck.ts"),
      ),
      doctor: lazyCommand(
        "Find problems on this machine and say how to fix them",
        () => import("./node/doctor.ts"),
      ),
      unseal: lazyCommand(
        "End the seal of an organization on this machine",
        () => import("./node/unseal.ts"),
      ),
      unregister: lazyCommand(
        "Leave an organization: stop its overlay and remove its files",
        () => import("./join/unregister.ts"),
      ),
    },
  },
  {
    title: "DAEMON",
    flags: ["json", "dry-run", "verbose", "config-root", "socket-path", "pipe-name"],
    commands: {
      status: lazyCommand(
        "Show the organizations of this machine and their state",
        () => import("./node/status.ts"),
      ),
      peers: lazyCommand(
        "Show the peers: path, round trip, loss, certificate",
        () => import("./node/peers.ts"),
      ),
      ping: lazyCommand(
        "Probe one peer through the overlay, and say which path it takes",
        () => import("./node/ping.ts"),
      ),
      whois: lazyCommand("Say which node has a name or an overlay address", () => import("./node/whois.ts")),
      "exit use": lazyCommand(
        "Send the packets for the internet through an exit, or end that",
        () => import("./node/exit.ts"),
        "use",
      ),
      "exit list": lazyCommand(
        "List the exits that this machine may use",
        () => import("./node/exit.ts"),
        "list",
      ),
      "exit show": lazyCommand(
        "Say which exit the packets of this machine take",
        () => import("./node/exit.ts"),
        "show",
      ),
      names: lazyCommand(
        "Show the names of nodes, and let programs of this machine find them",
        () => import("./node/names.ts"),
      ),
      start: lazyCommand("Start the overlay of an organization", organizationCommands, "start"),
      stop: lazyCommand("Stop the overlay of an organization", organizationCommands, "stop"),
      restart: lazyCommand("Restart the overlay of an organization", organizationCommands, "restart"),
      switch: lazyCommand(
        "Start one organization and stop the others",
        organizationCommands,
        "switchOrganization",
      ),
      logs: lazyCommand("Show the logs of the overlay engines", () => import("./node/logs.ts")),
    },
  },
  {
    title: "OVERLAY ENGINE AND SERVICES",
    flags: ["json", "dry-run", "verbose", "config-root", "overlay-binary"],
    commands: {
      "overlay check": lazyCommand(
        "Check whether the overlay engine is installed, and show its version",
        () => import("./install/overlay-check.ts"),
      ),
      "overlay install": lazyCommand(
        "Download and install the overlay engine",
        () => import("./install/overlay-install.ts"),
      ),
      "overlay update": lazyCommand(
        "Update the overlay engine to the latest version",
        () => import("./install/overlay-update.ts"),
      ),
      "update-run": lazyCommand(
        "Carry out an update in rings (started by the daemon)",
        () => import("./install/update-run.ts"),
      ),
      "drill-run": lazyCommand(
        "Carry out this node's part in a drill (started by the daemon)",
        () => import("./install/drill-run.ts"),
      ),
      edge: lazyCommand(
        "Run what an organization needs beside its engine (used by the systemd unit)",
        () => import("./node/edge.ts"),
      ),
      "check-port": lazyCommand(
        "Check whether UDP ports are available",
        () => import("./join/check-port.ts"),
      ),
      "install-systemd": lazyCommand(
        "Create or update the systemd units (Linux)",
        () => import("./install/install-systemd.ts"),
      ),
      "install-launchd": lazyCommand(
        "Create or update the launchd job (macOS)",
        () => import("./install/install-launchd.ts"),
      ),
      "install-tap": lazyCommand(
        "Install the Wintun network driver and the daemon's startup task (Windows)",
        () => import("./install/install-tap.ts"),
      ),
    },
  },
  {
    title: "CONTROL PLANE",
    flags: ["json", "dry-run", "verbose", "log-file", "log-format"],
    commands: {
      setup: lazyCommand(
        "Make this machine a control plane: service, organization and lighthouse",
        () => import("./server/setup.ts"),
      ),
      serve: lazyCommand("Run the control plane", () => import("./server/serve.ts")),
      login: lazyCommand(
        "Sign in at a control plane, for the admin commands",
        () => import("./login.ts"),
        "login",
      ),
      logout: lazyCommand("Sign out, and remove the profile", () => import("./login.ts"), "logout"),
      whoami: lazyCommand(
        "Show the target of the admin commands, and as which user they work there",
        () => import("./login.ts"),
        "whoami",
      ),
    },
    admin: async () => (await import("./admin/admin.ts")).adminCommands,
  },
  {
    title: "ABOUT",
    flags: ["json", "dry-run", "verbose"],
    commands: {
      demo: lazyCommand(
        "Run three nodes on this machine, let them talk, and revoke one",
        () => import("./server/demo.ts"),
      ),
      version: lazyCommand("Print the version and check for updates", () => import("./install/version.ts")),
      completion: lazyCommand("Print the completion script for a shell", () => import("./completion.ts")),
      "self-update": lazyCommand(
        "Replace this executable with the latest release",
        () => import("./install/self-update.ts"),
      ),
    },
  },
];

/** The commands of the first help: those of day one. */
export const firstCommands: readonly { title: string; names: readonly string[] }[] = [
  { title: "START", names: ["demo", "setup", "up"] },
  {
    title: "ON EACH MACHINE",
    names: ["status", "doctor", "peers", "logs", "down", "unregister", "self-update"],
  },
  {
    title: "ON THE CONTROL PLANE, OR FROM ANY MACHINE AFTER A LOGIN",
    names: ["login", "admin token create", "admin node list", "admin node revoke", "admin backup"],
  },
];

/** All but the admin commands. */
export const commands: CommandTable = merged(sections);

/** The sections with all their commands. */
export function allSections(): Promise<Section[]> {
  return Promise.all(
    sections.map(async ({ admin, ...section }) =>
      admin === undefined ? section : { ...section, commands: { ...section.commands, ...(await admin()) } },
    ),
  );
}

export async function allCommands(): Promise<CommandTable> {
  return merged(await allSections());
}

function merged(sections: readonly Section[]): CommandTable {
  return Object.assign({}, ...sections.map((section) => section.commands));
}
