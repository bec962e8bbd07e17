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
        { description: "Join an organization with a key, or start what this machine is registered with" },
        async () => (await import("./join/up.ts")).up,
      ),
      down: lazyCommand(
        { description: "Stop the overlay of all organizations, or of one" },
        async () => (await import("./join/up.ts")).down,
      ),
      register: lazyCommand(
        { description: "Register this machine with an organization" },
        async () => (await import("./join/register.ts")).command,
      ),
      "sync-config": lazyCommand(
        { description: "Fetch the configuration from the control plane and apply it" },
        async () => (await import("./node/sync-config.ts")).command,
      ),
      "check-auth": lazyCommand(
        { description: "Check that the control plane still accepts this node" },
        async () => (await import("./node/check-auth.ts")).command,
      ),
      checkin: lazyCommand(
        { description: "Send a heartbeat to the control plane" },
        async () => (await import("./node/checkin.ts")).command,
      ),
      "key-words": lazyCommand(
        { description: "Print the words of this machine's host key, for a signer" },
        async () => (await import("./node/key-words.ts")).command,
      ),
      netcheck: lazyCommand(
        { description: "Say what the network between this machine and its organizations permits" },
        async () => (await import("./node/netcheck.ts")).command,
      ),
      doctor: lazyCommand(
        { description: "Find problems on this machine and say how to fix them" },
        async () => (await import("./node/doctor.ts")).command,
      ),
      unseal: lazyCommand(
        { description: "End the seal of an organization on this machine" },
        async () => (await import("./node/unseal.ts")).command,
      ),
      unregister: lazyCommand(
        { description: "Leave an organization: stop its overlay and remove its files" },
        async () => (await import("./join/unregister.ts")).command,
      ),
    },
  },
  {
    title: "DAEMON",
    flags: ["json", "dry-run", "verbose", "config-root", "socket-path", "pipe-name"],
    commands: {
      status: lazyCommand(
        { description: "Show the organizations of this machine and their state" },
        async () => (await import("./node/status.ts")).command,
      ),
      peers: lazyCommand(
        { description: "Show the peers: path, round trip, loss, certificate" },
        async () => (await import("./node/peers.ts")).command,
      ),
      ping: lazyCommand(
        { description: "Probe one peer through the overlay, and say which path it takes" },
        async () => (await import("./node/ping.ts")).command,
      ),
      whois: lazyCommand(
        { description: "Say which node has a name or an overlay address" },
        async () => (await import("./node/whois.ts")).command,
      ),
      "exit use": lazyCommand(
        { description: "Send the packets for the internet through an exit, or end that" },
        async () => (await import("./node/exit.ts")).use,
      ),
      "exit list": lazyCommand(
        { description: "List the exits that this machine may use" },
        async () => (await import("./node/exit.ts")).list,
      ),
      "exit show": lazyCommand(
        { description: "Say which exit the packets of this machine take" },
        async () => (await import("./node/exit.ts")).show,
      ),
      names: lazyCommand(
        { description: "Show the names of nodes, and let programs of this machine find them" },
        async () => (await import("./node/names.ts")).command,
      ),
      start: lazyCommand(
        { description: "Start the overlay of an organization" },
        async () => (await organizationCommands()).start,
      ),
      stop: lazyCommand(
        { description: "Stop the overlay of an organization" },
        async () => (await organizationCommands()).stop,
      ),
      restart: lazyCommand(
        { description: "Restart the overlay of an organization" },
        async () => (await organizationCommands()).restart,
      ),
      switch: lazyCommand(
        { description: "Start one organization and stop the others" },
        async () => (await organizationCommands()).switchOrganization,
      ),
      logs: lazyCommand(
        { description: "Show the logs of the overlay engines" },
        async () => (await import("./node/logs.ts")).command,
      ),
    },
  },
  {
    title: "OVERLAY ENGINE AND SERVICES",
    flags: ["json", "dry-run", "verbose", "config-root", "overlay-binary"],
    commands: {
      "overlay check": lazyCommand(
        { description: "Check whether the overlay engine is installed, and show its version" },
        async () => (await import("./install/overlay-check.ts")).command,
      ),
      "overlay install": lazyCommand(
        { description: "Download and install the overlay engine" },
        async () => (await import("./install/overlay-install.ts")).command,
      ),
      "overlay update": lazyCommand(
        { description: "Update the overlay engine to the latest version" },
        async () => (await import("./install/overlay-update.ts")).command,
      ),
      "update-run": lazyCommand(
        { description: "Carry out an update in rings (started by the daemon)" },
        async () => (await import("./install/update-run.ts")).command,
      ),
      "drill-run": lazyCommand(
        { description: "Carry out this node's part in a drill (started by the daemon)" },
        async () => (await import("./install/drill-run.ts")).command,
      ),
      edge: lazyCommand(
        { description: "Run what an organization needs beside its engine (used by the systemd unit)" },
        async () => (await import("./node/edge.ts")).command,
      ),
      "check-port": lazyCommand(
        { description: "Check whether UDP ports are available" },
        async () => (await import("./join/check-port.ts")).command,
      ),
      "install-systemd": lazyCommand(
        { description: "Create or update the systemd units (Linux)" },
        async () => (await import("./install/install-systemd.ts")).command,
      ),
      "install-launchd": lazyCommand(
        { description: "Create or update the launchd job (macOS)" },
        async () => (await import("./install/install-launchd.ts")).command,
      ),
      "install-tap": lazyCommand(
        { description: "Install the Wintun network driver and the daemon's startup task (Windows)" },
        async () => (await import("./install/install-tap.ts")).command,
      ),
    },
  },
  {
    title: "CONTROL PLANE",
    flags: ["json", "dry-run", "verbose", "log-file", "log-format"],
    commands: {
      setup: lazyCommand(
        { description: "Make this machine a control plane: service, organization and lighthouse" },
        async () => (await import("./server/setup.ts")).command,
      ),
      serve: lazyCommand(
        { description: "Run the control plane", isService: true },
        async () => (await import("./server/serve.ts")).command,
      ),
      login: lazyCommand(
        { description: "Sign in at a control plane, for the admin commands" },
        async () => (await import("./login.ts")).login,
      ),
      logout: lazyCommand(
        { description: "Sign out, and remove the profile" },
        async () => (await import("./login.ts")).logout,
      ),
      whoami: lazyCommand(
        { description: "Show the target of the admin commands, and as which user they work there" },
        async () => (await import("./login.ts")).whoami,
      ),
    },
    admin: async () => (await import("./admin/admin.ts")).adminCommands,
  },
  {
    title: "ABOUT",
    flags: ["json", "dry-run", "verbose"],
    commands: {
      demo: lazyCommand(
        { description: "Run three nodes on this machine, let them talk, and revoke one" },
        async () => (await import("./server/demo.ts")).command,
      ),
      version: lazyCommand(
        { description: "Print the version and check for updates" },
        async () => (await import("./install/version.ts")).command,
      ),
      completion: lazyCommand(
        { description: "Print the completion script for a shell" },
        async () => (await import("./completion.ts")).command,
      ),
      "self-update": lazyCommand(
        { description: "Replace this executable with the latest release" },
        async () => (await import("./install/self-update.ts")).command,
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
