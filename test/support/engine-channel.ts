// A release channel of the engine on this machine: archives in the layout of the published ones, packed by the real tar
// from the real engines, with their SHASUM256.txt.

import { copyFileSync, mkdirSync, mkdtempSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { archiveName } from "../../src/platform/engine-archive.ts";
import { sha256 } from "../../src/release/download.ts";
import { runSync } from "./debian.ts";
import type { Engine } from "./engines.ts";

export const archive = archiveName(process);

export type Channel = Disposable & {
  /** For --release-url; it holds a place for the version. */
  url: string;
  /** Path below the channel → content; tests put anything here. */
  files: Map<string, Uint8Array>;
  /** Puts an archive and its sums there as version `version`. */
  publish(version: string, bytes: Uint8Array, sum?: string): void;
};

/** `nebula` and `nebula-cert` at the top of the archive, as the published ones are. */
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

/** What the real tar and gzip make of these names in the directory. */
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
    publish(version, bytes, sum = sha256(bytes)) {
      const lines = [`${sum}  ${archive}`, `${"0".repeat(64)}  ${archive}/nebula`];
      files.set(`/v${version}/${archive}`, bytes);
      files.set(`/v${version}/SHASUM256.txt`, Buffer.from(`${lines.join("\n")}\n`));
    },
    [Symbol.dispose]: () => void server.stop(true),
  };
}
