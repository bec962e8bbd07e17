// The script `install`, with what a release or a control plane fills into it, and the line that runs it on a new machine.

import template from "../../install" with { type: "text" };
import { AppError } from "../base/errors.ts";
import { sha256Hex } from "../base/sha256.ts";
import { readHandedOut, type ReleasePlaces } from "./handed-out.ts";

/** What is written into the lines `name=` of the install script. */
export type InstallValues = {
  release_url: string;
  release_key: string;
  /** The SHA-256 of the manifest. */
  release_manifest: string;
  /** The version that a control plane hands out, and the CA of its certificate (PEM) where machines do not know it. */
  release_version?: string;
  release_ca?: string;
  /** `gz`: the release has no other archives. "": machines with zstd take the smaller ones. */
  release_archives?: string;
};

/** The install script with these values. */
export function fillInstallScript(values: InstallValues): string {
  let script = template;
  for (const [name, value] of Object.entries(values)) {
    const line = new RegExp(`^${name}=$`, "m");
    if (!line.test(script)) throw new AppError("failed", `The install script has no line ${name}=`);
    script = script.replace(line, () => `${name}='${value.replaceAll("'", "'\\''")}'`);
  }
  return script;
}

/** The script that installs the release from this control plane, and the line that runs it on a new machine, as root. */
export function installerOf(
  places: ReleasePlaces,
  { publicUrl, caPem }: { publicUrl: string; caPem?: string | undefined },
): { script: string; command: string; version: string; targets: string[] } {
  const { manifest, key, sha256: sum, targets, hasZst } = readHandedOut(places, publicUrl);
  const script = fillInstallScript({
    release_url: `${publicUrl}/releases/`,
    release_key: key,
    release_manifest: sum,
    release_version: manifest.version,
    release_ca: caPem?.trim() ?? "",
    release_archives: hasZst ? "" : "gz",
  });
  const url = `${publicUrl}/install`;
  const command =
    caPem === undefined ? `curl -fsSL ${url} | sh` : pinned(url, sha256Hex(Buffer.from(script)));
  return { script, command, version: manifest.version, targets };
}

/**
 * The line that runs the installer from a control plane whose CA machines do not know yet: curl does not verify it (-k), so the
 * line has the digest of the script. It keeps the script in a variable: a file could be exchanged between check and run.
 */
const pinned = (url: string, sum: string) =>
  `s=$(curl -fsSk ${url}) && if printf '%s\\n' "$s" | { sha256sum 2>/dev/null || shasum -a 256; } | grep -q ^${sum}; ` +
  `then printf '%s\\n' "$s" | sh; else echo 'Not the script that this line names: nothing was run. Copy the line anew.' >&2; false; fi`;
