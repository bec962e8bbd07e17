// `agent serve`: opens the data, starts the application behind a listener, and stops both in order.

import { given } from "../base/given.ts";
import { hostname } from "node:os";
import { join } from "node:path";
import { brand } from "../brand.ts";
import { makeForwarder } from "../base/datagrams/forwarder.ts";
import { AppError } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import { isLoopback } from "../base/loopback.ts";
import { canLockFiles, lockFile, type FileLock } from "../platform/file-lock.ts";
import type { System } from "../base/system.ts";
import { joinHostPort, type Network } from "../base/ip.ts";
import { makeApp, type App } from "./app.ts";
import type { Retention } from "./options.ts";
import { lostPasskeys } from "./users/factors/passkeys.ts";
import type { Database } from "./store/database.ts";
import {
  databasePath,
  hasData,
  openData,
  prepareDirectory,
  type DataOptions,
} from "./store/data-directory.ts";
import { namingDamage } from "./store/sqlite/damage.ts";
import type { ListenAddress } from "./http/edge.ts";
import { offerFirstUser } from "./users/first-user.ts";
import { requireFree } from "./tls/bind-error.ts";
import { acmeOf, openListeners, type ListenerOptions } from "./tls/listener-set.ts";
import { listenForMetrics } from "./tls/metrics-listener.ts";
import { writeMetrics } from "./metrics/metrics.ts";
import { rememberPublicUrl } from "./store/meta.ts";
import { rehearseWrite } from "./nodes/joining/rehearsal.ts";
import { checkReplica } from "./store/replicas.ts";

export type ServeOptions = DataOptions &
  ListenerOptions & {
    allowPlainHttp: boolean;
    webhookNetworks?: readonly Network[];
    accessLifetimeS: number;
    refreshLifetimeS: number;
    releasesDirectory?: string;
    metricsListen?: ListenAddress;
    machineRoot?: string;
    retention?: Retention;
    logReads?: boolean;
  };

export type Serving = {
  url: string;
  /** `sha256:HEX` of the server's own TLS CA, with `--tls auto`. */
  caFingerprint?: string;
  metricsUrl?: string;
  /** If there is no user yet: the link for creating the first one. */
  firstUserLink?: string;
  /** Resolves when the server has to end and start again. */
  outdated: Promise<AppError>;
  stop(): Promise<void>;
};

type Edges = { system: System; log: Log };

/** Throws bad_configuration for unencrypted HTTP that other machines can reach. */
export function refuseOpenHttp({ tls, allowPlainHttp, listen }: ServeOptions): void {
  if (tls !== undefined || allowPlainHttp || isLoopback(listen.hostname)) return;
  throw new AppError("bad_configuration", `Plain HTTP on ${listen.hostname} would expose every token`, {
    hint: "Add --tls auto, or --tls-cert and --tls-key; or listen on 127.0.0.1 behind a proxy; or add --allow-plain-http.",
  });
}

/** Not refused: the servers and the database may be alone on their network. */
function warnOfOpenDatabase({ databaseUrl }: ServeOptions, log: Log): void {
  if (databaseUrl === undefined) return;
  const { hostname: host, searchParams } = new URL(databaseUrl);
  const isProven = /^verify-(ca|full)$/.test(searchParams.get("sslmode") ?? "");
  if (isProven || host === "" || isLoopback(host)) return;
  log.warn("Nothing protects the connection to PostgreSQL: its network can read and change all data", {
    host,
    hint: "End the URL of the database with ?sslmode=verify-full, and give PostgreSQL a certificate for this name.",
  });
}

/** Bytes of TCP fallback, 100 Mbit/s: check-ins and revocations go through the same process. */
const forwardedPerS = 12_500_000;

/** Opens the data. The server answers when this resolves. */
export async function startServer(options: ServeOptions, { system, log }: Edges): Promise<Serving> {
  refuseOpenHttp(options);
  warnOfOpenDatabase(options, log);
  // Before the first data are made: a start that fails leaves none.
  if (!hasData(options)) requireFree("--listen", options.listen);
  // Replicas on one PostgreSQL need no lock; two servers on one SQLite file do. A successor is the next process of an updated
  // service, and starts while the former one still runs (src/cli/handover.ts).
  const takeLock = options.isSuccessor === true ? inheritLock : lockDirectory;
  const unlock = options.databaseUrl === undefined ? takeLock(options.dataDirectory, log) : () => undefined;
  try {
    return await namingDamage(databasePath(options), () => start(options, unlock, { system, log }));
  } catch (error) {
    unlock();
    throw error;
  }
}

/** Returns the function that releases the lock. Throws busy. */
function lockDirectory(directory: string, log: Log): () => void {
  prepareDirectory(directory);
  if (!canLockFiles()) {
    log.warn("Cannot lock the data directory, because MemoryDenyWriteExecute= is set", {
      hint: "Do not start a second server on it, and stop this one before a restore.",
    });
    return () => undefined;
  }
  const lock = lockFile(join(directory, "serve.lock"));
  if (lock !== undefined) return lock.release;
  throw new AppError("busy", `Another server uses ${directory}`, {
    hint: "Stop that server first, or give another directory with --data-dir.",
  });
}

