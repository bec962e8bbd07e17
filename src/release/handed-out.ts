// The signed release that a control plane hands out byte for byte, or why it has none to hand out. Only signatures by the release
// keys of this executable count. Must not download, and must not change a release.

import { existsSync } from "node:fs";
import { join } from "node:path";
import { brand } from "../brand.ts";
import { AppError } from "../base/errors.ts";
import { isLoopback } from "../base/loopback.ts";
import { readBytes } from "../base/open-file.ts";
import type { System } from "../base/system.ts";
import { sha256Hex } from "../base/sha256.ts";
import { keptRelease } from "./kept-release.ts";
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

type HandedOut = {
  manifest: Manifest;
  /** Of the manifest's file. */
  sha256: string;
  /** The public key of its signature. */
  key: string;
  /** Those whose archives are there. */
  targets: string[];
  /** The smaller archives of all of them are there, too. */
  hasZst: boolean;
};

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
  // `allowOld`: time, sequence and its message do not matter.
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
