// A local release channel of the engine: archives with the published layout, packed by tar from real engines, with their
// SHASUM256.txt.

import { copyFileSync, mkdirSync, mkdtempSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { archiveName } from "../../src/platform/engine-archive.ts";
import { sha256Hex } from "../../src/base/sha256.ts";
import { runSync } from "./debian.ts";
import type { Engine } from "./engines.ts";

export const archive = archiveName(process);

export type Channel = Disposable & {
  /** For --release-url, with a placeholder for the version. */
  url: string;
  /** Path below the channel → content, which tests may change. */
  files: Map<string, Uint8Array>;
  /** Adds an archive and its sums as version `version`. */
  publish(version: string, bytes: Uint8Array, sum?: string): void;
};

/** `nebula` and `nebula-cert` at the top level of the archive, as published. */
export function packEngine(
  work: string,
  { nebula, nebulaCert }: Pick<Engine, "nebula" | "nebulaCert">,
): Uint8Array {
  const directory = mkdtempSync(join(work, "pack-"));
  mkdirSync(directory, { recursive: true });
  copyFileSync(nebula, join(directory, "nebula"));
  copyFileSync(nebulaCert, join(directory, "nebula-cert"));
  return packFiles(directory, ["nebula", "nebula-cert"]);
}

/** Packs these names of the directory with tar and gzip. */
export function packFiles(
  directory: string,
  names: readonly string[],
  flags: readonly string[] = [],
): Uint8Array {
  const path = join(directory, "out.tar.gz");
  const argv = ["tar", "--owner=0", "--group=0", "-C", directory, "-I", "gzip -1", ...flags];
  runSync([...argv, "-cf", path, ...names]);
  return readFileSync(path);
}

export function openChannel(): Channel {
  const files = new Map<string, Uint8Array>();
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    fetch(request) {
      const content = files.get(new URL(request.url).pathname);
      return content === undefined ? new Response("", { status: 404 }) : new Response(Buffer.from(content));
    },
  });
  return {
    url: `http://127.0.0.1:${server.port}/v{version}/`,
    files,
    publish(version, bytes, sum = sha256Hex(bytes)) {
      const lines = [`${sum}  ${archive}`, `${"0".repeat(64)}  ${archive}/nebula`];
      files.set(`/v${version}/${archive}`, bytes);
      files.set(`/v${version}/SHASUM256.txt`, Buffer.from(`${lines.join("\n")}\n`));
    },
    [Symbol.dispose]: () => void server.stop(true),
  };
}
