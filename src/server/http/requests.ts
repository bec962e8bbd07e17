// Each answered request is counted, and what changes something is logged with its id; a check-in is so frequent that it
// is logged only where everything is. Never a query or a body: they may hold secrets.

import type { Route } from "./route.ts";
import type { Services } from "../services.ts";

type Told = {
  request: Request;
  endpoint: { routes: ReadonlyMap<string, Route>; weakest: Route };
  edge: { addressOf(request: Request): string };
  requestId: string;
};

/** `begun` by performance.now(). */
export function makeTeller({ meters, log, logReads = false }: Services) {
  return ({ request, endpoint, edge, requestId }: Told, status: number, begun: number): void => {
    const { method } = request;
    const { name } = endpoint.routes.get(method) ?? endpoint.weakest;
    const isCheckin = name === "nodes_checkin";
    const ms = performance.now() - begun;
    const isHeld = isCheckin && request.headers.get("prefer") !== null;
    meters.request(isHeld ? `${name}_held` : name, method, status, ms);
    if (!logReads && (isCheckin || method === "GET" || method === "HEAD")) return;
    log.info("request", {
      request_id: requestId,
      method,
      path: new URL(request.url).pathname,
      status,
      ms: Math.round(ms),
      from: edge.addressOf(request),
    });
  };
}
