// The checks of a request, in the order of the API: 401, 403, 429, 405, then the body. app.ts mounts them as Hono
// middleware; the direct lane calls the same functions one after the other.

import { AppError } from "../errors.ts";
import { readText } from "./http/body.ts";
import type { Exchange } from "./http/exchange.ts";
import { errorReply } from "./http/reply.ts";
import type { Reply, Route } from "./http/route.ts";
import { guesser } from "./http/throttle.ts";
import type { Services } from "./services.ts";

/** A path with its methods. `weakest`: the route with the widest access, which decides who may learn of a 405. */
export type Endpoint = { path: string; routes: Map<string, Route>; weakest: Route; allow: string };

/** A body that takes longer, ms, may have outlasted the rights that it came with. */
const promptMs = 100;

/** Each step throws an AppError or changes the exchange. Steps are promises only where they wait. */
export type Pipeline = {
  identify(exchange: Exchange, endpoint: Endpoint): void | Promise<void>;
  authorize(exchange: Exchange, endpoint: Endpoint): void | Promise<void>;
  throttle(exchange: Exchange, endpoint: Endpoint): void;
  readBody(exchange: Exchange, endpoint: Endpoint): void | Promise<void>;
  handle(exchange: Exchange, endpoint: Endpoint): Reply | Promise<Reply>;
  fail(error: unknown, exchange: Exchange, endpoint: Endpoint): Reply;
};

export function makePipeline(services: Pick<Services, "access" | "throttle" | "log">): Pipeline {
  const { access, throttle, log } = services;
  const rulesOf = ({ request }: Exchange, { routes, weakest }: Endpoint) =>
    routes.get(request.method) ?? weakest;
  const identify: Pipeline["identify"] = (exchange, endpoint) => {
    const caller = access.identify(exchange, rulesOf(exchange, endpoint));
    if (caller instanceof Promise) return caller.then((found) => void (exchange.caller = found));
    exchange.caller = caller;
    return undefined;
  };
  const authorize: Pipeline["authorize"] = (exchange, endpoint) => {
    const route = endpoint.routes.get(exchange.request.method);
    const org = access.authorize(exchange, rulesOf(exchange, endpoint), route);
    if (org instanceof Promise) return org.then((found) => void (exchange.org = found));
    exchange.org = org;
    return undefined;
  };
  const admitAgain = async (exchange: Exchange, endpoint: Endpoint) => {
    await identify(exchange, endpoint);
    await authorize(exchange, endpoint);
  };
  return {
    identify,
    authorize,
    throttle(exchange, endpoint) {
      const { guesses } = rulesOf(exchange, endpoint);
      if (guesses !== undefined) throttle.check(guesser(guesses, exchange.address));
    },
    readBody(exchange, endpoint) {
      if (endpoint.routes.get(exchange.request.method)?.takes.body === undefined) return undefined;
      return readText(exchange.request).then(async (text) => {
        exchange.text = text;
        // Sending slowly must not keep a right that has ended.
        if (performance.now() - exchange.begun > promptMs) await admitAgain(exchange, endpoint);
      });
    },
    handle(exchange, endpoint) {
      const route = endpoint.routes.get(exchange.request.method);
      if (route === undefined) return notAllowed(exchange.request, endpoint);
      exchange.admitAgain = () => admitAgain(exchange, endpoint);
      const reply = route.answer(exchange, exchange);
      if (route.held !== true || exchange.waitS === 0) return reply;
      // The rights that opened a poll may have ended while it was held.
      return Promise.allSettled([reply]).then(async () => {
        await admitAgain(exchange, endpoint);
        return reply;
      });
    },
    fail(error, exchange, endpoint) {
      const own = error instanceof AppError ? endpoint.weakest.refused?.(error, exchange.request) : undefined;
      return own ?? failureReply(error, exchange, endpoint, log);
    },
  };
}

function notAllowed({ method }: Request, { allow }: Endpoint): Reply {
  const error = new AppError("method_not_allowed", `Method "${method}" is not allowed here.`);
  return errorReply(error, { Allow: allow });
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
