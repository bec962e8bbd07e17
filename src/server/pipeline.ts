// The steps of a request, which app.ts calls in the order of `Pipeline`. They refuse with 401, 403, 429, wait for the request's
// turn, read the body, refuse with 405, or call the handler.

import { AppError, fromSystemError, messageOf } from "../base/errors.ts";
import { readText } from "./http/body.ts";
import { cookiesOf, mayBeDevice } from "./http/cookies.ts";
import { networkOf } from "../base/ip.ts";
import type { Exchange } from "./http/exchange.ts";
import { errorReply } from "./http/reply.ts";
import { actorOf, principal } from "./audit/record.ts";
import { makeRounds, type Turn } from "./http/fair-queue.ts";
import type { OrganizationCall, Reply, Route } from "./http/route.ts";
import type { Testing } from "./policy/edit-policy.ts";
import type { Services } from "./services.ts";

/** A path with its methods. `weakest`: the route with the widest access; its callers may get 405. */
export type Endpoint = { path: string; routes: Map<string, Route>; weakest: Route; allow: string };

/** The caller's rights are checked again if reading the body, or the wait for a turn, takes longer, ms. */
const promptMs = 100;

/** Maximum requests that wait for their round, of one caller and of one organization. Each takes some KiB. */
const mostPaced = { perCaller: 5000, perOwner: 20_000, refusal: tooManyPaced };
/** Check-ins come from whole fleets, and most take microseconds: this many begin in a round. Long ones count as other requests. */
const checkinsInRound = 16;
const mostCheckins = { perCaller: 1000, perOwner: 200_000, refusal: tooManyPaced };
/** In place of an organization's id, for the turns of requests without credentials. */
const ownerOfAnonymous = 0;
/** The same for requests of users outside of organizations. */
const ownerOfUsers = -1;

/** Each step throws an AppError or changes the exchange. It returns a promise only if it waits. */
export type Pipeline = {
  identify(exchange: Exchange, endpoint: Endpoint): void | Promise<void>;
  authorize(exchange: Exchange, endpoint: Endpoint): void | Promise<void>;
  throttle(exchange: Exchange, endpoint: Endpoint): void;
  /**
   * One request and some check-ins begin in each round of the event loop: organizations take turns, and the callers of one.
   */
  takeTurn(exchange: Exchange, endpoint: Endpoint): void | Promise<void>;
  readBody(exchange: Exchange, endpoint: Endpoint): void | Promise<void>;
  handle(exchange: Exchange, endpoint: Endpoint): Reply | Promise<Reply>;
  fail(error: unknown, exchange: Exchange, endpoint: Endpoint): Reply | Promise<Reply>;
};

export function makePipeline(services: Pick<Services, "access" | "throttle" | "log" | "budget">): Pipeline {
  const { access, throttle, log, budget } = services;
  /** The route whose rules hold: for a method that the path has not, the weakest one, before the answer 405. */
  const routeOf = ({ request }: Exchange, { routes, weakest }: Endpoint) =>
    routes.get(request.method) ?? weakest;
  const requests = makeRounds(1, mostPaced);
  const checkins = makeRounds(checkinsInRound, mostCheckins);
  const identify: Pipeline["identify"] = (exchange, endpoint) => {
    const caller = access.identify(exchange, routeOf(exchange, endpoint));
    if (caller instanceof Promise) return caller.then((found) => void (exchange.caller = found));
    exchange.caller = caller;
    return undefined;
  };
  const authorize: Pipeline["authorize"] = (exchange, endpoint) => {
    const route = endpoint.routes.get(exchange.request.method);
    const org = access.authorize(exchange, routeOf(exchange, endpoint), route);
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
      if (routeOf(exchange, endpoint).guesses !== true) return;
      // A known device is not limited with its network. The sign-in checks again, with the device verified.
      if (!mayBeDevice(cookiesOf(exchange.request))) throttle.check("network", networkOf(exchange.address));
    },
    takeTurn(exchange, endpoint) {
      // The operator's own process has no other callers.
      if (exchange.caller.kind === "operator") return undefined;
      // `direct`: the routes of check-ins, which the listener itself finds (app.ts).
      const isQuick = routeOf(exchange, endpoint).direct === true && isShort(exchange.request);
      const rounds = isQuick ? checkins : requests;
      // Undefined: it begins at once.
      return rounds(() => turnOf(exchange))?.then(async () => {
        if (exchange.request.signal.aborted) throw clientLeft();
        if (performance.now() - exchange.begun > promptMs) await admitAgain(exchange, endpoint);
      });
    },
    readBody(exchange, endpoint) {
      const route = endpoint.routes.get(exchange.request.method);
      if (route?.takes.body === undefined) return undefined;
      return readText(exchange.request, route.maxBody).then(async (text) => {
        exchange.text = text;
        // A client that sends slowly must not keep rights that have ended.
        if (performance.now() - exchange.begun > promptMs) await admitAgain(exchange, endpoint);
      });
    },
    handle(exchange, endpoint) {
      const route = endpoint.routes.get(exchange.request.method);
      if (route === undefined) return notAllowed(exchange.request, endpoint);
      exchange.admitAgain = () => admitAgain(exchange, endpoint);
      exchange.requireFresh = () => access.requireFresh(exchange);
      const { org, caller } = exchange;
      // The operator may always add data; only `serve` knows the maximum.
      if (route.grows === true && org !== undefined && caller.kind !== "operator")
        exchange.requireRoom = (input, grows) => budget.require(org, input, grows);
      // The exchange is both what the handler is told of the call, and what its input is read from.
      const reply = route.answer(exchange, exchange);
      if (route.held !== true || exchange.waitS === 0) return reply;
      // The rights may have ended while the poll was held. If they have, this is the answer even where the handler failed.
      return Promise.allSettled([reply]).then(async () => {
        await admitAgain(exchange, endpoint);
        return reply;
      });
    },
    fail(error, exchange, endpoint) {
      // Pages answer some errors with a page of their own.
      const ownReply =
        error instanceof AppError ? endpoint.weakest.refused?.(error, exchange.request) : undefined;
      return ownReply ?? failureReply(error, exchange, endpoint, log);
    },
  };
}

