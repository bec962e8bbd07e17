// Fetches the signed release manifest from which this machine installs the agent and the engine. Verifies it with the
// keys of this build, the clock, and the highest sequence seen so far.

import { dirname } from "node:path";
import { brand, releaseAddressPath } from "../brand.ts";
import { buildInfo } from "../build-info.ts";
import { AppError } from "../base/errors.ts";
import { readTextIfThere } from "../base/files.ts";
import { foreignFile, foreignPlace } from "../platform/program-safety.ts";
import { fetchFile, smallFileMs, type DownloadOptions, type DownloadSystem } from "./download.ts";
import {
  manifestName,
  maxManifestBytes,
  maxSignatureBytes,
  readManifest,
  signatureName,
  type Manifest,
} from "./manifest.ts";
import { readPublicKey } from "./minisign.ts";
import { shownAddress } from "./release-address.ts";
import type { System } from "../base/system.ts";

export type UpdateRequest = {
  version?: string | undefined;
  releaseUrl?: string | undefined;
  allowDowngrade: boolean;
};

/** `base`: where it came from, see `fetchFile`. */
type Published = { base: string; manifest: Uint8Array; signature: Uint8Array };

export type Patience = Pick<DownloadOptions, "stallMs" | "totalMs">;

/** Public keys that may sign releases for this build. */
export function releaseKeys(): string[] {
  return [...brand.releaseKeys, ...buildInfo.releaseKeys];
}

/** The published manifest, not verified yet. */
export async function fetchRelease(
  request: UpdateRequest,
  system: DownloadSystem & Pick<System, "executable" | "platform">,
  patience: Patience = {},
): Promise<Published> {
  const base = releaseBase(request, system);
  const limits = { totalMs: smallFileMs, ...patience };
  const [manifest, signature] = await Promise.all([
    fetchFile(base, manifestName, { maxBytes: maxManifestBytes, ...limits }, system),
    fetchFile(base, signatureName, { maxBytes: maxSignatureBytes, ...limits }, system),
  ]);
  return { base, manifest, signature };
}

/** Throws if the release must not be installed, with the reason. `seenSequence`: the highest so far. */
export function checkRelease(
  { base, manifest: bytes, signature }: Published,
  request: UpdateRequest & { isForEngine?: boolean },
  seenSequence: number,
  system: Pick<System, "now">,
): Manifest {
  const manifest = readManifest(bytes, Buffer.from(signature).toString("utf8"), {
    keys: releaseKeys().map(readPublicKey),
    nowMs: system.now(),
    seenSequence,
    allowOld: request.allowDowngrade,
    ifOutdated:
      request.isForEngine === true
        ? `Use an up-to-date mirror, or install an engine whose file you have: \`${brand.executable} overlay install --source file\`.`
        : `Use an up-to-date mirror. \`${brand.executable} self-update --allow-downgrade\` accepts an older release.`,
  });
  if (request.version !== undefined && manifest.version !== request.version) {
    throw new AppError(
      "failed",
      `The release at ${shownAddress(base)} is ${manifest.version}, not ${request.version}`,
    );
  }
  return manifest;
}

/**
 * The release address (see release-address.ts) that came with this executable; undefined if none did. Throws if other users than
 * root can change it.
 */
export function releaseAddress({ executable, platform }: Pick<System, "executable" | "platform">) {
  const path = releaseAddressPath(executable, platform);
  const text = readTextIfThere(path)?.trim();
  if (text === undefined || text === "") return undefined;
  const foreign = foreignPlace(dirname(path)) ?? foreignFile(path);
  if (foreign !== undefined)
    throw new AppError(
      "bad_configuration",
      `Only root may be able to change the address of releases: ${foreign.why}`,
      {
        hint: `Check the content, then run: ${foreign.remedy}`,
      },
    );
  if (text.length > longestAddress || /\p{Cc}/u.test(text))
    throw new AppError("bad_configuration", `${path} holds no address of releases`, {
      hint: `Write one line into it, such as https://control.example.org/releases/, or name one with --release-url.`,
    });
  return text;
}

const longestAddress = 2048;

/** The message of the error, and of `agent version`, which then checks for no update. */
export const noAddress = "This program came without an address of releases";

/** Where the manifest is. Throws if this program came without an address and none is given. */
export function releaseBase(
  { version, releaseUrl }: Omit<UpdateRequest, "allowDowngrade">,
  system: Pick<System, "executable" | "platform">,
): string {
  if (releaseUrl !== undefined) return releaseUrl;
  const address = releaseAddress(system);
  if (address === undefined)
    throw new AppError("failed", noAddress, {
      hint: `Name one with --release-url, or install ${brand.executable} from a published release, which has one.`,
    });
  // The layout of the release pages of code hosts, as in the script `install`.
  return version === undefined
    ? address
    : address.replace(/\/latest\/download\/?$/, `/download/v${version}/`);
}
