// The HTTP application. A request comes by one of two lanes: Hono finds its endpoint, or, for check-ins, which are most requests of
// a large fleet, the listener's own table of routes. `answer` does the rest for both.

import { notFound } from "../api/values.ts";
import { Hono } from "hono";
import { TrieRouter } from "hono/router/trie-router";
import { AppError } from "../base/errors.ts";
import { startBackground } from "./background.ts";
import { rememberErrors } from "./http/remember-errors.ts";
import type { HeldPolls } from "./config/held-polls.ts";
import { Exchange, type Edge, type Params } from "./http/exchange.ts";
import { preflightReply, readableReply } from "./http/opaque-origin.ts";
import { errorReply, toResponse } from "./http/reply.ts";
import { makeRequestLogger } from "./http/request-log.ts";
import type { Reply, Route } from "./http/route.ts";
import { makeWaking } from "./names/wake-together.ts";
import type { ServerOptions } from "./options.ts";
import { makePipeline, type Endpoint, type Pipeline } from "./pipeline.ts";
import { allRoutes } from "./routes.ts";
import { makeServices, type Services } from "./services.ts";
import type { Database } from "./store/database.ts";
import { isCanonical, makePathCheck } from "./http/url-paths.ts";

type Environment = { Bindings: Edge };

/** A route in the listener's table: a path that Bun's routes accept, and one method. */
export type DirectRoute = { path: string; method: string; answer: DirectAnswer };
/** Undefined if the path is not plain: then Hono answers. */
type DirectAnswer = (request: Request, edge: Edge, params: Params) => Promise<Response> | undefined;

export type App = {
  fetch(request: Request, edge: Edge): Response | Promise<Response>;
  direct: readonly DirectRoute[];
  routes: readonly Route[];
  services: Services;
  close(): void;
  /** Writes what is still in memory. Call it after the last answer and before the database closes. */
  flush(): Promise<void>;
};

export async function makeApp(options: ServerOptions): Promise<App> {
  const errors = rememberErrors(options.log, options.system.now);
  const services = await makeServices({ ...options, log: errors.log });
  const answers = makeAnswers(services);
  const flush = startBackground(services, errors.last);
  const close = () => {
    services.changes.close();
    services.streams.close();
  };
  return { ...answers, services, close, flush };
}

/** The application without background loops. */
export function makeAnswers(services: Services): Pick<App, "fetch" | "direct" | "routes"> {
  listenForChanges(services.db, services.changes);
  const routes = allRoutes(services);
  const endpoints = endpointsOf(routes);
  const shared: Shared = {
    pipeline: makePipeline(services),
    logRequest: makeRequestLogger(services),
    nextId: requestIds(services.system.random),
    logReads: services.logReads === true,
  };
  const hono = makeHono(endpoints, shared);
  return {
    fetch: (request, edge) => hono.fetch(request, edge),
    direct: endpoints.flatMap((endpoint) => directRoutes(endpoint, shared)),
    routes,
  };
}

/** What both lanes use. */
type Shared = {
  pipeline: Pipeline;
  logRequest: ReturnType<typeof makeRequestLogger>;
  nextId(): string;
  logReads: boolean;
};

function makeHono(endpoints: readonly Endpoint[], shared: Shared): Hono<Environment> {
  const hono = new Hono<Environment>({ router: new TrieRouter() });
  for (const endpoint of endpoints) {
    hono.all(endpoint.path, (c) => {
      if (!isCanonical(c.req.raw.url)) return toResponse(errorReply(nothingHere()));
      const exchange = new Exchange(c.req.raw, c.env, c.req.param(), shared.nextId);
      // Read the peer address now: it is gone after a disconnect.
      void exchange.address;
      return answer(exchange, endpoint, shared);
    });
  }
  hono.notFound((c) => {
    return toResponse(withSlash(hono, c.req.raw) ?? errorReply(nothingHere()));
  });
  return hono;
}

const nothingHere = () => new AppError("not_found", notFound.path);

/** The methods of an endpoint that belong in the listener's table. */
function directRoutes(endpoint: Endpoint, shared: Shared): DirectRoute[] {
  const isPlain = makePathCheck(endpoint.path);
  return [...endpoint.routes.values()]
    .filter(({ direct }) => direct === true)
    .map(({ method }) => ({
      // Bun's routes take no patterns of parameters: `isPlain` checks them.
      path: endpoint.path.replace(/\{[^/]*\}/g, ""),
      method,
      answer: (request, edge, params) => {
        if (!isPlain(request.url, params)) return undefined;
        const exchange = new Exchange(request, edge, params, shared.nextId);
        // Only the log of check-ins may need the address after a disconnect, and asking for it costs time.
        if (shared.logReads) void exchange.address;
        return answer(exchange, endpoint, shared);
      },
    }));
}

