// The network edge: the address to listen on, the client's address behind trusted proxies, and the server's own names.

import { AppError } from "../../base/errors.ts";
import {
  formatAddress,
  isWithin,
  parseAddress,
  parseNetwork,
  unmapped,
  type Network,
} from "../../base/ip.ts";

export type ListenAddress = { hostname: string; port: number };

/** `127.0.0.1:8420`, `[::1]:0`, `localhost:80`. */
export function parseListen(flag: string, text: string): ListenAddress {
  const match = /^(?:\[([0-9a-fA-F:]+)\]|([A-Za-z0-9.-]+)):(\d{1,5})$/.exec(text);
  const hostname = match?.[1] ?? match?.[2];
  const port = Number(match?.[3]);
  if (hostname === undefined || port > 65_535) {
    throw new AppError(
      "usage",
      `${flag} must be HOST:PORT, such as 127.0.0.1:8420 or [::1]:8420, not "${text}"`,
    );
  }
  return { hostname, port };
}

/**
 * Whether a Host header names a server that listens on loopback: an address, localhost, or the public name. With DNS
 * rebinding, a web page resolves its own name to 127.0.0.1 and its visitor's browser sends that name.
 */
export function isOwnName(host: string | null, publicUrl?: string): boolean {
  if (host === null) return true;
  const name = host.replace(/:\d*$/, "").toLowerCase();
  const isAddress = parseAddress(name.replace(/^\[(.*)\]$/, "$1")) !== undefined;
  return (
    isAddress || name === "localhost" || (publicUrl !== undefined && name === new URL(publicUrl).hostname)
  );
}

/** Parses the values of a flag that takes networks. A plain address is a network of one address. */
export function networksOfFlag(flag: string, texts: readonly string[]): Network[] {
  return texts.map((text) => {
    const network = parseNetwork(text.includes("/") ? text : `${text}/${text.includes(":") ? 128 : 32}`);
    if (network === undefined) {
      throw new AppError("usage", `${flag} must be a network, such as 10.0.0.0/8, not "${text}"`);
    }
    return network;
  });
}

/**
 * The nearest address that is not a trusted proxy. Reads X-Forwarded-For from its right end, and only the part that
 * trusted proxies wrote. At an entry that is not an address it stops: what stands left of it may come from the client.
 */
export function clientAddress(peer: string, forwarded: string | null, proxies: readonly Network[]): string {
  let address = unmapped(peer);
  if (proxies.length === 0 || forwarded === null) return address;
  for (const hop of forwarded.split(",").reverse()) {
    if (!isWithin(address, proxies)) break;
    const next = hopAddress(hop.trim());
    if (next === undefined) break;
    address = next;
  }
  return address;
}

/**
 * An entry of X-Forwarded-For. Some proxies add the client's port, put brackets around IPv6, or quote both:
 * `203.0.113.7:1234`, `[2001:db8::1]`, `"[2001:db8::1]:443"`.
 */
function hopAddress(hop: string): string | undefined {
  // The longest form is a mapped IPv6 address with brackets, port and quotes.
  if (hop.length > 64) return undefined;
  const plain = /^"([^"]*)"$/.exec(hop)?.[1] ?? hop;
  const match = /^(?:\[([0-9a-f]*:[0-9a-f:.]+)\]|([\d.]+))(?::\d{1,5})?$/i.exec(plain);
  const parsed = parseAddress(unmapped(match?.[1] ?? match?.[2] ?? plain));
  return parsed === undefined ? undefined : formatAddress(parsed);
}

/** Whether a browser asks for a page, not a program for data. */
export function acceptsHtml(request: Pick<Request, "headers">): boolean {
  return request.headers.get("accept")?.includes("text/html") === true;
}
