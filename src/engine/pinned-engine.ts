// The engine that this machine's services were installed with, if it is not the default one. Later commands without
// --overlay-binary mean the same engine.

import { brand } from "../brand.ts";
import { readText } from "../base/open-file.ts";
import { programWord, readUnit } from "../platform/systemd/unit-file.ts";

const units = [`${brand.id}-auth.service`, `${brand.id}.service`];

/** The --overlay-binary of the installed units; undefined if they name none, or on a machine without systemd. */
export function readPinnedEngine(directory = "/etc/systemd/system"): string | undefined {
  for (const name of units) {
    try {
      const found = flagIn(readText(`${directory}/${name}`), "overlay-binary");
      if (found !== undefined) return found;
    } catch {
      // The unit is not installed or not readable: it names no engine.
    }
  }
  return undefined;
}

/**
 * Whether the installed unit of the engines starts this program. The unit of /etc stands above a package's. A mask counts as no
 * unit: after `systemctl unmask`, systemd starts the unit of the package again.
 */
export function isStartedByUnits(
  path: string,
  directories: readonly string[] = ["/etc/systemd/system", "/usr/lib/systemd/system"],
): boolean {
  const texts = directories.map((directory) => readUnit(`${directory}/${brand.id}@.service`));
  const text = texts.find((each) => each !== undefined);
  return text?.includes(`\nExecStart=${programWord(path)} -config `) === true;
}

/** The value of a flag in a unit's command line. Undoes the quoting of unit-file.ts. */
export function flagIn(unit: string, flag: string): string | undefined {
  const pattern = new RegExp(`^ExecStart=.* --${flag} (?:"((?:[^"\\\\]|\\\\.)*)"|(\\S+))`, "m");
  const [, quoted, bare] = pattern.exec(unit) ?? [];
  const word = quoted?.replace(/\\(.)/g, "$1") ?? bare;
  return word?.replaceAll("%%", "%").replaceAll("$$", "$");
}
