// Where releases and engines may come from. Every address of one is read here: flags, permissions and each redirect.

import { isAbsolute } from "node:path";
import { isLoopback } from "../base/loopback.ts";

/** Whether it is a URL of TLS, or of plain HTTP on loopback. */
export function isReleaseUrl(text: string): boolean {
  const url = URL.parse(text);
  return url?.protocol === "https:" || (url?.protocol === "http:" && isLoopback(url.hostname));
}

/** Whether it is a release address: such a URL, or an absolute directory. */
export const isReleaseAddress = (text: string): boolean => isAbsolute(text) || isReleaseUrl(text);

/**
 * The address in messages and plans: without the password of a mirror, and without the query, which may hold the signature of a
 * redirect. Messages about an update that a control plane asked for are sent to it, and shown there.
 */
export const shownAddress = (text: string): string =>
  isAbsolute(text) ? text : text.replace(/^([a-z]+:\/\/)[^/?#]*@/i, "$1").replace(/[?#][^]*$/, "");
