// The manifest of a release (manifest.json) and its checks. Refuses a manifest without a valid signature of a trusted
// key, of another product, older than one already seen, or expired. The signature covers the exact bytes of the file.

import * as v from "valibot";
import { brand } from "../brand.ts";
import { AppError } from "../base/errors.ts";
import { verifySignature, type PublicKey } from "./minisign.ts";
import { foreignText } from "../base/text.ts";

export const manifestName = "manifest.json";
export const signatureName = "manifest.json.minisig";
/** Maximum sizes to download. */
export const maxManifestBytes = 64 * 1024;
export const maxSignatureBytes = 4 * 1024;
export const maxArtifactBytes = 100 * 1024 * 1024;

const Version = v.pipe(foreignText(17), v.regex(/^\d{1,5}\.\d{1,5}\.\d{1,5}$/));
const Time = v.pipe(foreignText(64), v.isoTimestamp());
const Hash = v.pipe(foreignText(64), v.length(64), v.regex(/^[0-9a-f]{64}$/));
/** No path separators: the name is appended to a URL or a directory. */
const FileName = v.pipe(foreignText(100), v.regex(/^[A-Za-z0-9][A-Za-z0-9._-]*$/));

const Download = v.object({
  file: FileName,
  size: v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(maxArtifactBytes)),
  sha256: Hash,
});
export type Download = v.InferOutput<typeof Download>;

const Artifact = v.object({
  /** Bun's name of the target, `bun-linux-x64`. */
  target: foreignText(100),
  /** The .tar.gz, which agents before the field `zst` and machines without zstd can read. */
  ...Download.entries,
  /** The same content as .tar.zst, which is smaller. */
  zst: v.optional(Download),
});
export type Artifact = v.InferOutput<typeof Artifact>;

export const Manifest = v.object({
  schema: v.literal(1),
  product: foreignText(100),
  /** Increases with every release. A node refuses a release with a lower number than one it has seen. */
  sequence: v.pipe(v.number(), v.integer(), v.minValue(1)),
  issued_at: Time,
  expires_at: Time,
  version: Version,
  artifacts: v.pipe(v.array(Artifact), v.maxLength(1000)),
  /** Trusted archives of the overlay engine, by the file names of the engine's own releases. */
  engines: v.optional(
    v.pipe(v.array(v.object({ version: Version, file: FileName, sha256: Hash })), v.maxLength(1000)),
    [],
  ),
});
export type Manifest = v.InferOutput<typeof Manifest>;

/** What a manifest must fulfil to be accepted. */
export type ManifestRules = {
  keys: readonly PublicKey[];
  nowMs: number;
  /** The highest sequence number seen so far. */
  seenSequence: number;
  /** True if the administrator asked for an older release: then accept any sequence number and age. */
  allowOld: boolean;
  /** What to do about an outdated release, for the command that reads it. */
  ifOutdated: string;
};

/** Verifies and parses the manifest; throws the reason if it is refused. */
export function readManifest(bytes: Uint8Array, signature: string, rules: ManifestRules): Manifest {
  if (rules.keys.length === 0) {
    throw new AppError("failed", "This build trusts no release key, so it cannot use any release", {
      hint: "Install an agent from a signed release, or build one with --release --secret-key FILE.",
    });
  }
  verifySignature(bytes, signature, rules.keys);
  const parsed = v.safeParse(
    v.pipe(v.string(), v.parseJson(), Manifest),
    Buffer.from(bytes).toString("utf8"),
  );
  if (!parsed.success) {
    throw new AppError("failed", `The manifest of the release is invalid: ${parsed.issues[0].message}`);
  }
  const manifest = parsed.output;
  if (manifest.product !== brand.id) {
    throw new AppError("failed", `The release is for another product: ${manifest.product}`);
  }
  if (rules.allowOld) return manifest;
  if (manifest.sequence < rules.seenSequence) {
    throw new AppError(
      "failed",
      `The release is outdated: its sequence number is ${manifest.sequence}, and this machine has seen ${rules.seenSequence}`,
      {
        hint: rules.ifOutdated,
      },
    );
  }
  if (Date.parse(manifest.expires_at) <= rules.nowMs) {
    throw new AppError("failed", `The release expired on ${manifest.expires_at}`, {
      hint: "Check the clock of this machine. If it is right, ask the publisher for a newer release.",
    });
  }
  return manifest;
}

/** The downloads for a target, the smallest first; the last one is the .tar.gz, which every machine can unpack. */
export function artifactsFor(manifest: Manifest, target: string): [Download, ...Download[]] {
  const found = manifest.artifacts.find((artifact) => artifact.target === target);
  if (found !== undefined) return found.zst === undefined ? [found] : [found.zst, found];
  throw new AppError("failed", `Release ${manifest.version} has no executable for ${target}`);
}

/** The smallest download for a target. */
export const artifactFor = (manifest: Manifest, target: string): Download =>
  artifactsFor(manifest, target)[0];

/** JSON with one artifact per line and a fixed key order, because the install script reads it with sed. */
export function writeManifest(manifest: Manifest): string {
  const rows = (name: string, items: readonly object[]) =>
    items.length === 0
      ? `  ${JSON.stringify(name)}: []`
      : `  ${JSON.stringify(name)}: [\n${items.map((item) => `    ${JSON.stringify(item)}`).join(",\n")}\n  ]`;
  const { artifacts, engines, ...head } = manifest;
  const fields = Object.entries(head).map(
    ([key, value]) => `  ${JSON.stringify(key)}: ${JSON.stringify(value)}`,
  );
  return `{\n${[...fields, rows("artifacts", artifacts), rows("engines", engines)].join(",\n")}\n}\n`;
}
