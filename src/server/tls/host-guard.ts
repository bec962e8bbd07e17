// Refuses requests without a valid URL. On loopback it also refuses foreign host names: a web page can make the browser of
// this machine send such requests (DNS rebinding).

import { AppError } from "../../base/errors.ts";
import { isLoopback } from "../../base/loopback.ts";
import { isOwnName, type ListenAddress } from "../http/edge.ts";
import { errorReply, toResponse } from "../http/reply.ts";

/** Returns the refusal; undefined if the request may go on. */
export function makeHostGuard({ hostname }: ListenAddress) {
  const isGuarded = isLoopback(hostname);
  /** The last Host header that was found right. Undefined: none yet. Null: a request without that header was. */
  let lastOwn: string | null | undefined;
  return (request: Request, publicUrl?: string): Response | undefined => {
    const host = request.headers.get("host");
    // Cached, because nearly all requests use one name and the check is a large part of a check-in's cost. Only CONNECT
    // has a target instead of a path, which may not form a URL.
    if (host === lastOwn && request.method !== "CONNECT") return undefined;
    if (!URL.canParse(request.url)) {
      const sentence = "The Host header, or the target of CONNECT, does not form a valid URL.";
      return toResponse(errorReply(new AppError("bad_request", sentence)));
    }
    if (!isGuarded || isOwnName(host, publicUrl)) {
      lastOwn = host;
      return undefined;
    }
    const sentence = `This server does not have the name ${host}. Behind a proxy, set it with \`serve --public-url\`.`;
    return toResponse(errorReply(new AppError("misdirected", sentence)));
  };
}
