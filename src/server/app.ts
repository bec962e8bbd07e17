// The HTTP application: routes in, answers out. Holds the order of checks of decisions 4 (404, 401, 403, 429, 405,
// 400/413/415) and the one place where a failure becomes an answer. What a route does is in routes/.

import { Hono } from "hono";
import { AppError } from "../errors.ts";
import { denied, makeAuth, mayInOrganization, nodeTokenScope, refusal } from "./people/auth.ts";
import { makeChanges, type Changes } from "./config/changes.ts";
import { startDeliveries } from "./webhooks/deliveries.ts";
import { readText } from "./http/body.ts";
import { Exchange, type Edge, type Params } from "./http/exchange.ts";
import { makeMeters } from "./http/meters.ts";
import { makePasswords } from "./people/passwords.ts";
import { errorReply, toResponse } from "./http/reply.ts";
import { makeTeller } from "./http/requests.ts";
import { docsCookie, type Caller, type OrganizationAccess, type Reply, type Route } from "./http/route.ts";
import { makeRouter } from "./http/router.ts";
import { allRoutes } from "./routes.ts";
import type { ServerOptions, Services } from "./services.ts";
import { makeSessions } from "./people/sessions.ts";
import type { Database } from "./store/database.ts";
import { guesser, makeThrottle } from "./http/throttle.ts";

type Endpoint = { path: string; routes: Map<string, Route>; weakest: Route; allow: string };
/** A body that takes longer, ms, may have outlasted the rights that it came with. */
const promptMs = 100;

/** What an answer of one endpoint takes. */
type Serving = {
  endpoint: Endpoint;
  services: Services;
  tell: ReturnType<typeof makeTeller>;
  nextId(): string;
  /** Decides anew whether who asks may do it. */
  admit(exchange: Exchange): Promise<void>;
};

export type App = {
  fetch(request: Request, edge: Edge): Response | Promise<Response>;
  routes: readonly Route[];
  services: Services;
  /** Answers the polls that wait; what comes after is still answered. */
  close(): void;
  /** After the last answer, before the database is closed: writes what is still in memory. */
  flush(): Promise<void>;
};

export async function makeApp(options: ServerOptions): Promise<App> {
  const { db, system } = options;
  const sessions = await makeSessions(options);
  const changes = makeChanges(system);
  listenForChanges(db, changes);
  const atStop: (() => Promise<void>)[] = [];
  const services: Services = {
    ...options,
    atStop: (act) => void atStop.push(act),
    sessions,
    changes,
    meters: makeMeters(),
    auth: makeAuth({
      db,
      now: system.now,
      verifyAccess: sessions.verifyAccess,
      wasIssued: sessions.wasIssued,
    }),
    passwords: makePasswords(),
    throttle: makeThrottle(system.now),
  };
  const routes = allRoutes(services);
  startDeliveries(services);
  const tell = makeTeller(services);
  const nextId = requestIds(system.random);
  const hono = new Hono<{ Bindings: Edge }>({ router: makeRouter() });
  /** Past the router, which would cost as much as the rest of a check-in: what is asked most is known by its URL. */
  const shortcuts: { url: RegExp; serving: Serving }[] = [];

  for (const endpoint of endpointsOf(routes)) {
    const admit = (exchange: Exchange) => admitTo(endpoint, exchange, services);
    const serving: Serving = { endpoint, services, tell, nextId, admit };
    hono.all(endpoint.path, (c) => answer(serving, c.req.raw, c.env, c.req.param()));
    if (endpoint.weakest.frequent === true) shortcuts.push({ url: urlPattern(endpoint.path), serving });
  }
  hono.notFound((c) => {
    const reply =
      withSlash(hono, c.req.raw) ?? errorReply(new AppError("not_found", "There is nothing here."));
    return toResponse(reply);
  });
  const flush = async () => {
    for (const act of atStop) await act();
  };
  return {
    fetch(request, edge) {
      for (const { url, serving } of shortcuts) {
        const params = url.exec(request.url)?.groups;
        if (params !== undefined) return answer(serving, request, edge, params);
      }
      return hono.fetch(request, edge);
    },
    routes,
    services,
    close: changes.close,
    flush,
  };
}

