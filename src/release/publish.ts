// Makes a release directory (decisions 9): archives, manifest, signature, sums, and the install script with the key
// filled in. Used by the build alone; the same input gives the same bytes.

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brand } from "../brand.ts";
import { AppError } from "../errors.ts";
import { sha256 } from "./download.ts";
import { manifestName, signatureName, writeManifest, type Artifact, type Manifest } from "./manifest.ts";
import { makeSignature, writePublicKey, type SecretKey } from "./minisign.ts";

/** The name of the executable in the archive of a target. */
export function memberName(target: string): string {
  return target.includes("windows") ? `${brand.executable}.exe` : brand.executable;
}

/** Packs one executable as .tar.xz. `level` is a preset of xz(1), such as "9e". */
export async function packExecutable(
  executable: Uint8Array,
  target: string,
  options: { version: string; level: string },
): Promise<{ artifact: Artifact; content: Uint8Array }> {
  const content = await xz(tarOf(memberName(target), executable), options.level);
  const file = `${brand.executable}-${options.version}-${target.replace(/^bun-/, "")}.tar.xz`;
  return { artifact: { target, file, size: content.length, sha256: sha256(content) }, content };
}

/** Writes everything but the archives, which lie in `directory` already. */
export function writeRelease(
  directory: string,
  head: Omit<Manifest, "schema" | "product">,
  key: SecretKey,
  install: { template: string; releaseUrl: string },
): void {
  mkdirSync(directory, { recursive: true });
  const manifest = writeManifest({ schema: 1, product: brand.id, ...head });
  const comment = `${brand.id} ${head.version} sequence ${head.sequence}`;
  const files = new Map<string, string>([
    [manifestName, manifest],
    [signatureName, makeSignature(Buffer.from(manifest), key, comment)],
    [
      "install",
      fillInstallScript(install.template, {
        release_url: install.releaseUrl,
        release_key: writePublicKey(key),
        release_manifest: sha256(Buffer.from(manifest)),
      }),
    ],
  ]);
  const sums = [...files].map(([name, text]) => `${sha256(Buffer.from(text))}  ${name}\n`);
  for (const { file, sha256: sum, size } of head.artifacts) {
    if (readFileSync(join(directory, file)).length !== size)
      throw new AppError("failed", `${file} has changed`);
    sums.push(`${sum}  ${file}\n`);
  }
  files.set("SHA256SUMS", sums.sort((a, b) => (a.slice(66) < b.slice(66) ? -1 : 1)).join(""));
  for (const [name, text] of files) writeFileSync(join(directory, name), text);
}

/** The install script of a release: with the place to take it from and the key to check it with. */
function fillInstallScript(template: string, values: Record<string, string>): string {
  return Object.entries(values).reduce((script, [name, value]) => {
    const line = new RegExp(`^${name}=$`, "m");
    if (!line.test(script)) throw new AppError("failed", `The install script has no line ${name}=`);
    return script.replace(line, () => `${name}='${value.replaceAll("'", "'\\''")}'`);
  }, template);
}

/** A tar archive (POSIX ustar) with one file: mode 0755, root, time 0. */
function tarOf(name: string, content: Uint8Array): Uint8Array {
  const header = Buffer.alloc(512);
  header.write(name, 0, 100);
  header.write("0000755\0", 100);
  header.write("0000000\0", 108);
  header.write("0000000\0", 116);
  header.write(`${content.length.toString(8).padStart(11, "0")}\0`, 124);
  header.write("00000000000\0", 136);
  header.write("        0", 148);
  header.write("ustar\u000000root", 257);
  header.write("root", 297);
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
  const padding = Buffer.alloc((512 - (content.length % 512)) % 512);
  return Buffer.concat([header, content, padding, Buffer.alloc(1024)]);
}

/** One thread and one block, so that the result does not depend on the machine. */
async function xz(content: Uint8Array, level: string): Promise<Uint8Array> {
  const program = Bun.which("xz");
  if (program === null) throw new AppError("failed", "Packing a release needs xz (Debian: xz-utils)");
  const child = Bun.spawn([program, `-${level}`, "--threads=1", "--check=sha256", "--stdout"], {
    stdin: new Blob([Buffer.from(content)]),
    stdout: "pipe",
    stderr: "inherit",
  });
  const packed = new Uint8Array(await new Response(child.stdout).arrayBuffer());
  if ((await child.exited) !== 0) throw new AppError("failed", "xz failed");
  return packed;
}
