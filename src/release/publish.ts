// Creates a release directory: archives, manifest, signature, checksums, and the install script with the key filled in.
// Only the build uses it. The same input gives the same bytes.

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { brand } from "../brand.ts";
import { AppError } from "../base/errors.ts";
import { sha256Hex } from "../base/sha256.ts";
import { fillInstallScript } from "./install-script.ts";
import {
  manifestName,
  signatureName,
  writeManifest,
  type Artifact,
  type Download,
  Manifest,
} from "./manifest.ts";
import { makeSignature, writePublicKey, type SecretKey } from "./minisign.ts";

/** The name of the executable in the archive of a target. */
export function memberName(target: string): string {
  return target.includes("windows") ? `${brand.executable}.exe` : brand.executable;
}

/** Writes one executable to `directory` as .tar.gz and .tar.zst. `fast` compresses in a second instead of minutes. */
export async function packExecutable(
  directory: string,
  executable: Uint8Array,
  target: string,
  { version, fast }: { version: string; fast: boolean },
): Promise<Artifact> {
  const tar = tarOf(memberName(target), executable);
  const write = (suffix: string, content: Uint8Array): Download => {
    const file = `${brand.executable}-${version}-${target.replace(/^bun-/, "")}.tar.${suffix}`;
    writeFileSync(join(directory, file), content);
    return { file, size: content.length, sha256: sha256Hex(content) };
  };
  // Both formats store no time here, and one thread makes the result independent of the machine. Level 19 unpacks with
  // a window of 8 MB; higher levels save 2 MB and need 128 MB.
  const zst = write("zst", await Bun.zstdCompress(tar, { level: fast ? 1 : 19 }));
  const gz = write("gz", Bun.gzipSync(tar, { library: "libdeflate", level: fast ? 1 : 12 }));
  return { target, ...gz, zst };
}

/** Writes everything except the archives and packages, which are in `directory` already. */
export function writeRelease(
  directory: string,
  head: Omit<Manifest, "schema" | "product">,
  key: SecretKey,
  releaseUrl: string,
  packages: readonly string[] = [],
): void {
  mkdirSync(directory, { recursive: true });
  const manifest = writeManifest(requireManifest({ schema: 1, product: brand.id, ...head }));
  const comment = `${brand.id} ${head.version} sequence ${head.sequence}`;
  const files = new Map<string, string>([
    [manifestName, manifest],
    [signatureName, makeSignature(Buffer.from(manifest), key, comment)],
    [
      "install",
      fillInstallScript({
        release_url: releaseUrl,
        release_key: writePublicKey(key),
        release_manifest: sha256Hex(Buffer.from(manifest)),
      }),
    ],
  ]);
  const sums = [...files].map(([name, text]) => `${sha256Hex(Buffer.from(text))}  ${name}\n`);
  const downloads = head.artifacts.flatMap(({ zst, ...gz }) => (zst === undefined ? [gz] : [gz, zst]));
  for (const { file, sha256: sum } of downloads) {
    if (sha256Hex(readFileSync(join(directory, file))) !== sum)
      throw new AppError("failed", `Cannot write the release: ${file} has changed since it was packed`);
    sums.push(`${sum}  ${file}\n`);
  }
  for (const name of packages) sums.push(`${sha256Hex(readFileSync(join(directory, name)))}  ${name}\n`);
  // By name, which follows the digest and two blanks.
  files.set("SHA256SUMS", sums.sort((a, b) => (a.slice(66) < b.slice(66) ? -1 : 1)).join(""));
  // The manifest does not name packages: their package managers do not read it.
  if (packages.length > 0)
    files.set("SHA256SUMS.minisig", makeSignature(Buffer.from(files.get("SHA256SUMS") ?? ""), key, comment));
  for (const [name, text] of files) writeFileSync(join(directory, name), text);
}

/** The manifest, if nodes accept it: a publisher signs no other. */
function requireManifest(manifest: Manifest): Manifest {
  const { success, output, issues } = v.safeParse(Manifest, manifest);
  if (!success)
    throw new AppError(
      "failed",
      `Cannot sign the manifest: ${v.getDotPath(issues[0]) ?? ""}: ${issues[0].message}`,
    );
  if (output.expires_at > output.issued_at) return output;
  throw new AppError(
    "failed",
    `Cannot sign the manifest: it expires at ${output.expires_at}, when it is issued`,
  );
}

/** A tar archive (POSIX ustar, whose header has its fields at fixed offsets) with one file: mode 0755, owner root, time 0. */
function tarOf(name: string, content: Uint8Array): Uint8Array<ArrayBuffer> {
  const header = Buffer.alloc(512);
  header.write(name, 0, 100);
  header.write("0000755\0", 100);
  header.write("0000000\0", 108);
  header.write("0000000\0", 116);
  header.write(`${content.length.toString(8).padStart(11, "0")}\0`, 124);
  header.write("00000000000\0", 136);
  // The checksum, for which eight blanks stand in the sum, and the type: a plain file.
  header.write("        0", 148);
  header.write("ustar\u000000root", 257);
  header.write("root", 297);
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
  const padding = Buffer.alloc((512 - (content.length % 512)) % 512);
  return Buffer.concat([header, content, padding, Buffer.alloc(1024)]);
}
