// systemd units of the product (decisions 8) as pure functions of the places they name, and what has to be done to
// install or remove them. Nothing here runs a program or writes a file; apply.ts does.

import { brand } from "../brand.ts";
import type { Change } from "./apply.ts";
import { program, quoted, specifierFree, unit, word, type Setting } from "./unit-file.ts";
import { daemonWords, placesOn, type DaemonPlaces, type Machine } from "./daemon-args.ts";

export const unitDirectory = "/etc/systemd/system";

export type UnitPlaces = {
  /** The agent's own executable. */
  executable: string;
  /** The engine that the units start. */
  engine: string;
  overlayBinary: string;
  configRoot: string;
  stateDb: string;
  socketPath: string;
  autostart: boolean;
};

export type Team = { slug: string; mode: "server" | "desktop" };

/** The places of a machine that systemd runs, whichever this one is. */
export const placesForSystemd = <T extends DaemonPlaces>(places: T, system: Machine) =>
  placesOn("linux", places, system);

export const daemonUnit = `${brand.id}.service`;
export const authTimer = `${brand.id}-auth.timer`;
const authUnit = `${brand.id}-auth.service`;
export const engineUnit = (slug: string): string => `${brand.id}@${slug}.service`;

/** What a daemon gets instead of SIGTERM when it is restarted: hand the engines over, stop none. */
export const restartSignal = "SIGUSR2";

/** The engine of one organization in server mode; the instance is its slug. */
export function engineTemplate(places: UnitPlaces): string {
  const directory = `${specifierFree(trimSlash(places.configRoot))}/%i`;
  return unit({
    Unit: [
      ["Description", `Overlay network of %i`],
      ...startsAfterNetwork,
      ["Wants", "modprobe@tun.service"],
      ["After", "modprobe@tun.service"],
      ["ConditionPathExists", `${directory}/config.yml`],
      ["ConditionPathExists", `!${directory}/auth-revoked.json`],
      ["StartLimitIntervalSec", "0"],
    ],
    Service: [
      ["Type", "exec"],
      ["ExecStart", `${program(places.engine)} -config ${quoted(`${directory}/config.yml`)}`],
      ["Restart", "always"],
      ["RestartSec", "5"],
      ["TimeoutStopSec", "10"],
      ...engineRights,
      ...sandbox,
      ["MemoryDenyWriteExecute", "yes"],
      ["ProtectProc", "invisible"],
    ],
    Install: [["WantedBy", "multi-user.target"]],
  });
}

/** The check of all organizations in server mode; a run holds its check-in open, so that news is applied at once. */
export function authService(places: UnitPlaces): string {
  return unit({
    Unit: [["Description", `${brand.title}: check the credentials of this node`], ...startsAfterNetwork],
    Service: [
      ["Type", "oneshot"],
      ["ExecStart", `${program(places.executable)} check-auth --all --wait 50${flags(places)}`],
      // Unreachable and revoked are answers, not failures of the unit.
      ["SuccessExitStatus", "6 7"],
      // To systemd a oneshot that is told to stop has failed.
      ["SuccessExitStatus", "SIGTERM"],
      ["TimeoutStartSec", "180"],
      ["Environment", "DO_NOT_TRACK=1"],
      ["UMask", "0077"],
      ["CapabilityBoundingSet", ""],
      ["PrivateDevices", "yes"],
      ["ReadWritePaths", `-${quoted(specifierFree(trimSlash(places.configRoot)))}`],
      ...sandbox,
    ],
  });
}

export function authTimerUnit(): string {
  return unit({
    Unit: [["Description", `${brand.title}: check the credentials every minute`]],
    Timer: [
      ["OnBootSec", "30s"],
      ["OnUnitActiveSec", "60s"],
      ["AccuracySec", "1s"],
    ],
    Install: [["WantedBy", "timers.target"]],
  });
}

