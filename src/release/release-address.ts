// Where releases and engines may come from. Every address of one is read here: flags, permissions and each redirect.

import { isAbsolute } from "node:path";
import { isLoopback } from "../base/loopback.ts";

/** A URL of TLS or loopback. */
export function isReleaseUrl(text: string): boolean {
  const url = URL.parse(text);
  return url?.protocol === "https:" || (url?.protocol === "http:" && isLoopback(url.hostname));
}

/** A release address is such a URL, or an absolute directory. */
export const isReleaseAddress = (text: string): boolean => isAbsolute(text) || isReleaseUrl(text);

/**
 * The address in messages and plans: without the password of a mirror, and without what follows the path, by which a redirect may
 * be signed. A control plane that asked for an update gets such messages, and shows them.
 */
export const shownAddress = (text: string): string =>
  isAbsolute(text) ? text : text.replace(/^([a-z]+:\/\/)[^/?#]*@/i, "$1").replace(/[?#][^]*$/, "");
