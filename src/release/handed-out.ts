// The signed release that a control plane hands out byte for byte, or why it has none to hand out; and the script that installs
// it. Only signatures by the release keys of this executable count. Must not download, and must not change a release.

import { existsSync, readdirSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import template from "../../install" with { type: "text" };
import { brand, releaseAddressPath } from "../brand.ts";
import { AppError } from "../base/errors.ts";
import { makeDirectory, writeFileAtomic } from "../base/files.ts";
import { isLoopback } from "../base/loopback.ts";
import { readBytes } from "../base/open-file.ts";
import type { System } from "../base/system.ts";
import { sha256Hex } from "../base/sha256.ts";
import {
  manifestName,
  maxManifestBytes,
  maxSignatureBytes,
  readManifest,
  signatureName,
  type Download,
  type Manifest,
} from "./manifest.ts";
import { readPublicKey, verifySignature } from "./minisign.ts";
import { releaseKeys } from "./published-release.ts";

/**
 * `releasesDirectory`: of `serve --releases`. It comes first: it can have programs for more systems. `keys`: in tests, in
 * place of those of this executable.
 */
export type ReleasePlaces = Pick<System, "executable" | "platform"> & {
  releasesDirectory?: string | undefined;
  keys?: readonly string[] | undefined;
};

/**
 * `sha256`: of the manifest. `key`: the public key of its signature. `targets`: those whose archives are there. `hasZst`: the
 * smaller archives of all of them are there, too.
 */
type HandedOut = { manifest: Manifest; sha256: string; key: string; targets: string[]; hasZst: boolean };

type Server = {
  system: Pick<System, "executable" | "platform">;
  releasesDirectory?: string;
  releaseKeys?: readonly string[];
};

/** The places of a control plane. */
export const placesOf = ({ system, releasesDirectory, releaseKeys }: Server): ReleasePlaces => ({
  executable: system.executable,
  platform: system.platform,
  releasesDirectory,
  keys: releaseKeys,
});

/** Where the installation keeps the release that it came from. */
export function keptRelease({ executable, platform }: Pick<System, "executable" | "platform">): string {
  return join(dirname(releaseAddressPath(executable, platform)), "release");
}

/** The path of this file of the release; undefined if no place has it. Manifest and signature come from one place. */
export function releaseFile(places: ReleasePlaces, name: string): string | undefined {
  const sought = name === signatureName ? manifestName : name;
  const directory = directoriesOf(places).find((each) => existsSync(join(each, sought)));
  return directory === undefined ? undefined : join(directory, name);
}

const directoriesOf = (places: ReleasePlaces) => [
  ...(places.releasesDirectory === undefined ? [] : [places.releasesDirectory]),
  keptRelease(places),
];

/**
 * The release that is handed out. Throws not_found with the reason, and what to do, if there is none that a key of this executable
 * signed. An expired one counts, too: the script names the version, and then installs it at any age.
 */
export function readHandedOut(places: ReleasePlaces, publicUrl: string): HandedOut {
  const keys = places.keys ?? releaseKeys();
  if (keys.length === 0)
    throw refused(
      "This control plane runs an unsigned build, so it hands out no program",
      publishHint(publicUrl),
    );
  const path = releaseFile(places, manifestName);
  const signaturePath = releaseFile(places, signatureName);
  if (path === undefined || signaturePath === undefined)
    throw refused(
      "The signed release that this program came from is not kept here, so it is not handed out",
      `As root: \`${brand.executable} setup --yes\` gets it from the publisher. Or give \`serve\` its directory: --releases DIR.`,
    );
  const { protocol, hostname } = new URL(publicUrl);
  if (protocol !== "https:" && !isLoopback(hostname))
    throw refused("Programs are handed out by TLS only", "Set --public-url to an https:// address.");
  const bytes = readBytes(path, maxManifestBytes);
  const signature = readBytes(signaturePath, maxSignatureBytes).toString("utf8");
  const rules = { nowMs: 0, seenSequence: 0, allowOld: true, ifOutdated: "" };
  const manifest = readManifest(bytes, signature, { ...rules, keys: keys.map(readPublicKey) });
  const key = keys.find((each) => isSignedBy(each, bytes, signature)) ?? "";
  const isThere = (download: Download | undefined) =>
    download !== undefined && releaseFile(places, download.file) !== undefined;
  const artifacts = manifest.artifacts.filter(isThere);
  const hasZst = artifacts.every(({ zst }) => isThere(zst));
  return { manifest, sha256: sha256Hex(bytes), key, targets: artifacts.map(({ target }) => target), hasZst };
}

function isSignedBy(key: string, bytes: Uint8Array, signature: string): boolean {
  try {
    verifySignature(bytes, signature, [readPublicKey(key)]);
    return true;
  } catch {
    return false;
  }
}

const refused = (message: string, hint: string) => new AppError("not_found", message, { hint });

const publishHint = (publicUrl: string) =>
  `Publish one: \`minisign -G -W -p release.pub -s release.key\`, then ` +
  `\`bun build.ts --release --secret-key release.key --release-url ${publicUrl}/releases/\`, and install it here: ` +
  `\`sh dist/release/install --version VERSION --release-url "$PWD/dist/release"\`.`;

/** What is written into the lines `name=` of the install script. */
export type InstallValues = {
  release_url: string;
  release_key: string;
  /** The SHA-256 of the manifest. */
  release_manifest: string;
  /** The version that a control plane hands out, and the CA of its certificate (PEM) where machines do not know it. */
  release_version?: string;
  release_ca?: string;
  /** `gz`: it has no other archives. */
  release_archives?: string;
};

/** The operator is told so long before a release expires. */
const warnMs = 14 * 86_400_000;

/** What the operator should know of the age of the release; undefined if it is young, or if nothing is handed out. */
export function agingOf(places: ReleasePlaces, publicUrl: string, nowMs: number): string | undefined {
  try {
    const { version, expires_at } = readHandedOut(places, publicUrl).manifest;
    const leftMs = Date.parse(expires_at) - nowMs;
    if (leftMs > warnMs) return undefined;
    return `Release ${version}, which is handed out, ${leftMs > 0 ? "expires" : "expired"} on ${expires_at.slice(0, 10)}`;
  } catch (error) {
    if (error instanceof AppError) return undefined;
    throw error;
  }
}

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

export type ReleaseFiles = {
  manifest: Uint8Array;
  signature: Uint8Array;
  archive: { file: string; content: Uint8Array };
};

/**
 * Whether the directory has this manifest and signature, and the archive `file`. All three are looked at, because a kill while
 * they are written leaves a release that no machine accepts.
 */
export function isKept(
  directory: string,
  { manifest, signature }: Pick<ReleaseFiles, "manifest" | "signature">,
  file: string,
): boolean {
  const has = (name: string, content: Uint8Array) =>
    existsSync(join(directory, name)) && readBytes(join(directory, name)).equals(content);
  return has(manifestName, manifest) && has(signatureName, signature) && existsSync(join(directory, file));
}

/** Keeps these verified files beside the executable, and deletes those of the release before. */
export function keepRelease(directory: string, { manifest, signature, archive }: ReleaseFiles): void {
  makeDirectory(directory, 0o755);
  writeFileAtomic(join(directory, archive.file), archive.content, 0o644);
  writeFileAtomic(join(directory, signatureName), signature, 0o644);
  writeFileAtomic(join(directory, manifestName), manifest, 0o644);
  const kept = [archive.file, signatureName, manifestName];
  for (const name of readdirSync(directory))
    if (!kept.includes(name)) rmSync(join(directory, name), { force: true });
}
