// Downloads files of a release over TLS, from loopback or from a directory, with a maximum size and time. Callers must
// verify what it returns.

import { statSync } from "node:fs";
import { isAbsolute, join } from "node:path";
import { AppError, fromSystemError, messageOf } from "../base/errors.ts";
import { takesEscapes, type System } from "../base/system.ts";
import type { Step } from "../base/plan/plan.ts";
import { readBytes } from "../base/open-file.ts";
import { isReleaseUrl, shownAddress } from "./release-address.ts";

/** A download that is too slow for this long is aborted. */
const usualStallMs = 30_000;
/** The least rate in that time: a mirror that sends a byte now and then must not delay an update for weeks. */
const minBytesPerSecond = 4096;
const maxRedirects = 5;
/** The longest time for manifests and other small files. */
export const smallFileMs = 60_000;

/**
 * `trusts` marks a system that trustingControlPlanes made (node/files/pinned-authorities.ts), so that no download forgets to trust
 * the authority of a control plane that offers releases.
 */
export type DownloadSystem = Pick<System, "fetch" | "sleep"> & Trusting;
export type Trusting = { readonly trusts: "control planes" };

export type DownloadOptions = {
  maxBytes: number;
  /** Called with the received bytes, and the total if known. */
  onProgress?: (done: number, total: number | undefined) => void;
  /** The time in which enough data must arrive, in ms. */
  stallMs?: number;
  /** Longest time for the whole download, in ms. By default the size and the slowest permitted rate limit it. */
  totalMs?: number;
};

/** The server answered that it has no such file (404). */
export class FileMissing extends AppError {}

/** Reads the file `name` of the release at `base`: an https or loopback URL, or an absolute directory. */
export async function fetchFile(
  base: string,
  name: string,
  options: DownloadOptions,
  system: DownloadSystem,
): Promise<Uint8Array> {
  if (isAbsolute(base)) return readLocal(join(base, name), options.maxBytes);
  return download(new URL(name, withSlash(base)).href, options, system);
}

/** The request of `fetchFile`; none if the release is in a directory. */
export const planGet = (base: string, name: string): Step[] =>
  isAbsolute(base) ? [] : [{ step: "request", method: "GET", url: withSlash(shownAddress(base)) + name }];

/** A line on standard error, redrawn on a terminal that takes escape sequences; otherwise nothing. `end` clears it. */
export function makeProgress(label: string, { stderr: output, env }: Pick<System, "stderr" | "env">) {
  const isDrawn = takesEscapes(output, env);
  let shown = -1;
  return {
    update(done: number, total: number | undefined): void {
      if (!isDrawn) return;
      const step = total === undefined ? Math.floor(done / 1e6) : Math.floor((done / total) * 100);
      if (step === shown) return;
      shown = step;
      output.write(
        `\r\u001b[K${label} ${bar(done, total, Math.max(10, output.columns - label.length - 24))}`,
      );
    },
    end(): void {
      if (shown >= 0) output.write("\r\u001b[K");
    },
  };
}

function bar(done: number, total: number | undefined, width: number): string {
  const megabytes = `${(done / 1e6).toFixed(1)} MB`;
  if (total === undefined || total === 0) return megabytes;
  const filled = Math.min(width, Math.round((done / total) * width));
  return `[${"#".repeat(filled)}${".".repeat(width - filled)}] ${megabytes}`;
}

function readLocal(path: string, maxBytes: number): Uint8Array {
  try {
    if (statSync(path).size > maxBytes) throw tooLarge(path, maxBytes);
    return readBytes(path, maxBytes);
  } catch (error) {
    throw fromSystemError(`read ${path}`, error);
  }
}

