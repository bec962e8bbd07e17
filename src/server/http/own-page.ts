// Whether a browser's request was sent by a page of this control plane. A cookie alone does not prove that: a browser
// sends it with requests that other sites start.

import { AppError } from "../../base/errors.ts";
import { isLoopback } from "../../base/loopback.ts";
import type { AskedRequest } from "./route.ts";

/**
 * Throws cross_site, or unsupported_media_type for a body that a form of another site could send. The pages of a sibling
 * host are foreign too: their requests have another origin, and `Sec-Fetch-Site: same-site`.
 */
export function requireOwnPage({ method, headers }: AskedRequest, publicUrl: string): void {
  const origin = headers.get("origin");
  if (origin === null || !isOwnOrigin(origin, headers.get("host"), publicUrl)) throw crossSite();
  if (headers.get("sec-fetch-site") !== "same-origin") throw crossSite();
  if (method === "DELETE" || /^application\/json\s*(;|$)/i.test(headers.get("content-type") ?? "")) return;
  throw new AppError("unsupported_media_type", "A browser's request must be application/json.");
}

/** The public URL, or this server under a loopback name, where TLS is not needed. */
function isOwnOrigin(origin: string, host: string | null, publicUrl: string): boolean {
  if (origin === new URL(publicUrl).origin) return true;
  const url = URL.canParse(origin) ? new URL(origin) : undefined;
  return url !== undefined && isLoopback(url.hostname) && url.host === host;
}

/**
 * Throws tls_required if the browser would not keep a cookie that needs TLS. Browsers trust loopback without it. Call
 * requireOwnPage first: it makes sure that there is an origin.
 */
export function requireSecurePage({ headers }: AskedRequest): void {
  const { protocol, hostname, host } = new URL(headers.get("origin") ?? "");
  if (protocol === "https:" || isLoopback(hostname)) return;
  throw new AppError("tls_required", `Signing in with a browser needs TLS, and http://${host} has none.`, {
    hint: "Start the control plane with `--tls auto`, `--tls acme` or a certificate, or put it behind a proxy with TLS, and open the https:// address.",
  });
}

function crossSite(): AppError {
  return new AppError(
    "cross_site",
    "This request does not come from a page of this control plane, so the browser's session does not count. Programs send a token instead.",
  );
}