/** Matches where nothing in the path is encoded and nothing follows it. */
function urlPattern(path: string): RegExp {
  const segments = path.replace(
    /:([a-z_]+)(?:\{([^/]+)\})?/g,
    (_, name: string, pattern = "[a-z0-9-]+") => `(?<${name}>${pattern})`,
  );
  return new RegExp(`^https?://[^/?#]+${segments}$`);
}

/** Commits of this process and of all others wake the polls that they concern. */
function listenForChanges(db: Database, changes: Changes): void {
  db.listen("organization", (payload) => changes.wakeOrganization(Number(payload)));
  db.listen("node", (payload) => {
    const [organization, node] = payload.split("/");
    changes.wakeNode(Number(organization), Number(node));
  });
}

/** Every path once, with the methods that it has. */
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

/** Who may use any method of a path may learn (405) that another method is not there. */
const accessOrder: readonly Route["access"][] = [
  "public",
  "register",
  "user",
  "person",
  "member",
  "admin",
  "owner",
  "docs",
  "staff",
];

/**
 * The way of a request. Most are check-ins: nothing is waited for that is in memory, and no function is made on the way,
 * since either costs as much as what a check-in does.
 */
async function answer(serving: Serving, request: Request, edge: Edge, params: Params): Promise<Response> {
  const { endpoint, services } = serving;
  const exchange = new Exchange(request, edge, params, serving);
  try {
    // Of who hangs up nobody can tell the address later. A check-in, of all that is asked, hardly ever needs it.
    if (endpoint.weakest.frequent !== true || services.logReads === true) void exchange.address;
    const route = endpoint.routes.get(request.method);
    const rules = route ?? endpoint.weakest;
    const caller = authenticate(exchange, rules, services);
    exchange.caller = caller instanceof Promise ? await caller : caller;
    const org = authorize(exchange, rules, route, services);
    exchange.org = org instanceof Promise ? await org : org;
    if (rules.guesses !== undefined) services.throttle.check(guesser(rules.guesses, exchange.address));
    if (route?.takes.body !== undefined) {
      exchange.text = await readText(request);
      // Who sends it slowly must not keep a right by that.
      if (performance.now() - exchange.begun > promptMs) await serving.admit(exchange);
    }
    const reply = route === undefined ? notAllowed(request, endpoint) : route.answer(exchange, exchange);
    if (rules.frequent === true && exchange.waitS > 0) {
      // What opened a poll may have ended while it was held.
      await Promise.allSettled([reply]);
      await serving.admit(exchange);
    }
    return told(serving, exchange, reply instanceof Promise ? await reply : reply);
  } catch (error) {
    const own = error instanceof AppError ? endpoint.weakest.refused?.(error, request) : undefined;
    return told(serving, exchange, own ?? failureReply(error, exchange, endpoint, services.log));
  }
}

async function admitTo(endpoint: Endpoint, exchange: Exchange, services: Services): Promise<void> {
  const route = endpoint.routes.get(exchange.request.method);
  const rules = route ?? endpoint.weakest;
  exchange.caller = await authenticate(exchange, rules, services);
  exchange.org = await authorize(exchange, rules, route, services);
}

function told({ tell, endpoint }: Serving, exchange: Exchange, reply: Reply): Response {
  tell(exchange, endpoint, reply.status ?? 200);
  return toResponse(reply, exchange.idInLog);
}

function notAllowed({ method }: Request, { allow }: Endpoint): Reply {
  const error = new AppError("method_not_allowed", `Method "${method}" is not allowed here.`);
  return errorReply(error, { Allow: allow });
}

function authenticate(exchange: Exchange, rules: Route, services: Services): Caller | Promise<Caller> {
  const header = exchange.request.headers.get("authorization");
  if (header === null && rules.access === "docs") {
    return byCookie(exchange.request, services.sessions, services.auth);
  }
  return services.auth.known(header) ?? byHeader(exchange, header ?? "", rules, services);
}

