// The repositories of a release, for apt and for dnf: indexes of its packages, signed by an OpenPGP key. gpg signs, and
// createrepo_c writes the index of the .rpm packages.

import { copyFileSync, linkSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { brand } from "../src/brand.ts";
import { defer } from "../src/base/defer.ts";
import { readMember } from "../src/release/archive.ts";
import { sha256Hex } from "../src/base/sha256.ts";
import { installMissing } from "../test/support/debian.ts";

/** `keyFile`: as `gpg --export-secret-keys` writes it. */
export type RepositoryKey = { keyFile: string; passwordFile?: string | undefined };

const createrepo = "/usr/bin/createrepo_c";
/** Its public half, in both repositories. */
const keyName = `${brand.id}.asc`;

/** Writes `apt/` and `rpm/` into `outdir`, where these packages are. `timeS`: of the commit. */
export function makeRepositories(
  outdir: string,
  packages: readonly string[],
  timeS: number,
  key: RepositoryKey,
): void {
  const missing = installMissing(["/usr/bin/gpg", createrepo]);
  if (missing !== undefined) throw new Error(`Repositories need gpg and createrepo_c: ${missing}`);
  using keyring = openKeyring(key);
  const lay = (kind: string, suffix: string) => {
    const directory = join(outdir, kind);
    rmSync(directory, { recursive: true, force: true });
    mkdirSync(directory);
    const names = packages.filter((name) => name.endsWith(suffix)).toSorted();
    for (const name of names) copy(join(outdir, name), join(directory, name));
    keyring.run(["--armor", "--output", join(directory, keyName), "--export"]);
    return { directory, names };
  };
  const apt = lay("apt", ".deb");
  const index = apt.names.map((name) => entryOf(apt.directory, name)).join("\n");
  const files = { Packages: Buffer.from(index), "Packages.gz": gzipSync(index, { level: 9 }) };
  for (const [name, content] of Object.entries(files)) writeFileSync(join(apt.directory, name), content);
  writeFileSync(join(apt.directory, "Release"), releaseOf(files, timeS));
  keyring.run(["--output", join(apt.directory, "InRelease"), "--clear-sign", join(apt.directory, "Release")]);
  const rpm = lay("rpm", ".rpm");
  const revision = ["--revision", String(timeS), "--set-timestamp-to-revision"];
  runProgram([createrepo, "--quiet", "--no-database", ...revision, rpm.directory]);
  keyring.run(["--armor", "--detach-sign", join(rpm.directory, "repodata/repomd.xml")]);
}

function copy(from: string, to: string): void {
  try {
    linkSync(from, to);
  } catch {
    // Some file systems have no hard links.
    copyFileSync(from, to);
  }
}

/** The entry of a package in the index of apt, as dpkg-scanpackages writes it. */
function entryOf(directory: string, name: string): string {
  const content = readFileSync(join(directory, name));
  const control = Buffer.from(readMember(memberOf(content, "control.tar.gz"), "control"))
    .toString("utf8")
    .trimEnd();
  return `${control}\nFilename: ./${name}\nSize: ${content.length}\nSHA256: ${sha256Hex(content)}\n`;
}

/** A file of a .deb, which is an archive of ar: a line, then for each file 60 bytes of header and an even number of content. */
function memberOf(archive: Buffer, wanted: string): Buffer {
  for (let at = 8; at < archive.length;) {
    const header = archive.toString("latin1", at, at + 60);
    const size = Number(header.slice(48, 58));
    if (header.slice(0, 16).trim().replace(/\/$/, "") === wanted)
      return archive.subarray(at + 60, at + 60 + size);
    at += 60 + size + (size % 2);
  }
  throw new Error(`A package has no ${wanted}`);
}

/** Without Valid-Until: a control plane that is not upgraded for months must not break `apt update` of its nodes. */
function releaseOf(files: Readonly<Record<string, Buffer>>, timeS: number): string {
  const sums = Object.entries(files).map(
    ([name, content]) => ` ${sha256Hex(content)} ${content.length} ${name}`,
  );
  return [
    `Origin: ${brand.title}`,
    `Label: ${brand.title}`,
    "Suite: stable",
    `Date: ${new Date(timeS * 1000).toUTCString().replace("GMT", "+0000")}`,
    "Architectures: amd64 arm64",
    "SHA256:",
    ...sums,
    "",
  ].join("\n");
}

/** A keyring of its own, which is deleted: the secret key does not get into that of the user. */
function openKeyring({ keyFile, passwordFile }: RepositoryKey) {
  const home = mkdtempSync(join(tmpdir(), "keyring-"));
  const password =
    passwordFile === undefined ? [] : ["--pinentry-mode", "loopback", "--passphrase-file", passwordFile];
  const run = (argv: readonly string[]) =>
    runProgram(["/usr/bin/gpg", "--homedir", home, "--batch", "--quiet", ...password, ...argv]);
  const end = () => {
    // The agent of gpg would keep the key in memory.
    Bun.spawnSync(["/usr/bin/gpgconf", "--homedir", home, "--kill", "all"]);
    rmSync(home, { recursive: true, force: true });
  };
  try {
    run(["--import", keyFile]);
  } catch (error) {
    end();
    throw error;
  }
  return { run, ...defer(end) };
}

function runProgram(argv: readonly string[]): void {
  const { exitCode, stderr } = Bun.spawnSync([...argv], {
    stdin: "ignore",
    stdout: "ignore",
    stderr: "pipe",
  });
  if (exitCode !== 0) throw new Error(`${argv[0]} ended with ${exitCode}: ${stderr.toString().trim()}`);
}
