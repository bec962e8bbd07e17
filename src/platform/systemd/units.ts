// The texts of the product's systemd units: engine, edge, checks, daemon and the watch over an update. systemd.ts has their names,
// installation.ts the changes that install them.

import { posix } from "node:path";
import { brand } from "../../brand.ts";
import { daemonArgs, trimSlashes } from "../daemon-args.ts";
import { socketDirectory } from "./control-socket.ts";
import { daemonUnit, restartSignal, unitDirectory } from "./systemd.ts";
import {
  programWord,
  quotedWord,
  withoutExpansion,
  withoutSpecifiers,
  unitText,
  argumentWord,
  type Setting,
} from "./unit-file.ts";

export type UnitPlaces = {
  /** The agent's own executable. */
  executable: string;
  /** The engine that the units start: that of `overlayBinary`, or one that was found in its place (installed-units.ts). */
  engine: string;
  /** The configured path of the engine, which the programs of the units get as a flag. */
  overlayBinary: string;
  configRoot: string;
  stateDb: string;
  socketPath: string;
  autostart: boolean;
};

/** Has a file of each interface, by which a router switches forwarding on. The `-`: it may be missing. */
const writableForwarding = "-/proc/sys/net/ipv4/conf";

/** The state of the checks in server mode, and what a router changed of the machine, in a file each. */
const healthDirectory = `/run/${brand.id}-health`;

/** The engine of one organization in server mode; the instance is its slug. */
export function engineTemplate(places: UnitPlaces): string {
  const root = trimSlashes(places.configRoot);
  const directory = `${withoutSpecifiers(root)}/%i`;
  const config = quotedWord(`${withoutExpansion(root)}/%i/config.yml`);
  return unitText({
    Unit: [
      ["Description", `Overlay network of %i`],
      ...startsAfterNetwork,
      ["Wants", "modprobe@tun.service"],
      ["After", "modprobe@tun.service"],
      ["ConditionPathExists", `${directory}/config.yml`],
      // The engine runs exactly if it is wanted and not revoked: systemd checks both at every start, also at boot.
      ["ConditionPathExists", `!${directory}/auth-revoked.json`],
      ["ConditionPathExists", `!${directory}/stopped`],
      // 0, here and below: systemd goes on, however often a start has failed.
      ["StartLimitIntervalSec", "0"],
    ],
    Service: [
      ["Type", "exec"],
      ["ExecStart", `${programWord(places.engine)} -config ${config}`],
      ["Restart", "always"],
      ["RestartSec", "5"],
      ["TimeoutStopSec", "10"],
      // An engine writes a line for each junk handshake, thousands a second. A start writes one for each firewall rule.
      ["LogRateLimitIntervalSec", "30s"],
      ["LogRateLimitBurst", "2000"],
      ...engineRights,
      ...commonSandbox,
      ["ReadWritePaths", `-${quotedWord(`${directory}/${socketDirectory}`)}`],
      // The engine makes its socket root's own. That needs this call, but no capability.
      ["SystemCallFilter", "@chown"],
      ["MemoryDenyWriteExecute", "yes"],
      ["ProtectProc", "invisible"],
    ],
    Install: [["WantedBy", "multi-user.target"]],
  });
}

/**
 * Runs what one organization in server mode needs beside its engine all the time (`agent edge`). `check-auth` starts this unit
 * where it is needed. Where it is not, the program ends by itself with status 0, which `on-failure` does not start again.
 */
export function edgeService(places: UnitPlaces): string {
  const directory = `${withoutSpecifiers(trimSlashes(places.configRoot))}/%i`;
  return unitText({
    Unit: [
      ["Description", `${brand.title}: %i, beside its engine`],
      ...startsAfterNetwork,
      ["ConditionPathExists", `${directory}/config.yml`],
      ["ConditionPathExists", `!${directory}/auth-revoked.json`],
      ["ConditionPathExists", `!${directory}/stopped`],
      ["StartLimitIntervalSec", "0"],
    ],
    Service: [
      ["Type", "exec"],
      ["ExecStart", `${programWord(places.executable)} edge --org-slug %i${flagsOf(places)}`],
      ["Restart", "on-failure"],
      ["RestartSec", "1"],
      ["TimeoutStopSec", "10"],
      ["Environment", "DO_NOT_TRACK=1"],
      ["UMask", "0077"],
      // CAP_NET_RAW sends packets from the engine's port, CAP_NET_BIND_SERVICE opens a port below 1024. The kernel shows the
      // engine's ports only to a process that has all rights of the engine.
      ["CapabilityBoundingSet", "CAP_NET_ADMIN CAP_NET_BIND_SERVICE CAP_NET_RAW"],
      ["PrivateDevices", "yes"],
      // Keeps what a router changed on the machine, so that it can be undone.
      ["RuntimeDirectory", `${brand.id}-health`],
      ["RuntimeDirectoryMode", "0755"],
      ["RuntimeDirectoryPreserve", "yes"],
      ["ReadWritePaths", writable(places.configRoot)],
      ...commonSandbox,
      // A router switches forwarding on for two interfaces. The last value counts, so this stands after the sandbox.
      ["ProtectKernelTunables", "no"],
    ],
    Install: [["WantedBy", "multi-user.target"]],
  });
}

