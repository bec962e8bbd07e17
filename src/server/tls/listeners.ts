// The listener of the application, which is replaced when its TLS certificate changes. It knows addresses and certificates,
// but not what the application answers.

import { forwarderRoute, type Forwarder, type ForwarderConnection } from "../../base/datagrams/forwarder.ts";
import { messageOf } from "../../base/errors.ts";
import type { Log } from "../../base/log.ts";
import type { Network } from "../../base/ip.ts";
import { clientAddress, type ListenAddress } from "../http/edge.ts";
import type { Edge, Params } from "../http/exchange.ts";
import { explainBindError } from "./bind-error.ts";
import { makeHostGuard } from "./host-guard.ts";
import { strictTransport } from "./strict-transport.ts";

export type TlsPair = { cert: string; key: string };

/**
 * A source of the certificate. A changed stamp means that there is a new certificate. `isStrict`: browsers may insist on
 * TLS for this server's name.
 */
export type TlsSource = { read(): TlsPair; stamp(): string; readonly isStrict: boolean };

export type ListenOptions = {
  listen: ListenAddress;
  tls: TlsSource | undefined;
  /** A service: its next process listens beside it before it ends. */
  isService?: boolean;
  /** This is that next process. */
  isSuccessor?: boolean;
  trustedProxies: readonly Network[];
  /** TCP fallback for lighthouses and relays of this machine. */
  forwarder?: Forwarder | undefined;
};

/** The application behind the listener. */
export type Application = {
  fetch(request: Request, edge: Edge): Response | Promise<Response>;
  /** Routes of frequent requests, which the listener calls directly to save time. If `answer` returns undefined, `fetch` answers. */
  direct: readonly {
    path: string;
    method: string;
    answer(request: Request, edge: Edge, params: Params): Promise<Response> | undefined;
  }[];
  services: { publicUrl: string };
  /** Answers the waiting polls. Later requests are still answered. */
  close(): void;
  /** Writes what is still in memory, after the last answer. */
  flush(): Promise<void>;
};

type Listener = ReturnType<typeof Bun.serve>;
export type Listeners = {
  bind(): number;
  /** The certificate in use, in PEM. */
  certificate(): string | undefined;
  answerWith(app: Application): void;
  stop(): Promise<void>;
};

/** Longer than the longest poll (55 s), so that only dead connections are closed. */
const idleTimeoutS = 75;
/** How often the certificate's stamp is read. */
const checkTlsMs = 2000;
/** After this time, a stop ends the requests that are still being answered. */
const stopWithinMs = 10_000;

/** A changed certificate needs a new listener: Bun cannot change the certificate of a running one. */
export function makeListeners(
  { listen, tls, trustedProxies, forwarder, isService = false, isSuccessor = false }: ListenOptions,
  log: Log,
): Listeners {
  let app: Application | undefined;
  let current: Listener | undefined;
  let timer: ReturnType<typeof setInterval> | undefined;
  /** The stamp of the certificate that was opened, or tried, last. */
  let triedStamp = tls?.stamp();
  let pairInUse: TlsPair | undefined;
  // A new listener opens the port while the former one, or the former process, still answers on it.
  const sharesPort = tls !== undefined || isService;
  const refusalOf = makeHostGuard(listen);

  const handlers = () =>
    handlersOf(app, (request) => refusalOf(request, app?.services.publicUrl), {
      trustedProxies,
      forwarder,
      isStrict: tls?.isStrict === true,
    });
  const open = (port: number): Listener => {
    const pair = tls?.read();
    const listener = Bun.serve({
      hostname: listen.hostname,
      port,
      development: false,
      idleTimeout: idleTimeoutS,
      reusePort: sharesPort,
      ...(pair === undefined ? {} : { tls: pair }),
      ...handlers(),
      error(error) {
        log.error("the listener failed", { reason: messageOf(error) });
        return new Response(null, { status: 500 });
      },
    });
    pairInUse = pair;
    return listener;
  };
  const renew = () => {
    try {
      const stamp = tls?.stamp();
      if (stamp === triedStamp || current === undefined) return;
      // Set first, so that a certificate that cannot be used is tried only once.
      triedStamp = stamp;
      const former = current;
      current = open(former.port ?? listen.port);
      // Its requests, also polls, are still answered.
      void former.stop();
      log.info("the listener uses the new TLS certificate");
    } catch (error) {
      log.error("cannot use the new TLS certificate; the former one stays in use", {
        reason: messageOf(error),
      });
    }
  };

  return {
    bind() {
      // `reusePort` shares the port with any process: first check that no other process uses it.
      if (sharesPort && !isSuccessor && listen.port !== 0)
        explainBindError(() => Bun.listen(probe(listen)), "--listen", listen).stop(true);
      current = explainBindError(() => open(listen.port), "--listen", listen);
      if (tls !== undefined) timer = setInterval(renew, checkTlsMs);
      return current.port ?? listen.port;
    },
    certificate: () => pairInUse?.cert,
    answerWith(application) {
      app = application;
      current?.reload(handlers());
    },
    async stop() {
      if (timer !== undefined) clearInterval(timer);
      app?.close();
      forwarder?.close();
      // Cleared below, because a pending timer would keep the process alive.
      const force = setTimeout(() => void current?.stop(true), stopWithinMs);
      await current?.stop();
      clearTimeout(force);
      await app?.flush();
    },
  };
}

