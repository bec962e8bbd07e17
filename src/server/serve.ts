// `agent serve`: puts the application behind a listener, tells where it answers, and stops in order.

import { readFileSync, statSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import { brand } from "../brand.ts";
import { AppError, fromSystemError, systemErrorCode } from "../errors.ts";
import type { Log } from "../log.ts";
import type { System } from "../system.ts";
import type { Network } from "./addresses.ts";
import { makeApp, type App } from "./app.ts";
import { openData, prepareDirectory, type DataOptions } from "./data.ts";
import { clientAddress, isLoopback, isOwnName, type ListenAddress } from "./edge.ts";
import { offerFirstAccount } from "./first-account.ts";
import { errorReply, toResponse } from "./reply.ts";
import { rememberPublicUrl } from "./settings.ts";
import { holdLock } from "./store/sqlite.ts";

export type ServeOptions = DataOptions & {
  listen: ListenAddress;
  publicUrl?: string;
  tls?: { certFile: string; keyFile: string };
  allowPlainHttp: boolean;
  trustedProxies: readonly Network[];
  webhookNetworks?: readonly Network[];
  accessLifetimeS: number;
  refreshLifetimeS: number;
  releasesDirectory?: string;
};

export type Serving = {
  url: string;
  /** No account yet: the link by which a person makes the first one. */
  firstAccountLink?: string;
  stop(): Promise<void>;
};

type Edges = { system: System; log: Log };
type Listener = ReturnType<typeof Bun.serve>;

/** Longer than the longest poll (55 s), so that only dead connections are cut. */
const idleTimeoutS = 75;
const lookAtTlsFilesMs = 5000;
const stopWithinMs = 10_000;

/** Opens the data and answers from the moment this resolves. */
export async function startServer(options: ServeOptions, { system, log }: Edges): Promise<Serving> {
  if (options.tls === undefined && !options.allowPlainHttp && !isLoopback(options.listen.hostname)) {
    throw new AppError(
      "bad_configuration",
      `Plain HTTP on ${options.listen.hostname} would show every token`,
      {
        hint: "Give --tls-cert and --tls-key, listen on 127.0.0.1 behind a proxy, or say --allow-plain-http.",
      },
    );
  }
  // Replicas on one PostgreSQL need no lock; two servers on one file do.
  const lock = options.databaseUrl === undefined ? lockDirectory(options.dataDirectory) : () => undefined;
  try {
    return await start(options, lock, { system, log });
  } catch (error) {
    lock();
    throw error;
  }
}

function lockDirectory(directory: string): () => void {
  prepareDirectory(directory);
  const release = holdLock(join(directory, "serve.lock"));
  if (release !== undefined) return release;
  throw new AppError("busy", `Another server runs on ${directory}`, {
    hint: "One data directory, one server.",
  });
}

async function start(options: ServeOptions, lock: () => void, { system, log }: Edges): Promise<Serving> {
  const { db, secretKey } = await openData(options, "server", system);
  const listeners = makeListeners(options, log);
  try {
    const port = listeners.bind();
    const url = options.publicUrl ?? ownUrl(options, port);
    await rememberPublicUrl(db, { publicUrl: url });
    const app = await makeApp({
      db,
      system,
      log,
      secretKey,
      publicUrl: url,
      accessLifetimeS: options.accessLifetimeS,
      refreshLifetimeS: options.refreshLifetimeS,
      webhookNetworks: options.webhookNetworks ?? [],
      ...(options.releasesDirectory === undefined ? {} : { releasesDirectory: options.releasesDirectory }),
    });
    listeners.answerWith(app);
    const firstAccountLink = await offerFirstAccount(app.services);
    return {
      url,
      ...(firstAccountLink === undefined ? {} : { firstAccountLink }),
      async stop() {
        await listeners.stop();
        await db.close();
        lock();
      },
    };
  } catch (error) {
    await listeners.stop();
    await db.close();
    throw error;
  }
}

function ownUrl({ listen, tls }: ServeOptions, port: number): string {
  const anywhere = listen.hostname === "0.0.0.0" || listen.hostname === "::";
  const name = anywhere ? hostname() : listen.hostname;
  return `${tls === undefined ? "http" : "https"}://${name.includes(":") ? `[${name}]` : name}:${port}`;
}

type Listeners = { bind(): number; answerWith(app: App): void; stop(): Promise<void> };

/** The listener, and its successor when the TLS files change: Bun cannot change them under a running one. */
function makeListeners(options: ServeOptions, log: Log): Listeners {
  let app: App | undefined;
  let current: Listener | undefined;
  let timer: ReturnType<typeof setInterval> | undefined;
  let seen = tlsStamp(options.tls);

  const edge = {
    addressOf: (request: Request) =>
      clientAddress(
        current?.requestIP(request)?.address ?? "",
        request.headers.get("x-forwarded-for"),
        options.trustedProxies,
      ),
  };
  const local = isLoopback(options.listen.hostname);
  const open = (port: number): Listener =>
    Bun.serve({
      hostname: options.listen.hostname,
      port,
      development: false,
      idleTimeout: idleTimeoutS,
      reusePort: options.tls !== undefined,
      ...(options.tls === undefined ? {} : { tls: readTls(options.tls) }),
      fetch: (request) => {
        if (app === undefined) return new Response(null, { status: 503, headers: { "Retry-After": "1" } });
        const host = request.headers.get("host");
        if (local && !isOwnName(host, app.services.publicUrl)) return misdirected(host);
        return app.fetch(request, edge);
      },
      error(error) {
        log.error("the listener failed", { reason: error.message });
        return new Response(null, { status: 500 });
      },
    });
  const renew = () => {
    const stamp = tlsStamp(options.tls);
    if (stamp === seen || current === undefined) return;
    seen = stamp;
    try {
      const former = current;
      current = open(former.port ?? options.listen.port);
      void former.stop();
      log.info("the TLS certificate was renewed from its file");
    } catch (error) {
      log.error("the new TLS files cannot be used; the former ones stay in use", { reason: String(error) });
    }
  };

  return {
    bind() {
      current = listening(() => open(options.listen.port), options.listen);
      if (options.tls !== undefined) timer = setInterval(renew, lookAtTlsFilesMs);
      return current.port ?? options.listen.port;
    },
    answerWith(application) {
      app = application;
    },
    async stop() {
      if (timer !== undefined) clearInterval(timer);
      app?.close();
      // A timer that is left over would keep the process waiting for it.
      const force = setTimeout(() => void current?.stop(true), stopWithinMs);
      await current?.stop();
      clearTimeout(force);
      await app?.flush();
    },
  };
}

function misdirected(host: string | null): Response {
  const sentence = `This server is not ${host}. Behind a proxy, give it that name with --public-url.`;
  return toResponse(errorReply(new AppError("misdirected", sentence)), "-");
}

function listening(open: () => Listener, { hostname, port }: ListenAddress): Listener {
  try {
    return open();
  } catch (error) {
    const where = `${hostname}:${port}`;
    if (systemErrorCode(error) === "EADDRINUSE") {
      throw new AppError("failed", `Cannot listen on ${where}: something else listens there`, {
        cause: error,
        hint: "Choose another port with --listen; port 0 takes a free one.",
      });
    }
    throw fromSystemError(`listen on ${where}`, error);
  }
}

function readTls(files: { certFile: string; keyFile: string }): { cert: string; key: string } {
  try {
    return { cert: readFileSync(files.certFile, "utf8"), key: readFileSync(files.keyFile, "utf8") };
  } catch (error) {
    throw fromSystemError(`read the TLS files ${files.certFile} and ${files.keyFile}`, error);
  }
}

/** Changes when one of the files does. */
function tlsStamp(tls: ServeOptions["tls"]): string {
  return tls === undefined
    ? ""
    : [tls.certFile, tls.keyFile]
        .map((path) => String(statSync(path, { throwIfNoEntry: false })?.mtimeMs))
        .join(" ");
}

/** What to do next, for somebody who has just started it for the first time. */
export function firstSteps(link: string, dataFlags: string): string {
  const admin = `${brand.executable} admin`;
  return [
    "There is no account yet. Open this link in a browser (once, within 30 minutes) to make the first one:",
    `  ${link}`,
    "or, and then go on with the other two, in another terminal:",
    `  ${admin} user create YOU@EXAMPLE.ORG --staff${dataFlags}`,
    `  ${admin} org create acme --network 10.77.0.0/16 --owner YOU@EXAMPLE.ORG${dataFlags}`,
    `  ${admin} token create acme${dataFlags}`,
  ].join("\n");
}
