// For tests of the daemon's socket: a server of the test's own at a temporary path, and clients that send raw bytes.

import { afterEach, beforeEach } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Answer } from "../../src/daemon/ipc/messages.ts";
import { serveIpc, type ServerOptions } from "../../src/daemon/ipc/server.ts";
import { AppError } from "../../src/base/errors.ts";
import { openLibc } from "../../src/platform/libc.ts";
import { realSystem } from "../../src/base/system.ts";

export const libc = openLibc();
export const system = realSystem();
/** A group to which we can give files without being root. */
export const ownGroup = process.getgid?.() ?? 0;
export const quiet = { debug() {}, info() {}, warn() {}, error() {} };

/** A new directory for each test. Everything that a test opened is closed after it. */
export function useIpc() {
  const place = { directory: "", path: "" };
  const stops: (() => unknown)[] = [];

  beforeEach(() => {
    place.directory = mkdtempSync(join(tmpdir(), "ipc-"));
    place.path = join(place.directory, "run", "cmd.sock");
  });

  afterEach(async () => {
    for (const stop of stops.splice(0)) await stop();
    rmSync(place.directory, { recursive: true, force: true });
  });

  async function serve(options: Partial<ServerOptions> = {}) {
    const server = await serveIpc({
      address: { kind: "socket", path: place.path },
      access: { groupId: undefined },
      libc,
      system,
      log: quiet,
      handle: async ({ action }) => ({ ok: true, message: action }),
      ...options,
    });
    stops.push(server.stop);
    return server;
  }

  /** A client that sends raw bytes and keeps the received lines. */
  async function raw() {
    const seen = { text: "", closed: false };
    const socket = await Bun.connect({
      unix: place.path,
      socket: {
        data: (_, bytes) => void (seen.text += bytes.toString()),
        close: () => void (seen.closed = true),
        error() {},
        drain() {},
      },
    });
    stops.push(() => socket.end());
    const answers = async (count: number): Promise<Answer[]> => {
      while (seen.text.split("\n").length <= count && !seen.closed) await Bun.sleep(1);
      return seen.text
        .split("\n")
        .slice(0, -1)
        .map((line): Answer => JSON.parse(line));
    };
    return { socket, answers, seen };
  }

  return { place, serve, raw };
}

export async function failureOf(work: Promise<unknown>): Promise<AppError> {
  const error = await work.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (error instanceof AppError) return error;
  throw new Error(`Not an AppError: ${String(error)}`);
}