/** The daemon. Engines outlive its crash and its restart, and no real stop. */
export function daemonService(places: UnitPlaces): string {
  const writable = [places.configRoot, directoryOf(places.stateDb)].map(
    (path) => `-${quoted(specifierFree(trimSlash(path)))}`,
  );
  return unit({
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
      ["ExecStart", `${program(places.executable)} --ipc-mode socket${flags(places)}`],
      ["ExecStopPost", `-+/bin/sh -c '${stopLeftovers}'`],
      ["Restart", "always"],
      ["RestartSec", "2"],
      ["RestartPreventExitStatus", "78"],
      ["WatchdogSec", "30"],
      ["TimeoutStartSec", "60"],
      ["TimeoutStopSec", "25"],
      ["TimeoutAbortSec", "5"],
      ["KillMode", "process"],
      ["RestartKillSignal", restartSignal],
      ["OOMPolicy", "continue"],
      ["Environment", "DO_NOT_TRACK=1"],
      ["SupplementaryGroups", brand.id],
      ["UMask", "0077"],
      ["RuntimeDirectory", brand.id],
      ["RuntimeDirectoryMode", "0750"],
      ["RuntimeDirectoryPreserve", "restart"],
      ["StateDirectory", brand.id],
      ["StateDirectoryMode", "0755"],
      ["ReadWritePaths", writable.join(" ")],
      ...engineRights,
      ...sandbox,
      // The socket is given to the group, which takes no capability but this call.
      ["SystemCallFilter", "@chown"],
    ],
    Install: [["WantedBy", "multi-user.target"]],
  });
}

/**
 * Watches an update from before the executable is replaced until the new one is healthy, across a power cut too. It
 * is the former executable, kept beside the new one, and is there for the time of an update alone.
 */
export function guardService(keptExecutable: string, stateDb: string): string {
  return unit({
    Unit: [
      ["Description", `${brand.title}: watch the new version`],
      ["ConditionPathExists", specifierFree(keptExecutable)],
      ["StartLimitIntervalSec", "0"],
    ],
    Service: [
      ["Type", "exec"],
      ["ExecStart", `${program(keptExecutable)} self-update --guard --state-db-path ${word(stateDb)}`],
      ["Environment", "DO_NOT_TRACK=1"],
      ["Restart", "on-failure"],
      ["RestartSec", "1"],
      ["NoNewPrivileges", "yes"],
    ],
    Install: [["WantedBy", "multi-user.target"]],
  });
}

export const guardUnit = `${brand.id}-guard.service`;

/**
 * After a stop (not after a crash or in a restart, whose engines are taken over) nothing may be left, also when the
 * daemon hung and was killed. systemd knows which of them it is from its own job.
 */
const stopLeftovers = `systemctl list-jobs --plain --no-legend ${daemonUnit} | grep -q " stop " && systemctl kill --kill-who=all --signal=SIGKILL ${daemonUnit}`;

const startsAfterNetwork: readonly Setting[] = [
  ["Wants", "network-online.target"],
  ["After", "network-online.target nss-lookup.target time-sync.target"],
];

/** The tun device and nothing else of /dev; ports below 1024 because an organization may choose one. */
const engineRights: readonly Setting[] = [
  ["CapabilityBoundingSet", "CAP_NET_ADMIN CAP_NET_BIND_SERVICE"],
  ["DevicePolicy", "closed"],
  ["DeviceAllow", "/dev/net/tun rw"],
];

