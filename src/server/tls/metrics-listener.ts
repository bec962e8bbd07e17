// `/metrics` in the text format of Prometheus, and nothing else.

import { messageOf } from "../../base/errors.ts";
import type { Log } from "../../base/log.ts";
import type { ListenAddress } from "../http/edge.ts";
import { explainBindError } from "./bind-error.ts";
import { makeHostGuard } from "./host-guard.ts";

export function listenForMetrics(
  { isService = false, ...listen }: ListenAddress & { isService?: boolean | undefined },
  write: () => Promise<string>,
  log: Log,
): ReturnType<typeof Bun.serve> {
  const refusalOf = makeHostGuard(listen);
  const open = () =>
    Bun.serve({
      hostname: listen.hostname,
      port: listen.port,
      // In a handover the successor listens beside this process.
      reusePort: isService,
      development: false,
      async fetch(request) {
        const refused = refusalOf(request);
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
  return explainBindError(open, "--metrics-listen", listen);
}
