// The systemd service of the control plane: its names, its unit, and the changes that install it. Must not run programs
// or write files; machine-changes.ts does that.

import { brand } from "../../brand.ts";
import type { Change } from "../machine-changes.ts";
import { packagedUnitDirectory, systemctlCommand, unitDirectory } from "./systemd.ts";
import { commonSandbox } from "./units.ts";
import { programWord, withoutSpecifiers, unitText, argumentWord, type Setting } from "./unit-file.ts";

export const controlUnit = `${brand.id}-control.service`;
export const controlUnitPath = `${unitDirectory}/${controlUnit}`;
export const packagedControlUnitPath = `${packagedUnitDirectory}/${controlUnit}`;
/** The system user of the service. */
export const controlUser = `${brand.id}-control`;
export const controlSettingsPath = `/etc/${brand.id}/control-plane.toml`;

/** `isPrivilegedPort`: it listens on a port below 1024. */
export function controlService(executable: string, isPrivilegedPort: boolean): string {
  const port = isPrivilegedPort ? "CAP_NET_BIND_SERVICE" : "";
  return unitText(
    {
      Unit: [
        ["Description", `${brand.title}: control plane`],
        ["Wants", "network-online.target"],
        ["After", "network-online.target nss-lookup.target time-sync.target"],
        ["ConditionPathExists", controlSettingsPath],
        // After an uninstallation it stays off, instead of failing every two seconds.
        ["ConditionFileIsExecutable", withoutSpecifiers(executable)],
        ["StartLimitIntervalSec", "0"],
      ],
      Service: [
        ["Type", "notify"],
        ["NotifyAccess", "main"],
        ["ExecStart", `${programWord(executable)} serve --config ${argumentWord(controlSettingsPath)}`],
        // The process starts its successor, which listens beside it: a new version takes over without a lost request.
        ["ExecReload", "/bin/sh -c 'kill -HUP ${MAINPID}'"],
        ["Restart", "always"],
        ["RestartSec", "2"],
        // bad_configuration (base/errors.ts): a restart cannot mend it.
        ["RestartPreventExitStatus", "78"],
        ["WatchdogSec", "60"],
        // A migration of a large database takes minutes.
        ["TimeoutStartSec", "600"],
        ["TimeoutStopSec", "30"],
        ["User", controlUser],
        ["Group", controlUser],
        // An existing data directory gets this owner, with all its files (systemd.exec(5)).
        ["StateDirectory", `${brand.id}/server`],
        ["StateDirectoryMode", "0700"],
        ["UMask", "0077"],
        ["LimitNOFILE", "65536"],
        ["Environment", "DO_NOT_TRACK=1"],
        ["AmbientCapabilities", port],
        ["CapabilityBoundingSet", port],
        ...sandbox,
      ],
      Install: [["WantedBy", "multi-user.target"]],
    },
    // The command that the first line of the file names as its writer.
    "setup",
  );
}

/** Not PrivateUsers, which would void the right to a port below 1024, and not ProcSubset, which hides the id of the boot. */
const sandbox: readonly Setting[] = [
  ...commonSandbox,
  ["PrivateDevices", "yes"],
  ["PrivateIPC", "yes"],
  ["ProtectProc", "invisible"],
];

/** Every user may pass through it, so that the service's user reaches its data. `serve` of root creates it for root alone. */
export const controlParent = `/var/lib/${brand.id}`;

/** With this setting, connections that wait during a handover go to the successor. The `-` before it: a kernel may lack it. */
export const controlSysctlPath = `/etc/sysctl.d/60-${brand.id}-control.conf`;
/** The same of a distribution package. */
export const packagedSysctlPath = `/usr/lib/sysctl.d/60-${brand.id}.conf`;
export const controlSysctl = `# While the control plane hands over to a new process, waiting connections go to the new one.
-net.ipv4.tcp_migrate_req = 1
`;

export type ControlState = {
  /** The present files at controlSysctlPath and packagedSysctlPath. */
  sysctl: string | undefined;
  packagedSysctl: string | undefined;
  hasUser: boolean;
  /** Every user may pass through `controlParent`. */
  isParentOpen: boolean;
  /** The present settings file, unit in /etc, and unit of a package; undefined if they do not exist. */
  settings: string | undefined;
  unit: string | undefined;
  packagedUnit: string | undefined;
  /** The running process is older than settings or unit: a former installation was killed before it restarted the service. */
  isStale: boolean;
};

/** Installs or updates the service, and starts it. A running one is restarted only if something differs. */
export function controlInstallation(next: { settings: string; unit: string }, state: ControlState): Change[] {
  const present = state.unit ?? state.packagedUnit;
  const isChanged = state.isStale || next.unit !== present || next.settings !== state.settings;
  const run = (...words: string[]): Change => ({ change: "run", argv: systemctlCommand(...words) });
  const addUser: Change = {
    change: "run",
    argv: [
      "/usr/sbin/useradd",
      "--system",
      "--user-group",
      "--no-create-home",
      "--home-dir",
      `${controlParent}/server`,
      "--shell",
      "/usr/sbin/nologin",
      controlUser,
    ],
  };
  // Containers may not set it. Then a connection can be lost in an update, and clients try again.
  const applySysctl: Change = {
    change: "run",
    argv: ["/lib/systemd/systemd-sysctl", controlSysctlPath],
    mayFail: true,
  };
  const openParent: Change = { change: "run", argv: ["/usr/bin/install", "-d", "-m", "0755", controlParent] };
  const unitChanges: Change[] = [];
  if (next.unit !== state.packagedUnit) {
    unitChanges.push({ change: "file", path: controlUnitPath, content: next.unit, mode: 0o644 });
    if (next.unit !== state.unit) unitChanges.push(run("daemon-reload"));
  } else if (state.unit !== undefined) {
    // The unit of the package says the same, and follows its upgrades.
    unitChanges.push({ change: "remove", path: controlUnitPath }, run("daemon-reload"));
  }
  const sysctlChanges: Change[] =
    state.packagedSysctl === controlSysctl && state.sysctl === undefined
      ? []
      : [
          { change: "file", path: controlSysctlPath, content: controlSysctl, mode: 0o644 },
          ...(state.sysctl === controlSysctl ? [] : [applySysctl]),
        ];
  return [
    ...(state.hasUser ? [] : [addUser]),
    ...(state.isParentOpen ? [] : [openParent]),
    { change: "file", path: controlSettingsPath, content: next.settings, mode: 0o644 },
    ...sysctlChanges,
    ...unitChanges,
    run("enable", "--now", controlUnit),
    // Without settings it did not run before, and `enable --now` starts it.
    ...(isChanged && present !== undefined && state.settings !== undefined
      ? [run("restart", controlUnit)]
      : []),
  ];
}