/** Reading 64 KiB takes as long as a hundred check-ins. */
function isShort({ headers }: Request): boolean {
  return Number(headers.get("Content-Length") ?? Infinity) <= 4096;
}

function turnOf(exchange: Exchange): Turn {
  const { caller, org } = exchange;
  if (caller.kind === "none") return { owner: ownerOfAnonymous, caller: networkOf(exchange.address) };
  return { owner: org?.id ?? ownerOfUsers, caller: principal(actorOf(exchange)) };
}

function notAllowed({ method }: Request, { allow }: Endpoint): Reply {
  const error = new AppError("method_not_allowed", `Method "${method}" is not allowed here.`);
  return errorReply(error, { Allow: allow });
}

function failureReply(error: unknown, exchange: Exchange, endpoint: Endpoint, log: Services["log"]): Reply {
  const known = error instanceof AppError ? error : undefined;
  const isOwnCommand = exchange.operator !== undefined;
  if (known === undefined || known.httpStatus >= 500) {
    // A command on the data prints the reason itself: the line is for --verbose.
    const write = isOwnCommand ? log.debug : log.error;
    write("Request failed", {
      request_id: exchange.requestId,
      method: exchange.request.method,
      route: endpoint.path,
      reason: error instanceof Error ? error.message : String(error),
      ...(known?.details.cause === undefined ? {} : { cause: messageOf(known.details.cause) }),
      ...(known === undefined && error instanceof Error ? { stack: error.stack } : {}),
    });
  }
  if (isOwnCommand) return errorReply(fromSystemError("finish the command", error));
  if (known !== undefined && known.code !== "internal") return errorReply(known);
  const sentence = `The server could not answer. Its log has the reason, at request ${exchange.requestId}.`;
  return errorReply(new AppError("internal", sentence, { cause: error }));
}

/**
 * Work of a handler that takes long: does it in turn, unless the client left or lost its rights meanwhile.
 */
export function inTurnOf<T>(
  { heavyWork }: Pick<Services, "heavyWork">,
  call: OrganizationCall,
  work: () => Promise<T>,
): Promise<T> {
  const since = performance.now();
  return heavyWork({ owner: call.org.id, caller: principal(actorOf(call)) }, async () => {
    if (call.request.signal.aborted) throw clientLeft();
    if (performance.now() - since > promptMs) await call.admitAgain();
    return work();
  });
}

/** Tests of the policy on behalf of this request. */
export function testingOf({ testing }: Pick<Services, "testing">, call: OrganizationCall): Testing {
  return {
    inTurn: (work) => inTurnOf({ heavyWork: testing }, call, work),
    admitAgain: () => call.admitAgain(),
  };
}

function clientLeft(): AppError {
  return new AppError("throttled", "The client left before its turn came.");
}

function tooManyPaced(): AppError {
  const message = "Too many requests of this kind wait already. Try again in 5 seconds.";
  return new AppError("throttled", message, { retryAfter: 5 });
}