/** The direct routes and `fetch` of the application, or 503 before it is ready. `refuse`: see makeHostGuard. */
function handlersOf(
  app: Application | undefined,
  refuse: (request: Request) => Response | undefined,
  {
    trustedProxies,
    forwarder,
    isStrict,
  }: Pick<ListenOptions, "trustedProxies" | "forwarder"> & { isStrict: boolean },
) {
  const websocket = forwarder?.websocket ?? noWebSockets;
  if (app === undefined) {
    const starting = () => new Response(null, { status: 503, headers: { "Retry-After": "1" } });
    return { fetch: starting, routes: {}, websocket };
  }
  const edgeOf = (server: Server): Edge => ({
    addressOf: (request) =>
      clientAddress(
        server.requestIP(request)?.address ?? "",
        request.headers.get("x-forwarded-for"),
        trustedProxies,
      ),
  });
  // One for all requests: it depends on the server alone.
  let onlyEdge: Edge | undefined;
  const edgeFor = (server: Server) => (onlyEdge ??= edgeOf(server));
  const strict = strictTransport(isStrict ? app.services.publicUrl : undefined);
  const answer = (request: Request, server: Server) => {
    const edge = edgeFor(server);
    if (!isHealthCheck(request)) return refuse(request) ?? app.fetch(request, edge);
    // Not guarded: it has no Host header. The application needs a whole URL, so it gets another request, whose address the
    // server does not know.
    const address = edge.addressOf(request);
    const { method, headers } = request;
    const named = new Request(`http://localhost${request.url}`, { method, headers });
    return app.fetch(named, { addressOf: () => address });
  };
  const fetch = (request: Request, server: Server) => strict(request, answer(request, server));
  const routes = Object.fromEntries(
    app.direct.map((route) => [
      route.path,
      {
        [route.method]: (request: Bun.BunRequest, server: Server) =>
          strict(
            request,
            refuse(request) ??
              route.answer(request, edgeFor(server), request.params) ??
              answer(request, server),
          ),
      },
    ]),
  );
  if (forwarder === undefined) return { fetch, routes, websocket };
  const forward = (request: Request, server: Server) =>
    refuse(request) ?? forwarder.accept(request, server, edgeFor(server).addressOf(request));
  return { fetch, routes: { ...routes, [forwarderRoute]: { GET: forward } }, websocket };
}

type Server = Bun.Server<ForwarderConnection>;
const noWebSockets: Forwarder["websocket"] = { message: (socket) => socket.close() };

/** HTTP/1.0 needs no Host header, and load balancers check in that way. Without it, the URL is a path alone. */
function isHealthCheck({ url, headers }: Request): boolean {
  return (url === "/healthz" || url === "/readyz") && headers.get("host") === null;
}

/** Options of a listener that only shows whether the port is free. */
function probe({ hostname, port }: ListenAddress) {
  return { hostname, port, socket: { data: () => undefined } };
}