/**
 * The checks and the answer, for both lanes. As middleware of Hono, the checks would exist twice, and a small request
 * took twice the time (5 µs more). Awaits only real promises: awaiting a value costs as much as the rest of a
 * check-in.
 */
async function answer(exchange: Exchange, endpoint: Endpoint, shared: Shared): Promise<Response> {
  const { pipeline } = shared;
  const preflight = preflightReply(exchange.request, endpoint);
  if (preflight !== undefined) return respond(preflight, exchange, endpoint, shared);
  try {
    const identified = pipeline.identify(exchange, endpoint);
    if (identified !== undefined) await identified;
    const authorized = pipeline.authorize(exchange, endpoint);
    if (authorized !== undefined) await authorized;
    pipeline.throttle(exchange, endpoint);
    const turn = pipeline.takeTurn(exchange, endpoint);
    if (turn !== undefined) await turn;
    await pipeline.readBody(exchange, endpoint);
    const reply = pipeline.handle(exchange, endpoint);
    return respond(reply instanceof Promise ? await reply : reply, exchange, endpoint, shared);
  } catch (error) {
    return respond(await pipeline.fail(error, exchange, endpoint), exchange, endpoint, shared);
  }
}

/** Logs first: the answer has the request's id only if the log has it. */
function respond(reply: Reply, exchange: Exchange, endpoint: Endpoint, { logRequest }: Shared): Response {
  logRequest(exchange, endpoint, reply.status ?? 200);
  return toResponse(readableReply(reply, exchange.request, endpoint), exchange.idInLog);
}

/** About how many held polls a server answers in a millisecond. */
const pollsPerMs = 10;

/** Commits of any process wake the held polls that they concern. */
function listenForChanges(db: Database, changes: HeldPolls): void {
  db.listen("organization", (payload) => changes.wakeOrganization(Number(payload)));
  db.listen("node", (payload) => {
    const [organization, node, confirmedBy] = payload.split("/");
    // The node itself confirmed something, which is no news for it.
    if (confirmedBy === undefined) changes.wakeNode(Number(organization), Number(node));
  });
  const wakeForNames = makeWaking({
    wake: (orgId) => changes.wakeOrganization(orgId),
    // Names change all the time while many nodes register: the next wake waits until the polls of this one can be answered.
    restMs: (orgId) => changes.heldIn(orgId) / pollsPerMs,
  });
  db.listen("names", (payload) => wakeForNames(Number(payload)));
}

/** Groups the routes by path. */
function endpointsOf(routes: readonly Route[]): Endpoint[] {
  const endpoints = new Map<string, Endpoint>();
  for (const each of routes) {
    const known = endpoints.get(each.path);
    if (known === undefined) {
      endpoints.set(each.path, {
        path: each.path,
        routes: new Map([[each.method, each]]),
        weakest: each,
        allow: "",
      });
      continue;
    }
    if (known.routes.has(each.method)) throw new Error(`Two routes for ${each.method} ${each.path}`);
    known.routes.set(each.method, each);
    if (accessOrder.indexOf(each.access) < accessOrder.indexOf(known.weakest.access)) known.weakest = each;
  }
  for (const endpoint of endpoints.values()) {
    const get = endpoint.routes.get("GET");
    if (get !== undefined) endpoint.routes.set("HEAD", get);
    endpoint.allow = [...endpoint.routes.keys()].sort().join(", ");
  }
  return [...endpoints.values()];
}

/** Weakest first. A caller who may use any method of a path gets 405 for the methods that it lacks. */
const accessOrder: readonly Route["access"][] = [
  "public",
  "register",
  "user",
  "person",
  "member",
  "own",
  "admin",
  "owner",
  "docs",
  "staff",
];

/** Redirects a known path without its final slash. 308 keeps the method and the body. */
function withSlash(hono: Hono<Environment>, request: Request): Reply | undefined {
  const { pathname, search } = new URL(request.url);
  if (pathname.endsWith("/") || pathname.startsWith("//")) return undefined;
  const [handlers] = hono.router.match(request.method, `${pathname}/`);
  if (handlers.length === 0) return undefined;
  const status = request.method === "GET" || request.method === "HEAD" ? 301 : 308;
  return { status, headers: { Location: `${pathname}/${search}` } };
}

/** Ids for the log: unique in this process, very probably in all processes, and not secret. */
function requestIds(random: Services["system"]["random"]): () => string {
  const prefix = Buffer.from(random(6)).toString("base64url");
  let count = 0;
  return () => `${prefix}-${(++count).toString(36)}`;
}
