// Listeners: that of the application, replaced when its TLS certificate changes, and that of the metrics. They know
// addresses and certificates, never what is answered.

import { readFileSync, statSync } from "node:fs";
import { AppError, fromSystemError, messageOf, systemErrorCode } from "../../errors.ts";
import type { Log } from "../../log.ts";
import { isLoopback } from "../../loopback.ts";
import type { Network } from "../../ip.ts";
import { clientAddress, isOwnName, type ListenAddress } from "../http/edge.ts";
import type { Edge, Params } from "../http/exchange.ts";
import { errorReply, toResponse } from "../http/reply.ts";

export type TlsPair = { cert: string; key: string };

/** Where the certificate comes from; another stamp says that there is a new one. */
export type TlsSource = { read(): TlsPair; stamp(): string };

export type ListenOptions = {
  listen: ListenAddress;
  tls: TlsSource | undefined;
  trustedProxies: readonly Network[];
};

/** What answers behind the listener. */
type Application = {
  fetch(request: Request, edge: Edge): Response | Promise<Response>;
  /** Routes that the listener calls by itself; without an answer of theirs, `fetch` gives it. */
  direct: readonly {
    path: string;
    method: string;
    answer(request: Request, edge: Edge, params: Params): Promise<Response> | undefined;
  }[];
  services: { publicUrl: string };
  /** Answers the polls that wait; later requests are still answered. */
  close(): void;
  /** After the last answer: writes what is still in memory. */
  flush(): Promise<void>;
};

type Listener = ReturnType<typeof Bun.serve>;
export type Listeners = { bind(): number; answerWith(app: Application): void; stop(): Promise<void> };

/** Longer than the longest poll (55 s), so that only dead connections are cut. */
const idleTimeoutS = 75;
const lookAtTlsMs = 5000;
const stopWithinMs = 10_000;

