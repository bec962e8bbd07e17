// The unit that closes the network at a boot, before it is up, where packets may leave by an exit alone
// (`agent exit use NODE --strict`). Only that command installs it.

import { brand } from "../../brand.ts";
import type { Change } from "../machine-changes.ts";
import type { SystemdState } from "./installation.ts";
import { exitUnit, systemctl, unitDirectory } from "./systemd.ts";
import { commonSandbox } from "./units.ts";
import { argumentWord, programWord, withoutSpecifiers, unitText } from "./unit-file.ts";

/** `file`: the block, as a script of nft. The agent writes it, and removes it when it ends. */
function exitService(nft: string, file: string): string {
  return unitText(
    {
      Unit: [
        ["Description", `${brand.title}: no packets beside the exit`],
        // The default dependencies would start the unit after sysinit.target, and then the network may be up already.
        ["DefaultDependencies", "no"],
        ["After", "local-fs.target"],
        ["Wants", "network-pre.target"],
        ["Before", "network-pre.target shutdown.target"],
        ["Conflicts", "shutdown.target"],
        ["ConditionPathExists", withoutSpecifiers(file)],
      ],
      Service: [
        ["Type", "oneshot"],
        ["RemainAfterExit", "yes"],
        ["ExecStart", `${programWord(nft)} -f ${argumentWord(file)}`],
        ["CapabilityBoundingSet", "CAP_NET_ADMIN"],
        ["PrivateDevices", "yes"],
        ["MemoryDenyWriteExecute", "yes"],
        ...commonSandbox,
      ],
      Install: [["WantedBy", "sysinit.target"]],
    },
    "exit use --strict",
  );
}

/** The changes that install the unit, or remove it where no block is `wanted` (undefined). */
export function exitInstallation(
  wanted: { nft: string; file: string } | undefined,
  { files }: Pick<SystemdState, "files">,
): Change[] {
  const path = `${unitDirectory}/${exitUnit}`;
  if (wanted === undefined) {
    if (!files.has(exitUnit)) return [];
    return [systemctl("disable", exitUnit), { change: "remove", path }, systemctl("daemon-reload")];
  }
  const content = exitService(wanted.nft, wanted.file);
  if (files.get(exitUnit) === content) return [];
  return [
    { change: "file", path, content, mode: 0o644 },
    systemctl("daemon-reload"),
    systemctl("enable", exitUnit),
  ];
}