/** Takes the lock as soon as it is free: the former process holds it until it has written what it still has in memory. */
function inheritLock(directory: string): () => void {
  let lock: FileLock | undefined;
  const attempt = setInterval(() => {
    lock ??= lockFile(join(directory, "serve.lock"));
    if (lock !== undefined) clearInterval(attempt);
  }, 50);
  return () => {
    clearInterval(attempt);
    lock?.release();
  };
}

async function start(options: ServeOptions, unlock: () => void, edges: Edges): Promise<Serving> {
  const { log } = edges;
  const { db, secretKey, clock } = await openData(options, "server", edges.system);
  const system = { ...edges.system, now: clock.now };
  /** What a stop has to close, in the order in which it was opened. */
  const closings: (() => Promise<void>)[] = [async () => db.close()];
  const stop = async () => {
    for (const close of closings.reverse()) await close();
  };
  try {
    await checkReplica(db, { secretKey, now: clock.wall });
    const acme = acmeOf(options);
    let app: App | undefined;
    const forwarder = makeForwarder({
      engineAt: (port) => app?.services.planeFallback.engineAt(port),
      bytesPerS: forwardedPerS,
      monotonic: system.monotonic,
      log,
    });
    const listeners = await openListeners({ ...options, forwarder }, { db, secretKey, system, log });
    closings.push(() => listeners.stop());
    // A successor listens only when it can answer: until then its requests go to the former process.
    const port = options.isSuccessor === true ? options.listen.port : listeners.bind();
    const url = options.publicUrl ?? ownUrl(options, port);
    const { isForeignCa, caPem } = listeners;
    const pin = given({ caFingerprint: listeners.caFingerprint });
    await rememberPublicUrl(db, { publicUrl: url, ...pin, ...given({ isForeignCa }) });
    app = await makeApp({
      ...options,
      db,
      system,
      clock,
      log,
      secretKey,
      publicUrl: url,
      ...pin,
      ...given({ caPem }),
      tlsCertificate: listeners.certificate,
      ...(acme === undefined ? {} : { acme: acme.acme, movesNodes: acme.movesNodes === true }),
    });
    await warnOfLostPasskeys(db, url, log);
    // The first write of a process is slow: one is made, and rolled back, before the first request.
    await rehearseWrite({ ...app.services, log });
    listeners.answerWith(app);
    if (options.isSuccessor === true) listeners.bind();
    const metricsUrl = serveMetrics(options, app, log, closings);
    const firstUserLink = await offerFirstUser(app.services);
    return {
      url,
      ...pin,
      ...given({ metricsUrl, firstUserLink }),
      outdated: whenOutdated(db),
      async stop() {
        await stop();
        unlock();
      },
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** Parts of what a server remembers are never read again, such as its CA keys: only a start forgets all of it. */
async function whenOutdated({ rewound = new Promise<void>(() => undefined) }: Database): Promise<AppError> {
  await rewound;
  return new AppError(
    "storage_unavailable",
    "The database no longer has the last change that this server read: it was restored, a standby without the last changes took over, or this server was away for a day",
    { hint: "Start this server again, unless systemd does: it must forget what the database has lost." },
  );
}

function serveMetrics(
  { metricsListen, isService }: ServeOptions,
  app: App,
  log: Log,
  closings: (() => Promise<void>)[],
): string | undefined {
  if (metricsListen === undefined) return undefined;
  const listener = listenForMetrics({ ...metricsListen, isService }, () => writeMetrics(app.services), log);
  closings.push(() => listener.stop(true));
  return `${listener.url.origin}/metrics`;
}

function ownUrl({ listen, tls }: ServeOptions, port: number): string {
  const anywhere = listen.hostname === "0.0.0.0" || listen.hostname === "::";
  const name = anywhere ? hostname() : listen.hostname;
  return `${tls === undefined ? "http" : "https"}://${joinHostPort(name, port)}`;
}

/** The next steps after the first start. */
export function firstSteps(link: string, dataFlags: string): string {
  const admin = `${brand.executable} admin`;
  return [
    "There are no users yet. Open this link in a browser to create the first one (valid once, for 30 minutes):",
    `  ${link}`,
    "Or run these commands in another terminal. After using the link, run only the last two:",
    `  ${admin} user create YOU@EXAMPLE.ORG --staff${dataFlags}`,
    `  ${admin} org create acme --network 10.77.0.0/16 --owner YOU@EXAMPLE.ORG${dataFlags}`,
    `  ${admin} token create acme${dataFlags}`,
  ].join("\n");
}

/** Passkeys are bound to the host that they were made for. */
async function warnOfLostPasskeys(db: Database, publicUrl: string, log: Log): Promise<void> {
  const lost = await lostPasskeys(db, publicUrl);
  if (lost.length === 0) return;
  log.warn(
    "Passkeys of another public name cannot be used; these users sign in another way and add new ones",
    {
      public_url: publicUrl,
      users: lost.slice(0, 20).join(", "),
      total: lost.length,
    },
  );
}