/** The listener, and its successor when the certificate changes: Bun cannot change it under a running one. */
export function makeListeners({ listen, tls, trustedProxies }: ListenOptions, log: Log): Listeners {
  let app: Application | undefined;
  let current: Listener | undefined;
  let timer: ReturnType<typeof setInterval> | undefined;
  let seen = tls?.stamp();
  const misdirected = makeGuard(listen);

  const handlers = () =>
    handlersOf(app, (request) => misdirected(request, app?.services.publicUrl), trustedProxies);
  const open = (port: number): Listener =>
    Bun.serve({
      hostname: listen.hostname,
      port,
      development: false,
      idleTimeout: idleTimeoutS,
      reusePort: tls !== undefined,
      ...(tls === undefined ? {} : { tls: tls.read() }),
      ...handlers(),
      error(error) {
        log.error("the listener failed", { reason: error.message });
        return new Response(null, { status: 500 });
      },
    });
  const renew = () => {
    try {
      const stamp = tls?.stamp();
      if (stamp === seen || current === undefined) return;
      seen = stamp;
      const former = current;
      current = open(former.port ?? listen.port);
      void former.stop();
      log.info("the TLS certificate was renewed");
    } catch (error) {
      log.error("the new TLS certificate cannot be used; the former one stays in use", {
        reason: messageOf(error),
      });
    }
  };

  return {
    bind() {
      // The port is shared with the successor, so with whoever asks for it: first see that nobody else has it.
      if (tls !== undefined && listen.port !== 0)
        listening(() => Bun.listen(unheard(listen)), "--listen", listen).stop(true);
      current = listening(() => open(listen.port), "--listen", listen);
      if (tls !== undefined) timer = setInterval(renew, lookAtTlsMs);
      return current.port ?? listen.port;
    },
    answerWith(application) {
      app = application;
      current?.reload(handlers());
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

/** Both lanes of the application, or 503 before there is one. `refuse`: the answer to a request under a foreign name. */
function handlersOf(
  app: Application | undefined,
  refuse: (request: Request) => Response | undefined,
  trustedProxies: readonly Network[],
) {
  if (app === undefined) {
    const starting = () => new Response(null, { status: 503, headers: { "Retry-After": "1" } });
    return { fetch: starting, routes: {} };
  }
  const edgeOf = (server: Bun.Server<undefined>): Edge => ({
    addressOf: (request) =>
      clientAddress(
        server.requestIP(request)?.address ?? "",
        request.headers.get("x-forwarded-for"),
        trustedProxies,
      ),
  });
  let edge: Edge | undefined;
  const fetch = (request: Request, server: Bun.Server<undefined>) =>
    refuse(request) ?? app.fetch(request, (edge ??= edgeOf(server)));
  const routes = Object.fromEntries(
    app.direct.map(({ path, method, answer }) => [
      path,
      {
        [method]: (request: Bun.BunRequest, server: Bun.Server<undefined>) =>
          refuse(request) ??
          answer(request, (edge ??= edgeOf(server)), request.params) ??
          fetch(request, server),
      },
    ]),
  );
  return { fetch, routes };
}

/**
 * What is answered, or undefined, where the request has no address, and under a foreign name on loopback: that is
 * this machine's own browser, led astray.
 */
function makeGuard({ hostname }: ListenAddress) {
  const isGuarded = isLoopback(hostname);
  let lastOwn: string | null | undefined;
  return (request: Request, publicUrl?: string): Response | undefined => {
    const host = request.headers.get("host");
    // Looked at once: nearly all requests come by one name, and a check-in costs little more than this look. CONNECT
    // alone has a target in place of a path, which need not make a URL.
    if (host === lastOwn && request.method !== "CONNECT") return undefined;
    if (!URL.canParse(request.url)) {
      const sentence = "The Host header, or the target of CONNECT, makes no address.";
      return toResponse(errorReply(new AppError("bad_request", sentence)));
    }
    if (!isGuarded || isOwnName(host, publicUrl)) {
      lastOwn = host;
      return undefined;
    }
    const sentence = `This server is not ${host}. Behind a proxy, give it that name with --public-url.`;
    return toResponse(errorReply(new AppError("misdirected", sentence)));
  };
}

/** `/metrics` in the text format of Prometheus, and nothing else. */
export function listenForMetrics(listen: ListenAddress, write: () => Promise<string>, log: Log): Listener {
  const misdirected = makeGuard(listen);
  const open = () =>
    Bun.serve({
      hostname: listen.hostname,
      port: listen.port,
      development: false,
      async fetch(request) {
        const refused = misdirected(request);
        if (refused !== undefined) return refused;
        if (new URL(request.url).pathname !== "/metrics") return new Response(null, { status: 404 });
        if (request.method !== "GET") return new Response(null, { status: 405, headers: { Allow: "GET" } });
        return new Response(await write(), { headers: { "Content-Type": "text/plain; version=0.0.4" } });
      },
      error(error) {
        log.error("the metrics cannot be told", { reason: error.message });
        return new Response(null, { status: 503 });
      },
    });
  return listening(open, "--metrics-listen", listen);
}

function unheard({ hostname, port }: ListenAddress) {
  return { hostname, port, socket: { data: () => undefined } };
}

function listening<T>(open: () => T, flag: string, { hostname, port }: ListenAddress): T {
  try {
    return open();
  } catch (error) {
    const where = `${hostname}:${port}`;
    if (systemErrorCode(error) === "EADDRINUSE") {
      throw new AppError("failed", `Cannot listen on ${where}: something else listens there`, {
        cause: error,
        hint: `Choose another port with ${flag}; port 0 takes a free one.`,
      });
    }
    throw fromSystemError(`listen on ${where}`, error);
  }
}

/** The files that the operator gave; whoever replaces them need not restart anything. */
export function tlsFromFiles(files: { certFile: string; keyFile: string }): TlsSource {
  return {
    read() {
      try {
        return { cert: readFileSync(files.certFile, "utf8"), key: readFileSync(files.keyFile, "utf8") };
      } catch (error) {
        throw fromSystemError(`read the TLS files ${files.certFile} and ${files.keyFile}`, error);
      }
    },
    stamp: () =>
      [files.certFile, files.keyFile]
        .map((path) => String(statSync(path, { throwIfNoEntry: false })?.mtimeMs))
        .join(" "),
  };
}