async function byHeader(
  exchange: Exchange,
  header: string,
  rules: Route,
  { auth, throttle }: Services,
): Promise<Caller> {
  // It may be a guess.
  const key = guesser("token", exchange.address);
  const guessed = () => {
    throttle.check(key);
    throttle.count(key);
  };
  if (rules.access !== "public") return auth.caller(header, guessed);
  // Where nobody needs to sign in, a broken header is no obstacle; a node's token is refused all the same.
  try {
    return await auth.caller(header, () => undefined);
  } catch (error) {
    if (error instanceof AppError && error.httpStatus === 401) return { kind: "none" };
    throw error;
  }
}

/** The docs pages alone: a browser sends no Authorization header. */
async function byCookie(
  request: Request,
  sessions: Services["sessions"],
  auth: Services["auth"],
): Promise<Caller> {
  const cookies = request.headers.get("cookie") ?? "";
  const token = new RegExp(`(?:^|; *)${docsCookie}=([^;]+)`).exec(cookies)?.[1];
  if (token === undefined) return { kind: "none" };
  const { userId, issuedAt } = await sessions.verifyDocs(token);
  return (await auth.person(userId, issuedAt)) ?? { kind: "none" };
}

function authorize(
  exchange: Exchange,
  rules: Route,
  route: Route | undefined,
  { auth }: Services,
): OrganizationAccess | undefined | Promise<OrganizationAccess> {
  const { caller } = exchange;
  if (caller.kind === "node") {
    if (route?.node !== true || exchange.param("slug") !== caller.slug || exchange.id() !== caller.nodeId) {
      throw nodeTokenScope();
    }
    return { id: caller.orgId, slug: caller.slug, role: "member", visiting: false };
  }
  const refused = refusal(caller, rules);
  if (refused !== undefined) throw refused;
  if (!rules.path.startsWith("/api/org/:slug/")) return undefined;
  return inOrganization(exchange, rules, auth);
}

async function inOrganization(
  exchange: Exchange,
  rules: Route,
  auth: Services["auth"],
): Promise<OrganizationAccess> {
  const org = await auth.organization(exchange.caller, exchange.param("slug"));
  if (!mayInOrganization(org, exchange.caller, rules.access)) throw denied();
  return org;
}

function failureReply(error: unknown, exchange: Exchange, endpoint: Endpoint, log: Services["log"]): Reply {
  const known = error instanceof AppError ? error : undefined;
  if (known === undefined || known.httpStatus >= 500) {
    log.error("a request failed", {
      request_id: exchange.requestId,
      method: exchange.request.method,
      route: endpoint.path,
      reason: error instanceof Error ? error.message : String(error),
      ...(known === undefined && error instanceof Error ? { stack: error.stack } : {}),
    });
  }
  if (known !== undefined && known.code !== "internal") return errorReply(known);
  const sentence = `The server failed to answer. Its log says why, at request ${exchange.requestId}.`;
  return errorReply(new AppError("internal", sentence, { cause: error }));
}

/** A known path without its final slash (decisions 4); 308 keeps method and body. */
function withSlash(hono: Hono<{ Bindings: Edge }>, request: Request): Reply | undefined {
  const { pathname, search } = new URL(request.url);
  if (pathname.endsWith("/") || pathname.startsWith("//")) return undefined;
  const [handlers] = hono.router.match(request.method, `${pathname}/`);
  if (handlers.length === 0) return undefined;
  const status = request.method === "GET" || request.method === "HEAD" ? 301 : 308;
  return { status, headers: { Location: `${pathname}/${search}` } };
}

/** Unique in this process, and unlikely to meet another's: for the log, not a secret. */
function requestIds(random: Services["system"]["random"]): () => string {
  const prefix = Buffer.from(random(6)).toString("base64url");
  let count = 0;
  return () => `${prefix}-${(++count).toString(36)}`;
}
