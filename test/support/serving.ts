// A control plane of each test, on its own data directory and a port of loopback, unless a test says otherwise.

import { afterAll, afterEach, beforeEach } from "bun:test";
import { join } from "node:path";
import { AppError } from "../../src/base/errors.ts";
import { makeLog } from "../../src/base/log.ts";
import { startServer, type ServeOptions, type Serving } from "../../src/server/serve.ts";
import { realSystem } from "../../src/base/system.ts";
import { temporaryDirectory } from "./temporary.ts";

export function useServing() {
  const umask = process.umask();
  afterAll(() => void process.umask(umask));
  let directory: ReturnType<typeof temporaryDirectory>;
  let logged = "";
  const started = new Set<Serving>();
  beforeEach(() => {
    directory = temporaryDirectory();
    logged = "";
  });
  afterEach(async () => {
    for (const serving of started) await serving.stop();
    started.clear();
    directory[Symbol.dispose]();
  });
  return {
    get directory() {
      return directory.path;
    },
    get data() {
      return join(directory.path, "data");
    },
    get logged() {
      return logged;
    },
    async serve(more: Partial<ServeOptions> = {}): Promise<Serving> {
      const write = (text: string) => void (logged += text);
      const log = makeLog({ verbose: false, write, now: Date.now, stamped: true });
      const options: ServeOptions = {
        dataDirectory: join(directory.path, "data"),
        listen: { hostname: "127.0.0.1", port: 0 },
        allowPlainHttp: false,
        trustedProxies: [],
        accessLifetimeS: 900,
        refreshLifetimeS: 86_400,
        ...more,
      };
      const serving = await startServer(options, { system: realSystem(), log });
      started.add(serving);
      return serving;
    },
    async end(serving: Serving): Promise<void> {
      started.delete(serving);
      await serving.stop();
    },
  };
}

/** The code of the error, or "none". */
export async function refusal(promise: Promise<unknown>): Promise<string> {
  return promise.then(
    () => "none",
    (error: unknown) => (error instanceof AppError ? error.code : String(error)),
  );
}

/** Sends raw bytes, which HTTP clients would not send, and returns the answer. */
export async function rawAnswer(port: number, request: string): Promise<string> {
  const { promise, resolve } = Promise.withResolvers<string>();
  const decoder = new TextDecoder();
  let answer = "";
  await Bun.connect({
    hostname: "127.0.0.1",
    port,
    socket: {
      open: (socket) => void socket.write(request),
      data: (_, bytes) => void (answer += decoder.decode(bytes)),
      close: () => resolve(answer),
    },
  });
  return promise;
}
