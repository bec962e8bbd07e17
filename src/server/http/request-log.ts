// Counts each request, and logs those that change something. Check-ins and reads are logged only with `logReads`,
// because they are frequent. Never logs a query or a body: they may hold secrets.

import type { Exchange } from "./exchange.ts";
import type { RoutesOfPath } from "./route.ts";
import type { Log } from "../../base/log.ts";
import type { Meters } from "./meters.ts";

type Deps = { meters: Meters; log: Log; logReads?: boolean };

export function makeRequestLogger({ meters, log, logReads = false }: Deps) {
  return (exchange: Exchange, { routes, weakest }: RoutesOfPath, status: number): void => {
    const { request, begun } = exchange;
    const { method } = request;
    // A method that the path lacks counts as its route with the widest access.
    const { name, held = false, quiet = false } = routes.get(method) ?? weakest;
    const ms = performance.now() - begun;
    // Held check-ins take up to a minute: count them separately.
    const isHeld = held && status === 200 && exchange.waitS > 0;
    meters.request(isHeld ? `${name}_held` : name, method, status, ms);
    if (!logReads && (quiet || method === "GET" || method === "HEAD")) return;
    log.info("request", {
      request_id: exchange.requestId,
      method,
      path: new URL(request.url).pathname,
      status,
      ms: Math.round(ms),
      from: exchange.address,
    });
  };
}
