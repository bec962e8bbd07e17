// What a release says of itself: manifest.json, signed as the bytes it consists of. Everything is refused that is not
// signed by a known key, is for another product, is older than what was seen, or has expired (decisions 9).

import * as v from "valibot";
import { brand } from "../brand.ts";
import { AppError } from "../errors.ts";
import { verifySignature, type PublicKey } from "./minisign.ts";

export const manifestName = "manifest.json";
export const signatureName = "manifest.json.minisig";
/** Larger manifests and signatures are not read. */
export const maxManifestBytes = 64 * 1024;
export const maxSignatureBytes = 4 * 1024;
export const maxArtifactBytes = 100 * 1024 * 1024;

const Version = v.pipe(v.string(), v.maxLength(17), v.regex(/^\d{1,5}\.\d{1,5}\.\d{1,5}$/));
const Time = v.pipe(v.string(), v.maxLength(64), v.isoTimestamp());
const Hash = v.pipe(v.string(), v.length(64), v.regex(/^[0-9a-f]{64}$/));
/** A plain name: what it says is joined to an address or a directory. */
const FileName = v.pipe(v.string(), v.maxLength(100), v.regex(/^[A-Za-z0-9][A-Za-z0-9._-]*$/));

const Artifact = v.object({
  /** Bun's name of the target, `bun-linux-x64`. */
  target: v.pipe(v.string(), v.maxLength(100)),
  file: FileName,
  size: v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(maxArtifactBytes)),
  sha256: Hash,
});
export type Artifact = v.InferOutput<typeof Artifact>;

export const Manifest = v.object({
  schema: v.literal(1),
  product: v.pipe(v.string(), v.maxLength(100)),
  /** Rises with every release; a machine takes none that is lower than one it has seen. */
  sequence: v.pipe(v.number(), v.integer(), v.minValue(1)),
  issued_at: Time,
  expires_at: Time,
  version: Version,
  artifacts: v.pipe(v.array(Artifact), v.maxLength(1000)),
  /** Archives of the overlay engine that this release vouches for, by their own names. */
  engines: v.optional(
    v.pipe(v.array(v.object({ version: Version, file: FileName, sha256: Hash })), v.maxLength(1000)),
    [],
  ),
});
export type Manifest = v.InferOutput<typeof Manifest>;

export type ManifestRules = {
  keys: readonly PublicKey[];
  nowMs: number;
  /** The highest sequence number seen so far. */
  seenSequence: number;
  /** An administrator asked for an older release by name: its age and number are no reason to refuse it. */
  allowOld: boolean;
};

/** Checks and reads the manifest; throws with the reason for which it is refused. */
export function readManifest(bytes: Uint8Array, signature: string, rules: ManifestRules): Manifest {
  if (rules.keys.length === 0) {
    throw new AppError("failed", "This build trusts no release key, so it can take no release");
  }
  verifySignature(bytes, signature, rules.keys);
  const parsed = v.safeParse(
    v.pipe(v.string(), v.parseJson(), Manifest),
    Buffer.from(bytes).toString("utf8"),
  );
  if (!parsed.success) {
    throw new AppError("failed", `The release's manifest is not as expected: ${parsed.issues[0].message}`);
  }
  const manifest = parsed.output;
  if (manifest.product !== brand.id) {
    throw new AppError("failed", `The release is of another product: ${manifest.product}`);
  }
  if (rules.allowOld) return manifest;
  if (manifest.sequence < rules.seenSequence) {
    throw new AppError(
      "failed",
      `The release has number ${manifest.sequence}, but ${rules.seenSequence} was seen already: it is an old one`,
    );
  }
  if (Date.parse(manifest.expires_at) <= rules.nowMs) {
    throw new AppError("failed", `The release expired on ${manifest.expires_at}`, {
      hint: "Either nothing newer is published, or something keeps it from this machine. Is the clock right?",
    });
  }
  return manifest;
}

/** The artifact for a target; a release need not hold all of them. */
export function artifactFor(manifest: Manifest, target: string): Artifact {
  const found = manifest.artifacts.find((artifact) => artifact.target === target);
  if (found !== undefined) return found;
  throw new AppError("failed", `Release ${manifest.version} has nothing for ${target}`);
}

/** JSON that a shell script can read too: one artifact a line, keys in this order. */
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