/** The template with another engine, if it starts one of `former`. Keeps everything else, also an administrator's edits. */
export function withEngine(template: string, former: readonly string[], engine: string): string {
  const line = (path: string) => `\nExecStart=${programWord(path)} -config `;
  let text = template;
  for (const path of former) text = text.replace(line(path), () => line(engine));
  return text;
}

/**
 * Checks all organizations in server mode. A run keeps its check-in open for 58 s, so that changes apply at once: the timer
 * starts the next run within the same minute.
 */
export function authService(places: UnitPlaces): string {
  return unitText({
    Unit: [["Description", `${brand.title}: check the credentials of this node`], ...startsAfterNetwork],
    Service: [
      ["Type", "oneshot"],
      ["ExecStart", `${programWord(places.executable)} check-auth --all --wait 58${flagsOf(places)}`],
      // 6: the control plane cannot be reached; 7: the node is revoked. Neither is a failure of the unit.
      ["SuccessExitStatus", "6 7"],
      // systemd counts a stopped oneshot as failed.
      ["SuccessExitStatus", "SIGTERM"],
      ["TimeoutStartSec", "180"],
      ["Environment", "DO_NOT_TRACK=1"],
      ["UMask", "0077"],
      // CAP_NET_RAW probes peers where unprivileged ping sockets are not permitted, CAP_NET_ADMIN counts what a relay forwards
      // (nftables). The kernel shows the engine's UDP port only to a process that has all rights of the engine (engineRights).
      ["CapabilityBoundingSet", "CAP_NET_ADMIN CAP_NET_BIND_SERVICE CAP_NET_RAW"],
      // State for the next run and for `status`.
      ["RuntimeDirectory", `${brand.id}-health`],
      ["RuntimeDirectoryMode", "0755"],
      ["RuntimeDirectoryPreserve", "yes"],
      ["PrivateDevices", "yes"],
      ["ReadWritePaths", writable(places.configRoot)],
      ...commonSandbox,
    ],
  });
}

export function authTimerUnit(): string {
  return unitText({
    Unit: [["Description", `${brand.title}: check the credentials every minute`]],
    Timer: [
      ["OnBootSec", "30s"],
      ["OnUnitActiveSec", "60s"],
      ["AccuracySec", "1s"],
    ],
    Install: [["WantedBy", "timers.target"]],
  });
}

/** The daemon. Its engines survive a crash and a restart, but not a stop. */
export function daemonService(places: UnitPlaces): string {
  const ownPlaces = [places.configRoot, posix.dirname(places.stateDb)].map(writable);
  return unitText({
    Unit: [
      ["Description", `${brand.title}: daemon`],
      ...startsAfterNetwork,
      ["Wants", "modprobe@tun.service"],
      ["After", "modprobe@tun.service"],
      ["StartLimitIntervalSec", "0"],
    ],
    Service: [
      ["Type", "notify"],
      ["NotifyAccess", "main"],
      // For what a router changed on the machine, so that it can be undone. Server mode has its files in this directory, too.
      ["ExecStartPre", `+/bin/mkdir -p -m 0755 ${healthDirectory}`],
      ["ExecStart", `${programWord(places.executable)} --ipc-mode socket${flagsOf(places)}`],
      ["ExecStopPost", `-+/bin/sh -c '${stopLeftovers}'`],
      ["Restart", "always"],
      ["RestartSec", "2"],
      // bad_configuration and foreign_files (base/errors.ts): a restart cannot mend them.
      ["RestartPreventExitStatus", "78"],
      ["WatchdogSec", "30"],
      ["TimeoutStartSec", "60"],
      ["TimeoutStopSec", "25"],
      ["TimeoutAbortSec", "5"],
      // A signal goes to the daemon alone: its engines are in the same control group, and end only at a stop (stopLeftovers).
      ["KillMode", "process"],
      // By this signal the daemon learns that it is restarted, and leaves its engines running.
      ["RestartKillSignal", restartSignal],
      // An engine that the kernel ends for lack of memory must not end the daemon.
      ["OOMPolicy", "continue"],
      ["Environment", "DO_NOT_TRACK=1"],
      ["SupplementaryGroups", brand.id],
      ["UMask", "0077"],
      ["RuntimeDirectory", brand.id],
      ["RuntimeDirectoryMode", "0750"],
      ["RuntimeDirectoryPreserve", "restart"],
      ["StateDirectory", brand.id],
      ["StateDirectoryMode", "0755"],
      ["ReadWritePaths", [...ownPlaces, `-${healthDirectory}`, writableForwarding].join(" ")],
      ...engineRights,
      // CAP_NET_RAW probes peers, as in authService.
      ["CapabilityBoundingSet", "CAP_NET_RAW"],
      ...commonSandbox,
      // The daemon gives its socket to the group. That needs this call, but no capability.
      ["SystemCallFilter", "@chown"],
    ],
    Install: [["WantedBy", "multi-user.target"]],
  });
}

