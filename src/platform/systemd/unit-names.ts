// The systemd unit that resolves names of nodes for the programs of the machine, and the changes that install and
// remove it. Only `agent names --on` installs it.

import { brand } from "../../brand.ts";
import type { Change } from "../apply.ts";
import {
  commonSandbox,
  namesCacheRemoval,
  namesUnit,
  systemctl,
  unitDirectory,
  type UnitPlaces,
} from "./systemd.ts";
import type { SystemdState } from "./installation.ts";
import { program, specifierFree, unit, word } from "./unit-file.ts";

/**
 * Answers systemd-resolved, or keeps names in /etc/hosts (docs/names.md). It needs that directory for the rename. The
 * kernel drops all its packets but those of this machine and of `peers`. Names go when it ends, also by a crash.
 */
export function namesService(places: UnitPlaces, { search, peers }: NamesWish): string {
  const names = `${program(places.executable)} names`;
  const short = search ? ` ${searchFlag}` : "";
  const answered = peers.length === 0 ? "" : ` ${peersFlag} ${peers.join(",")}`;
  const root = ` --config-root ${word(places.configRoot)}`;
  return unit(
    {
      Unit: [
        ["Description", `${brand.title}: names of nodes`],
        // After systemd-resolved: otherwise it would first write to /etc/hosts at each boot.
        ["After", "dbus.service systemd-resolved.service"],
        ["ConditionPathExists", specifierFree(places.executable)],
        ["StartLimitIntervalSec", "0"],
      ],
      Service: [
        ["Type", "exec"],
        ["ExecStart", `${names} --run${short}${answered}${root}`],
        ["ExecStopPost", `-${names} --clear`],
        ["Restart", "always"],
        ["RestartSec", "1"],
        ["TimeoutStopSec", "10"],
        ["Environment", "DO_NOT_TRACK=1"],
        ["UMask", "0077"],
        // The new file gets the group of the former one.
        // Peers ask port 53.
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

/** `search`: short names too. `peers`: the networks whose nodes are answered where an organization wants it. */
export type NamesWish = { search: boolean; peers: readonly string[] };

/** Switches names on. Options that are not given stay as in the present unit. */
export function namesInstallation(
  places: UnitPlaces,
  state: Pick<SystemdState, "files">,
  wish?: NamesWish,
): Change[] {
  const present = state.files.get(namesUnit);
  const content = namesService(places, wish ?? wishIn(present ?? ""));
  const isStale = present !== undefined && present !== content;
  return [
    { change: "file", path: `${unitDirectory}/${namesUnit}`, content, mode: 0o644 },
    ...(present === content ? [] : [systemctl("daemon-reload")]),
    systemctl("enable", "--now", namesUnit),
    ...(isStale ? [systemctl("try-restart", namesUnit)] : []),
  ];
}

function wishIn(present: string): NamesWish {
  const [, flags = ""] = / --run( .*)/.exec(present) ?? [];
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
