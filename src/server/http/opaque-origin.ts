// Lets the sandboxed viewers of the API's document call the API with a pasted token. Their origin is opaque, so browsers
// send `Origin: null`.
//
// Any site can make such a page. Without Access-Control-Allow-Credentials, browsers show it no answer to a request with
// cookies, and a session changes nothing for it (own-page.ts). So it can do what curl can with the same token, but from the
// network of its visitor. That is why endpoints that admit callers without a token stay closed: no site may guess passwords
// or register machines from there. Service tokens that are bound to networks are refused, see users/access.ts.

import type { AskedRequest, Reply, Route, RoutesOfPath } from "./route.ts";

/** Headers that let such a page call, and, with `readable`, read the answer. */
const permission = { "Access-Control-Allow-Origin": "null", Vary: "Origin" };
const readable = {
  ...permission,
  "Access-Control-Expose-Headers": "ETag, Link, X-Request-Id, X-Total-Count",
};

export function hasOpaqueOrigin({ headers }: AskedRequest): boolean {
  return headers.get("origin") === "null";
}

/** The answer to a preflight of a call with a token; undefined for any other request. */
export function preflightReply(request: Request, { routes }: RoutesOfPath): Reply | undefined {
  if (request.method !== "OPTIONS" || !hasOpaqueOrigin(request)) return undefined;
  const method = request.headers.get("access-control-request-method") ?? "";
  const names = request.headers.get("access-control-request-headers")?.toLowerCase().split(/ *, */) ?? [];
  if (!needsToken(routes.get(method)) || !names.includes("authorization")) return undefined;
  const allowed = {
    "Access-Control-Allow-Methods": method,
    "Access-Control-Allow-Headers": "authorization, content-type",
  };
  return { status: 204, headers: { ...permission, ...allowed } };
}

/**
 * Makes the reply readable for a page with an opaque origin. A 401 too: the page's token may be missing or have
 * expired.
 */
export function readableReply(reply: Reply, request: Request, { routes, weakest }: RoutesOfPath): Reply {
  if (!hasOpaqueOrigin(request) || request.method === "OPTIONS" || request.headers.has("cookie"))
    return reply;
  // Without a route of this method, the reply is a 405, for callers of the route with the widest access.
  if (!needsToken(routes.get(request.method) ?? weakest)) return reply;
  return { ...reply, headers: { ...reply.headers, ...readable } };
}

function needsToken(route: Route | undefined): boolean {
  return route !== undefined && route.access !== "public" && route.access !== "register";
}
