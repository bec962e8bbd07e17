// A lighthouse or relay offers TCP fallback on a listener of its own, where root of its machine said so (`--tcp-fallback`).

import { join } from "node:path";
import { given } from "../../base/given.ts";
import { forwarderRoute, makeForwarder, type ForwarderConnection } from "../../base/datagrams/forwarder.ts";
import { AppError, because } from "../../base/errors.ts";
import { systemErrorCode } from "../../base/system-errors.ts";
import { withoutPort } from "../../base/ip.ts";
import { readText } from "../../base/open-file.ts";
import { listenPlace } from "../files/config/read-config.ts";
import { tcpListenersOf, tcpPortOf } from "../files/tcp-state.ts";
import type { EdgeContext, RunningPart } from "./part.ts";

/** How long the engine's address is kept: clients must not make this program read its configuration all the time. */
const keepAddressMs = 2000;

export function startTcpListener({ directory, slug, open, log, system }: EdgeContext): RunningPart {
  let engine = { ...listenPlace(directory), readAt: system.monotonic() };
  const forwarder = makeForwarder({
    engineAt(port) {
      const now = system.monotonic();
      if (now - engine.readAt > keepAddressMs) engine = { ...listenPlace(directory), readAt: now };
      return port === engine.port ? given({ host: engine.host }) : undefined;
    },
    monotonic: system.monotonic,
  });
  // The certificate of the node's X.509 CA. Nodes do not check it (tcp-way.ts).
  const tls = { cert: readText(join(directory, "node.crt")), key: readText(join(directory, "node.key")) };
  // `open`: the organization with its files as they are now.
  const servers = tcpListenersOf(open()).map((listener) => {
    const hostname = withoutPort(listener);
    try {
      return Bun.serve<ForwarderConnection>({
        ...(hostname === "" ? {} : { hostname }),
        port: tcpPortOf(listener),
        development: false,
        tls,
        routes: {
          [forwarderRoute]: {
            GET: (request: Request, server: Bun.Server<ForwarderConnection>) =>
              forwarder.accept(request, server, server.requestIP(request)?.address ?? ""),
          },
        },
        fetch: () => new Response(null, { status: 404 }),
        websocket: forwarder.websocket,
        error(error) {
          log.error("The listener of TCP fallback failed", because(slug, error));
          return new Response(null, { status: 500 });
        },
      });
    } catch (error) {
      if (systemErrorCode(error) !== "EADDRINUSE") throw error;
      throw new AppError(
        "failed",
        `Another program of this machine has taken TCP port ${tcpPortOf(listener)}`,
      );
    }
  });
  return {
    async stop() {
      forwarder.close();
      await Promise.all(servers.map((each) => each.stop(true)));
    },
  };
}