/**
 * Watches an update from before the replacement until the new executable is healthy, also across a power cut. It runs
 * the former executable, which is kept beside the new one, and exists only during an update.
 */
export function guardService(keptExecutable: string, stateDb: string, configRoot: string): string {
  const places = [posix.dirname(keptExecutable), posix.dirname(stateDb), configRoot, unitDirectory];
  return unitText({
    Unit: [
      ["Description", `${brand.title}: watch the new version`],
      ["ConditionPathExists", withoutSpecifiers(keptExecutable)],
      ["StartLimitIntervalSec", "0"],
    ],
    Service: [
      ["Type", "exec"],
      [
        "ExecStart",
        `${programWord(keptExecutable)} self-update --guard --state-db-path ${argumentWord(stateDb)}`,
      ],
      ["Environment", "DO_NOT_TRACK=1"],
      ["Restart", "on-failure"],
      ["RestartSec", "1"],
      // To see which program a process runs, to end it, and to probe peers, as the check of the new version does.
      ["CapabilityBoundingSet", "CAP_SYS_PTRACE CAP_KILL CAP_NET_RAW"],
      ["PrivateDevices", "yes"],
      ["ReadWritePaths", places.map(writable).join(" ")],
      ...commonSandbox,
    ],
    Install: [["WantedBy", "multi-user.target"]],
  });
}

/**
 * After a stop no engine may remain, even if systemd had to kill the daemon. After a crash or restart the engines must
 * keep running. The job of systemd tells the two apart.
 */
const stopLeftovers = `systemctl list-jobs --plain --no-legend ${daemonUnit} | grep -q " stop " && systemctl kill --kill-who=all --signal=SIGKILL ${daemonUnit}`;

const startsAfterNetwork: readonly Setting[] = [
  ["Wants", "network-online.target"],
  ["After", "network-online.target nss-lookup.target time-sync.target"],
];

/** Only the tun device. CAP_NET_BIND_SERVICE, because an organization may use a port below 1024. */
const engineRights: readonly Setting[] = [
  ["CapabilityBoundingSet", "CAP_NET_ADMIN CAP_NET_BIND_SERVICE"],
  ["DevicePolicy", "closed"],
  ["DeviceAllow", "/dev/net/tun rw"],
];

/** The sandbox of every service of this program. MemoryDenyWriteExecute is left out, because Bun's FFI needs its JIT, and PrivateDevices, which hides /dev/net. */
export const commonSandbox: readonly Setting[] = [
  ["NoNewPrivileges", "yes"],
  ["ProtectSystem", "strict"],
  ["ProtectHome", "yes"],
  ["PrivateTmp", "yes"],
  ["PrivateMounts", "yes"],
  ["ProtectClock", "yes"],
  ["ProtectControlGroups", "yes"],
  ["ProtectHostname", "yes"],
  ["ProtectKernelLogs", "yes"],
  ["ProtectKernelModules", "yes"],
  ["ProtectKernelTunables", "yes"],
  ["RestrictNamespaces", "yes"],
  ["RestrictRealtime", "yes"],
  ["RestrictSUIDSGID", "yes"],
  ["LockPersonality", "yes"],
  ["RemoveIPC", "yes"],
  ["KeyringMode", "private"],
  ["SystemCallArchitectures", "native"],
  ["SystemCallFilter", "@system-service"],
  ["SystemCallFilter", "~@privileged @resources"],
  ["SystemCallErrorNumber", "EPERM"],
  ["RestrictAddressFamilies", "AF_INET AF_INET6 AF_UNIX AF_NETLINK"],
];

/** Flags that differ from the defaults, because the unit runs without the environment of the caller. */
function flagsOf(places: UnitPlaces): string {
  return daemonArgs({ ...places, pipeName: "" }, "linux")
    .map((each) => (each.startsWith("--") ? ` ${each}` : ` ${argumentWord(each)}`))
    .join("");
}

/** A path for ReadWritePaths. The `-`: it may be missing. */
const writable = (path: string): string => `-${quotedWord(withoutSpecifiers(trimSlashes(path)))}`;
