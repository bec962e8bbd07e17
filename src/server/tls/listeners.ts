// The listener of the application, which is replaced when its TLS certificate changes, and the listener of the metrics.
// They know addresses and certificates, but not what the application answers.

import { createPrivateKey, X509Certificate } from "node:crypto";
import { statSync } from "node:fs";
import { AppError, fromSystemError, messageOf, systemErrorCode } from "../../base/errors.ts";
import type { Log } from "../../base/log.ts";
import { isLoopback } from "../../base/loopback.ts";
import { parseAddress, type Network } from "../../base/ip.ts";
import { clientAddress, isOwnName, type ListenAddress } from "../http/edge.ts";
import type { Edge, Params } from "../http/current-request.ts";
import { errorReply, toResponse } from "../http/reply.ts";
import { readText } from "../../base/open-file.ts";

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
};

/** The application behind the listener. */
export type Application = {
  fetch(request: Request, edge: Edge): Response | Promise<Response>;
  /** Routes that the listener calls directly. If `answer` returns undefined, `fetch` answers. */
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
export type Listeners = { bind(): number; answerWith(app: Application): void; stop(): Promise<void> };

/** Longer than the longest poll (55 s), so that only dead connections are closed. */
const idleTimeoutS = 75;
const checkTlsMs = 2000;
const stopWithinMs = 10_000;
/** 30 days. */
const strictS = 2_592_000;

/** A changed certificate needs a new listener: Bun cannot change the certificate of a running one. */
export function makeListeners(
  { listen, tls, trustedProxies, isService = false, isSuccessor = false }: ListenOptions,
  log: Log,
): Listeners {
  let app: Application | undefined;
  let current: Listener | undefined;
  let timer: ReturnType<typeof setInterval> | undefined;
  let seen = tls?.stamp();
  const isShared = tls !== undefined || isService;
  const misdirected = makeGuard(listen);

  const handlers = () =>
    handlersOf(
      app,
      (request) => misdirected(request, app?.services.publicUrl),
      trustedProxies,
      tls?.isStrict === true,
    );
  const open = (port: number): Listener =>
    Bun.serve({
      hostname: listen.hostname,
      port,
      development: false,
      idleTimeout: idleTimeoutS,
      reusePort: isShared,
      ...(tls === undefined ? {} : { tls: tls.read() }),
      ...handlers(),
      error(error) {
        log.error("the listener failed", { reason: messageOf(error) });
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
      if (isShared && !isSuccessor && listen.port !== 0)
        listening(() => Bun.listen(probe(listen)), "--listen", listen).stop(true);
      current = listening(() => open(listen.port), "--listen", listen);
      if (tls !== undefined) timer = setInterval(renew, checkTlsMs);
      return current.port ?? listen.port;
    },
    answerWith(application) {
      app = application;
      current?.reload(handlers());
    },
    async stop() {
      if (timer !== undefined) clearInterval(timer);
      app?.close();
      // A pending timer would keep the process alive, so it is cleared below.
      const force = setTimeout(() => void current?.stop(true), stopWithinMs);
      await current?.stop();
      clearTimeout(force);
      await app?.flush();
    },
  };
}

/** The direct routes and `fetch` of the application, or 503 before it is ready. `refuse`: see makeGuard. */
function handlersOf(
  app: Application | undefined,
  refuse: (request: Request) => Response | undefined,
  trustedProxies: readonly Network[],
  isStrict: boolean,
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
  const strict = strictTransport(isStrict ? app.services.publicUrl : undefined);
  const answer = (request: Request, server: Bun.Server<undefined>) => {
    edge ??= edgeOf(server);
    const address = isHealthCheck(request) ? edge.addressOf(request) : undefined;
    if (address === undefined) return refuse(request) ?? app.fetch(request, edge);
    const { method, headers } = request;
    const named = new Request(`http://localhost${request.url}`, { method, headers });
    return app.fetch(named, { addressOf: () => address });
  };
  const fetch = (request: Request, server: Bun.Server<undefined>) => strict(request, answer(request, server));
  const routes = Object.fromEntries(
    app.direct.map((route) => [
      route.path,
      {
        [route.method]: (request: Bun.BunRequest, server: Bun.Server<undefined>) =>
          strict(
            request,
            refuse(request) ??
              route.answer(request, (edge ??= edgeOf(server)), request.params) ??
              answer(request, server),
          ),
      },
    ]),
  );
  return { fetch, routes };
}

/** HTTP/1.0 needs no Host header, and load balancers check in that way. Without it, the URL is a path alone. */
function isHealthCheck({ url, headers }: Request): boolean {
  return (url === "/healthz" || url === "/readyz") && headers.get("host") === null;
}

type Answered = Response | Promise<Response>;

/**
 * Adds Strict-Transport-Security to the answers under the public name, so that browsers never use plain HTTP there. Not
 * for other names, nor for localhost and addresses: browsers would insist on TLS for everything else under that name. The
 * time is short, because a browser that insists offers no way past a certificate that it does not trust.
 */
function strictTransport(publicUrl: string | undefined): (request: Request, answered: Answered) => Answered {
  const { host, hostname } = publicUrl === undefined ? { host: "", hostname: "" } : new URL(publicUrl);
  const isName = parseAddress(hostname) === undefined && !/^$|^\[|(?:^|\.)localhost$/.test(hostname);
  if (!isName) return (_, answered) => answered;
  const mark = (response: Response) => {
    response.headers.set("Strict-Transport-Security", `max-age=${strictS}`);
    return response;
  };
  return (request, answered) => {
    if (request.headers.get("host") !== host) return answered;
    return answered instanceof Promise ? answered.then(mark) : mark(answered);
  };
}

/**
 * Returns the refusal of a request without a valid URL. On loopback it also refuses foreign host names: a web page can
 * make the browser of this machine send such requests (DNS rebinding).
 */
function makeGuard({ hostname }: ListenAddress) {
  const isGuarded = isLoopback(hostname);
  let lastOwn: string | null | undefined;
  return (request: Request, publicUrl?: string): Response | undefined => {
    const host = request.headers.get("host");
    // Cached, because nearly all requests use one name and the check is a large part of a check-in's cost. Only CONNECT
    // has a target instead of a path, which may not form a URL.
    if (host === lastOwn && request.method !== "CONNECT") return undefined;
    if (!URL.canParse(request.url)) {
      const sentence = "The Host header, or the target of CONNECT, does not form a valid URL.";
      return toResponse(errorReply(new AppError("bad_request", sentence)));
    }
    if (!isGuarded || isOwnName(host, publicUrl)) {
      lastOwn = host;
      return undefined;
    }
    const sentence = `This server does not have the name ${host}. Behind a proxy, set it with \`serve --public-url\`.`;
    return toResponse(errorReply(new AppError("misdirected", sentence)));
  };
}

/** `/metrics` in the text format of Prometheus, and nothing else. */
export function listenForMetrics(
  { isService = false, ...listen }: ListenAddress & { isService?: boolean | undefined },
  write: () => Promise<string>,
  log: Log,
): Listener {
  const misdirected = makeGuard(listen);
  const open = () =>
    Bun.serve({
      hostname: listen.hostname,
      port: listen.port,
      reusePort: isService,
      development: false,
      async fetch(request) {
        const refused = misdirected(request);
        if (refused !== undefined) return refused;
        if (new URL(request.url).pathname !== "/metrics") return new Response(null, { status: 404 });
        if (request.method !== "GET") return new Response(null, { status: 405, headers: { Allow: "GET" } });
        return new Response(await write(), { headers: { "Content-Type": "text/plain; version=0.0.4" } });
      },
      error(error) {
        log.error("cannot answer /metrics", { reason: messageOf(error) });
        return new Response(null, { status: 503 });
      },
    });
  return listening(open, "--metrics-listen", listen);
}

function probe({ hostname, port }: ListenAddress) {
  return { hostname, port, socket: { data: () => undefined } };
}

function listening<T>(open: () => T, flag: string, { hostname, port }: ListenAddress): T {
  try {
    return open();
  } catch (error) {
    const where = `${hostname}:${port}`;
    if (systemErrorCode(error) === "EADDRINUSE") {
      throw new AppError("failed", `Cannot listen on ${where}: another process listens there`, {
        cause: error,
        hint: `Choose another port with ${flag}. Port 0 takes a free port.`,
      });
    }
    throw fromSystemError(`listen on ${where}`, error);
  }
}

/** The TLS library's own error names no file. Throws bad_configuration. */
function refuseUnfit(
  cert: string,
  key: string,
  { certFile, keyFile }: { certFile: string; keyFile: string },
): void {
  const parsed = <T>(file: string, what: string, parse: () => T): T => {
    try {
      return parse();
    } catch (error) {
      throw new AppError("bad_configuration", `The TLS file ${file} holds no ${what} in PEM`, {
        cause: error,
      });
    }
  };
  const certificate = parsed(certFile, "certificate", () => new X509Certificate(cert));
  const privateKey = parsed(keyFile, "unencrypted private key", () => createPrivateKey(key));
  if (certificate.checkPrivateKey(privateKey)) return;
  throw new AppError(
    "bad_configuration",
    `The TLS key ${keyFile} is not that of the certificate ${certFile}`,
  );
}

/** The operator's files. Replacing them needs no restart. */
export function tlsFromFiles(files: { certFile: string; keyFile: string }): TlsSource {
  return {
    read() {
      let [cert, key] = ["", ""];
      try {
        cert = readText(files.certFile);
        key = readText(files.keyFile);
      } catch (error) {
        throw fromSystemError(`read the TLS files ${files.certFile} and ${files.keyFile}`, error);
      }
      refuseUnfit(cert, key, files);
      return { cert, key };
    },
    stamp: () =>
      [files.certFile, files.keyFile]
        .map((path) => String(statSync(path, { throwIfNoEntry: false })?.mtimeMs))
        .join(" "),
    // The operator's certificate, from an authority that the clients' browsers trust or refuse by themselves.
    isStrict: true,
  };
}
