// A file of packed names, ready to be answered from. It is for many names alone: reading them all from hosts.json takes
// seconds and tens of megabytes, which a process of its own spends, so that the resolver goes on answering meanwhile.

import * as v from "valibot";
import { buildInfo } from "../../build-info.ts";
import { writeFileAtomic } from "../../base/files.ts";
import { Zone } from "./name-records.ts";
import { readBytes } from "../../base/open-file.ts";

/** Lies in the unit's CacheDirectory, which survives a restart of the machine. */
export const preparedFile = "names.packed";

/** A hundred bytes for each of some hundred thousand nodes, many times over. */
const maxBytes = 256 * 1024 * 1024;

/** Another build may check names otherwise. */
const build = `${buildInfo.version} ${buildInfo.commit}`;

const Head = v.object({
  build: v.literal(build),
  /** The state of the files before they were read. */
  state: v.pipe(v.string(), v.maxLength(1_000_000)),
  zones: v.pipe(v.array(Zone), v.maxLength(1000), v.readonly()),
  /** Hash of the packed names: a file that a full disk or a crash damaged is not used. */
  sum: v.pipe(v.string(), v.maxLength(16)),
});

export type Prepared = { state: string; zones: readonly Zone[]; packed: Uint8Array };

export function writePrepared(path: string, { state, zones, packed }: Prepared): void {
  const head: v.InferOutput<typeof Head> = {
    build,
    state,
    zones,
    sum: sumOf(packed),
  };
  writeFileAtomic(path, Buffer.concat([Buffer.from(`${JSON.stringify(head)}\n`), packed]), 0o600);
}

/** Undefined without the file, and if it is damaged or of another build. */
export function readPrepared(path: string): Prepared | undefined {
  try {
    const bytes = readBytes(path, maxBytes);
    const end = bytes.indexOf("\n");
    const { state, zones, sum } = v.parse(Head, JSON.parse(bytes.toString("utf8", 0, end)));
    const packed = bytes.subarray(end + 1);
    return sumOf(packed) === sum ? { state, zones, packed } : undefined;
  } catch {
    return undefined;
  }
}

const sumOf = (packed: Uint8Array) => Bun.hash(packed).toString(16);