/** No MemoryDenyWriteExecute here: Bun's FFI needs its JIT. No PrivateDevices: /dev/net would vanish. */
const sandbox: readonly Setting[] = [
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

/** Files of the units that these teams need, and the units to be running in the end. */
export function systemdUnits(
  teams: readonly Team[],
  places: UnitPlaces,
): { files: ReadonlyMap<string, string>; running: readonly string[] } {
  const servers = teams.filter(({ mode }) => mode === "server");
  const files = new Map<string, string>();
  const running: string[] = [];
  if (servers.length > 0) {
    files.set(`${brand.id}@.service`, engineTemplate(places));
    files.set(authUnit, authService(places));
    files.set(authTimer, authTimerUnit());
    running.push(...servers.map(({ slug }) => engineUnit(slug)), authTimer);
  }
  if (servers.length < teams.length || teams.length === 0) {
    files.set(daemonUnit, daemonService(places));
    running.push(daemonUnit);
  }
  return { files, running };
}

export type SystemdState = {
  /** The group exists. */
  group: boolean;
  /** Name → content of the product's unit files that are there. */
  files: ReadonlyMap<string, string>;
};

/** Installs or renews; units whose text is as it should be are neither written nor restarted. */
export function systemdInstallation(
  teams: readonly Team[],
  places: UnitPlaces,
  state: SystemdState,
): Change[] {
  const { files, running } = systemdUnits(teams, places);
  const changed = [...files].filter(([name, text]) => state.files.get(name) !== text).map(([name]) => name);
  const changes: Change[] = [];
  if (!state.group) changes.push({ change: "run", argv: ["/usr/sbin/groupadd", "--system", brand.id] });
  for (const [name, content] of files) {
    changes.push({ change: "file", path: `${unitDirectory}/${name}`, content, mode: 0o644 });
  }
  if (changed.length > 0) changes.push(systemctl("daemon-reload"));
  changes.push(systemctl("enable", "--now", ...running));
  const stale = running.filter((name) => {
    const file = name.replace(/@.*(?=\.service$)/, "@");
    return changed.includes(file) && state.files.has(file);
  });
  if (stale.length > 0) changes.push(systemctl("try-restart", ...stale));
  return changes;
}

/** Stops and removes: one organization's instance, or, without a slug, everything. */
export function systemdRemoval(
  slug: string | undefined,
  teams: readonly Team[],
  state: Pick<SystemdState, "files">,
): Change[] {
  if (slug !== undefined) {
    const others = teams.some((team) => team.mode === "server" && team.slug !== slug);
    if (!state.files.has(`${brand.id}@.service`)) return [];
    if (others) return [systemctl("disable", "--now", engineUnit(slug))];
    return [systemctl("disable", "--now", engineUnit(slug), authTimer), systemctl("stop", authUnit)];
  }
  const names = [...state.files.keys()];
  if (names.length === 0) return [];
  const instances = teams.filter(({ mode }) => mode === "server").map((team) => engineUnit(team.slug));
  const units = [
    ...(names.includes(`${brand.id}@.service`) ? instances : []),
    ...[guardUnit, authTimer, daemonUnit].filter((name) => names.includes(name)),
  ];
  return [
    ...(units.length === 0 ? [] : [systemctl("disable", "--now", ...units)]),
    // A check may be waiting for news at this moment; without its timer none follows.
    ...(names.includes(authUnit) ? [systemctl("stop", authUnit)] : []),
    ...names.map((name): Change => ({ change: "remove", path: `${unitDirectory}/${name}` })),
    systemctl("daemon-reload"),
  ];
}

/** The unit files that may be there. */
export const unitFiles: readonly string[] = [
  guardUnit,
  `${brand.id}@.service`,
  authUnit,
  authTimer,
  daemonUnit,
];

function systemctl(...words: string[]): Change {
  return { change: "run", argv: systemctlCommand(...words) };
}

export function systemctlCommand(...words: string[]): string[] {
  return ["/usr/bin/systemctl", "--no-ask-password", ...words];
}

/** Flags that differ from the defaults of the system: the unit runs without the caller's environment. */
function flags(places: UnitPlaces): string {
  return daemonWords({ ...places, pipeName: "" }, "linux")
    .map((each) => (each.startsWith("--") ? ` ${each}` : ` ${word(each)}`))
    .join("");
}

function trimSlash(path: string): string {
  return path.replace(/(?<=.)\/+$/, "");
}

function directoryOf(path: string): string {
  return path.replace(/\/[^/]*$/, "") || "/";
}