async function download(
  address: string,
  options: DownloadOptions,
  system: DownloadSystem,
): Promise<Uint8Array> {
  const abort = new AbortController();
  const stallMs = options.stallMs ?? usualStallMs;
  const stallTimer = abortAfter(stallMs, abort, system);
  const totalTimer = options.totalMs === undefined ? undefined : abortAfter(options.totalMs, abort, system);
  try {
    const response = await follow(address, abort.signal, system);
    return await readBody(response, address, options, makePace(stallMs, stallTimer.restart));
  } catch (error) {
    if (error instanceof AppError) throw error;
    const reason = abort.signal.aborted ? "the server does not answer in time" : messageOf(error);
    throw new AppError("control_plane_unreachable", `Cannot download ${shownAddress(address)}: ${reason}`, {
      cause: error,
      hint: "Check the network, or choose another address with --release-url.",
    });
  } finally {
    stallTimer.stop();
    totalTimer?.stop();
  }
}

/** The answer at the end of redirects. Follows them itself, because none may leave TLS. */
async function follow(address: string, signal: AbortSignal, system: DownloadSystem): Promise<Response> {
  for (let hop = 0, at = address; hop <= maxRedirects; hop++) {
    if (!isReleaseUrl(at))
      throw new AppError("failed", `Releases need an https:// address, not ${shownAddress(at)}`);
    const response = await system.fetch(at, { redirect: "manual", signal });
    const location = response.headers.get("location");
    if (response.status >= 300 && response.status < 400 && location !== null) {
      await response.body?.cancel();
      at = new URL(location, at).href;
      continue;
    }
    if (response.status === 200) return response;
    await response.body?.cancel();
    if (response.status === 404)
      throw new FileMissing("failed", `Cannot download ${shownAddress(at)}: the server returned status 404`);
    const code = response.status >= 500 ? "control_plane_unreachable" : "failed";
    throw new AppError(
      code,
      `Cannot download ${shownAddress(at)}: the server returned status ${response.status}`,
    );
  }
  throw new AppError("failed", `Cannot download ${shownAddress(address)}: too many redirects`);
}

async function readBody(
  response: Response,
  address: string,
  options: DownloadOptions,
  received: (bytes: number) => void,
): Promise<Uint8Array> {
  const length = response.headers.get("content-length");
  const total = length === null || response.headers.has("content-encoding") ? undefined : Number(length);
  if (total !== undefined && total > options.maxBytes) {
    await response.body?.cancel();
    throw tooLarge(address, options.maxBytes);
  }
  const chunks: Uint8Array[] = [];
  let done = 0;
  for await (const chunk of response.body ?? []) {
    received(chunk.length);
    done += chunk.length;
    if (done > options.maxBytes) throw tooLarge(address, options.maxBytes);
    chunks.push(chunk);
    options.onProgress?.(done, total);
  }
  if (total !== undefined && done !== total) {
    throw new AppError(
      "failed",
      `Cannot download ${shownAddress(address)}: the connection ended after ${done} of ${total} bytes`,
    );
  }
  return Buffer.concat(chunks);
}

/** A function for received bytes: calls `onPace` each time that the least amount for `ms` has arrived. */
function makePace(ms: number, onPace: () => void): (bytes: number) => void {
  const leastBytes = (ms / 1000) * minBytesPerSecond;
  let missing = leastBytes;
  return (bytes) => {
    missing -= bytes;
    if (missing > 0) return;
    missing = leastBytes;
    onPace();
  };
}

/** Aborts after `ms`, unless the timer is restarted or stopped before. */
function abortAfter(ms: number, abort: AbortController, system: DownloadSystem) {
  let timer = new AbortController();
  const start = () => {
    timer = new AbortController();
    void system.sleep(ms, timer.signal).then(
      () => abort.abort(),
      () => undefined,
    );
  };
  start();
  return {
    restart: () => {
      timer.abort();
      start();
    },
    stop: () => timer.abort(),
  };
}

function tooLarge(address: string, maxBytes: number): AppError {
  return new AppError(
    "failed",
    `Cannot download ${shownAddress(address)}: it is larger than ${maxBytes} bytes`,
  );
}

function withSlash(base: string): string {
  return base.endsWith("/") ? base : `${base}/`;
}
