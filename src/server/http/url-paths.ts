// Whether a URL has the one form of its path. Requests come by Bun's table of routes (check-ins), or by Hono (all others): app.ts.

import type { Params } from "./exchange.ts";

/**
 * RFC 3986, 6.2.2: letters, digits, `-`, `.`, `_` and `~` must not be percent-encoded, and percent-encodings use
 * upper case. Otherwise one resource has two paths, and passes the rules of a proxy that knows only one. Dot segments
 * never arrive here.
 */
export function isCanonical(url: string): boolean {
  const end = url.indexOf("?");
  const path = end === -1 ? url : url.slice(0, end);
  return !path.includes("%") || !needlesslyEncoded.test(path);
}

/** A `%` without two upper-case digits, or the codes of - . 0-9, A-O a-o, P-Z p-z, _ and ~ in this order. */
const needlesslyEncoded = /%(?![0-9A-F]{2})|%(?:2[DE]|3\d|[46][1-9A-F]|[57][\dA]|5F|7E)/;

/**
 * Makes the check of whether a URL has this path, in Hono's syntax, with the parameters that Bun's table of routes found. Bun's
 * table also matches `//api/…` and percent-encoded segments. Without Hono, answer only URLs whose path is exactly
 * the declared one.
 */
export function makePathCheck(path: string): (url: string, params: Params) => boolean {
  // Declared paths begin and end with a slash.
  const segments = path.split("/").slice(1, -1);
  const patterns = segments.map((segment) => {
    const [, name, pattern = "[a-z0-9-]+"] = /^:([a-z_]+)(?:\{(.+)\})?$/.exec(segment) ?? [];
    return name === undefined ? undefined : { name, pattern: new RegExp(`^${pattern}$`) };
  });
  return (url, params) => {
    let plain = "/";
    for (const [at, segment] of segments.entries()) {
      const pattern = patterns[at];
      const text = pattern === undefined ? segment : (params[pattern.name] ?? "");
      if (pattern?.pattern.test(text) === false) return false;
      plain += `${text}/`;
    }
    // The path must begin at the first slash after the host. A URL with a query is not `plain`, and is left to Hono.
    return url.endsWith(plain) && url.indexOf("/", url.indexOf("://") + 3) === url.length - plain.length;
  };
}
