// The systemd unit that resolves names of nodes for the programs of the machine, and the changes that install and
// remove it. Only `agent names --on` installs it.

import { brand } from "../../brand.ts";
import type { Change } from "../machine-changes.ts";
import { namesCacheRemoval, namesUnit, systemctl, unitDirectory } from "./systemd.ts";
import { commonSandbox, type UnitPlaces } from "./units.ts";
import type { SystemdState } from "./installation.ts";
import { programWord, withoutSpecifiers, unitText, argumentWord } from "./unit-file.ts";

/**
 * Answers systemd-resolved, or keeps names in /etc/hosts (docs/names.md), for which it may write /etc: a new file is renamed to
 * the old one's name. The kernel drops all its packets but those of this machine and of `peers`. When it ends, also by a crash, the
 * names are removed.
 */
export function namesService(places: UnitPlaces, { search, peers }: NamesOptions): string {
  const command = `${programWord(places.executable)} names`;
  const flags = [
    "--run",
    ...(search ? [searchFlag] : []),
    ...(peers.length === 0 ? [] : [peersFlag, peers.join(",")]),
    `--config-root ${argumentWord(places.configRoot)}`,
  ];
  return unitText(
    {
      Unit: [
        ["Description", `${brand.title}: names of nodes`],
        // After systemd-resolved: otherwise it would first write to /etc/hosts at each boot.
        ["After", "dbus.service systemd-resolved.service"],
        ["ConditionPathExists", withoutSpecifiers(places.executable)],
        ["StartLimitIntervalSec", "0"],
      ],
      Service: [
        ["Type", "exec"],
        ["ExecStart", `${command} ${flags.join(" ")}`],
        // The minus: its failure does not make the unit fail.
        ["ExecStopPost", `-${command} --clear`],
        ["Restart", "always"],
        ["RestartSec", "1"],
        ["TimeoutStopSec", "10"],
        ["Environment", "DO_NOT_TRACK=1"],
        ["UMask", "0077"],
        // CAP_CHOWN: a new /etc/hosts gets the group of the former one. CAP_NET_BIND_SERVICE: peers ask port 53.
        ["CapabilityBoundingSet", peers.length === 0 ? "CAP_CHOWN" : "CAP_CHOWN CAP_NET_BIND_SERVICE"],
        ["IPAddressDeny", "any"],
        ["IPAddressAllow", ["localhost", ...peers].join(" ")],
        ["RuntimeDirectory", `${brand.id}-names`],
        ["RuntimeDirectoryMode", "0755"],
        ["CacheDirectory", `${brand.id}-names`],
        ["CacheDirectoryMode", "0700"],
        ["PrivateDevices", "yes"],
        ["ReadWritePaths", "/etc"],
        ...commonSandbox,
        ["SystemCallFilter", "@chown"],
      ],
      Install: [["WantedBy", "multi-user.target"]],
    },
    "names --on",
  );
}

const searchFlag = "--search";
const peersFlag = "--peers-in";

/** `search`: resolves short names, too. `peers`: the networks whose nodes are answered, if their organization wants that. */
export type NamesOptions = { search: boolean; peers: readonly string[] };

/** Switches names on. Without options, those of the installed unit stay. `files`: the texts of the installed units, by name. */
export function namesInstallation(
  places: UnitPlaces,
  state: Pick<SystemdState, "files">,
  options?: NamesOptions,
): Change[] {
  const present = state.files.get(namesUnit);
  const content = namesService(places, options ?? optionsIn(present ?? ""));
  const isStale = present !== undefined && present !== content;
  return [
    { change: "file", path: `${unitDirectory}/${namesUnit}`, content, mode: 0o644 },
    ...(present === content ? [] : [systemctl("daemon-reload")]),
    systemctl("enable", "--now", namesUnit),
    ...(isStale ? [systemctl("try-restart", namesUnit)] : []),
  ];
}

/** The options that the text of a unit has. Relies on the order of `flags` in namesService, in which --config-root is the last. */
function optionsIn(unit: string): NamesOptions {
  const [, flags = ""] = / --run( .*)/.exec(unit) ?? [];
  const [, peers] = new RegExp(` ${peersFlag} ([0-9a-f.:/,]+) `).exec(flags) ?? [];
  return { search: flags.startsWith(` ${searchFlag} `), peers: peers?.split(",") ?? [] };
}

/** Switches names off. */
export function namesRemoval(state: Pick<SystemdState, "files">): Change[] {
  if (!state.files.has(namesUnit)) return [];
  return [
    systemctl("disable", "--now", namesUnit),
    namesCacheRemoval,
    { change: "remove", path: `${unitDirectory}/${namesUnit}` },
    systemctl("daemon-reload"),
  ];
}
