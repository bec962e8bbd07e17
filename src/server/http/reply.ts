// Turns a handler's reply, or an error, into the HTTP response: headers, security headers, the one error shape. Only
// this file creates a Response of the application.

import { AppError } from "../../base/errors.ts";
import { clean, cleanErrors } from "../../base/log.ts";
import type { ErrorBody } from "../../protocol/error-body.ts";
import type { Reply } from "./route.ts";

/** Copying a Headers object is cheaper than filling one for each answer. */
const commonHeaders = new Headers({
  "Cache-Control": "no-store",
  "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
  "Content-Type": "application/json",
  "Referrer-Policy": "no-referrer",
  "X-Content-Type-Options": "nosniff",
  "X-Frame-Options": "DENY",
});

/** RFC 9110. Importing this table from node:http would more than double the start-up time. */
const phrases: Readonly<Record<number, string>> = {
  400: "Bad Request",
  401: "Unauthorized",
  403: "Forbidden",
  404: "Not Found",
  405: "Method Not Allowed",
  408: "Request Timeout",
  409: "Conflict",
  413: "Content Too Large",
  415: "Unsupported Media Type",
  421: "Misdirected Request",
  429: "Too Many Requests",
  500: "Internal Server Error",
  502: "Bad Gateway",
  503: "Service Unavailable",
};

/** Headers of the reply replace common headers. `requestId`: for X-Request-Id, if the request was logged. */
export function toResponse(reply: Reply, requestId?: string): Response {
  const { status = 200, body, raw, headers, cookies } = reply;
  const content = raw ?? (body === undefined ? null : JSON.stringify(body));
  if (content !== null && headers === undefined && cookies === undefined && requestId === undefined) {
    return new Response(content, { status, headers: commonHeaders });
  }
  const answered = new Headers(commonHeaders);
  if (requestId !== undefined) answered.set("X-Request-Id", requestId);
  if (content === null) answered.delete("Content-Type");
  for (const name in headers) answered.set(name, headers[name] ?? "");
  for (const cookie of cookies ?? []) answered.append("Set-Cookie", cookie);
  return new Response(content, { status, headers: answered });
}

/** The body of every error. `headers`: those that the status requires, such as Allow. */
export function errorReply(error: AppError, headers: Record<string, string> = {}): Reply {
  const status = error.httpStatus;
  const { hint, errors, methods, order, retryAfter } = error.details;
  const body: ErrorBody = {
    error: phrases[status] ?? "Error",
    code: error.code,
    detail: clean(error.message),
    ...(hint === undefined ? {} : { hint: clean(hint) }),
    status_code: status,
    ...(errors === undefined ? {} : { errors: cleanErrors(errors) }),
    ...(methods === undefined ? {} : { methods: [...methods] }),
    ...(order === undefined ? {} : { order }),
  };
  return {
    status,
    body,
    headers: {
      ...(status === 401 ? { "WWW-Authenticate": 'Bearer realm="api"' } : {}),
      // Close the connection: otherwise the rest of the body would be read as the next request, however long it
      // takes.
      ...(status === 408 ? { Connection: "close" } : {}),
      ...(retryAfter === undefined ? {} : { "Retry-After": String(retryAfter) }),
      ...headers,
    },
  };
}

export const noContent = { status: 204 } as const;
