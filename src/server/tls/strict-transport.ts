// Strict-Transport-Security, so that browsers never use plain HTTP under the public name.

import { parseAddress } from "../../base/ip.ts";

/** 30 days. Short, because a browser that insists offers no way past a certificate that it does not trust. */
const strictTransportS = 30 * 86_400;

type Answered = Response | Promise<Response>;

/**
 * Adds the header to answers under the public name. Not for other names, nor for localhost and addresses: browsers would
 * insist on TLS for everything else under that name.
 */
export function strictTransport(
  publicUrl: string | undefined,
): (request: Request, answered: Answered) => Answered {
  const { host, hostname } = publicUrl === undefined ? { host: "", hostname: "" } : new URL(publicUrl);
  // A name that is neither empty, nor an IPv6 address in brackets, nor localhost.
  const isName = parseAddress(hostname) === undefined && !/^$|^\[|(?:^|\.)localhost$/.test(hostname);
  if (!isName) return (_, answered) => answered;
  const mark = (response: Response) => {
    response.headers.set("Strict-Transport-Security", `max-age=${strictTransportS}`);
    return response;
  };
  return (request, answered) => {
    if (request.headers.get("host") !== host) return answered;
    return answered instanceof Promise ? answered.then(mark) : mark(answered);
  };
}
