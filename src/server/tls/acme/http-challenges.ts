// The plain HTTP listener on port 80: answers HTTP-01 challenges (RFC 8555, section 8.3) of any replica's order, and sends
// everything else to the public URL.

import { messageOf } from "../../../base/errors.ts";
import type { Log } from "../../../base/log.ts";
import type { ListenAddress } from "../../http/edge.ts";

export type ChallengeListener = {
  listen: ListenAddress;
  publicUrl: string;
  /** The answer to the challenge with this token, if there is one. */
  find(token: string): Promise<string | undefined>;
};

const retryMs = 5000;
const challengePath = "/.well-known/acme-challenge/";

/**
 * Listens now or, if the port is taken, as soon as it is free: the present certificate may be good for weeks, so the
 * control plane starts without this port. Returns the function that stops.
 */
export function listenForChallenges(options: ChallengeListener, log: Log): () => Promise<void> {
  const { hostname, port } = options.listen;
  let listener: ReturnType<typeof Bun.serve> | undefined;
  let timer: ReturnType<typeof setInterval> | undefined;
  const open = () => {
    listener = Bun.serve({
      hostname,
      port,
      development: false,
      idleTimeout: 10,
      maxRequestBodySize: 1024,
      fetch: (request) => answer(request, options),
      error(error) {
        log.error("cannot answer a challenge", { reason: messageOf(error) });
        return new Response(null, { status: 503 });
      },
    });
    clearInterval(timer);
  };
  try {
    open();
  } catch (error) {
    log.error(`cannot listen on ${hostname}:${port} for HTTP-01; trying again`, {
      reason: messageOf(error),
      hint: "End the program that listens there, permit the port (CAP_NET_BIND_SERVICE), or use --acme-listen or --acme-dns-hook.",
    });
    timer = setInterval(() => {
      try {
        open();
        log.info(`listening on ${hostname}:${port} for HTTP-01`);
      } catch {
        // Logged once, above.
      }
    }, retryMs);
  }
  return async () => {
    clearInterval(timer);
    await listener?.stop(true);
  };
}

async function answer(request: Request, { publicUrl, find }: ChallengeListener): Promise<Response> {
  if (!URL.canParse(request.url)) return new Response(null, { status: 400 });
  if (request.method !== "GET" && request.method !== "HEAD") return new Response(null, { status: 405 });
  const { pathname, search } = new URL(request.url);
  if (!pathname.startsWith(challengePath)) {
    return new Response(null, { status: 308, headers: { Location: publicUrl + pathname + search } });
  }
  const token = pathname.slice(challengePath.length);
  const authorization = /^[A-Za-z0-9_-]{1,256}$/.test(token) ? await find(token) : undefined;
  if (authorization === undefined) return new Response(null, { status: 404 });
  return new Response(authorization, { headers: { "Content-Type": "application/octet-stream" } });
}
