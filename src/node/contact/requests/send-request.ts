// Sends requests to a control plane; nothing else does. Every request has a time-out, every answer is parsed by a schema, every
// failure becomes an AppError: with the server's error code if it answered, else with the kind of network failure.

import * as v from "valibot";
import { AppError, hasCode, isErrorCode, messageOf } from "../../../base/errors.ts";
import { given } from "../../../base/given.ts";
import { clean, cleanErrors, type Log } from "../../../base/log.ts";
import { readCapped } from "../../../base/read-capped.ts";
import { isStrangeAuthority, systemErrorCode } from "../../../base/system-errors.ts";
import type { FetchInit, System } from "../../../base/system.ts";
import { ErrorBody } from "../../../protocol/error-body.ts";
import { setClock } from "../../health/findings.ts";

export type ClientOptions = {
  /** The control plane's URL: `https://…`, or `http://` on loopback or with allowPlainHttp. */
  base: string;
  /** Sent as bearer token: a user's JWT or a node's token. */
  token?: string;
  /** PEM of the only CA that may issue the server's TLS certificate. Unset: the system's CAs. */
  ca?: string;
  allowPlainHttp?: boolean;
  /** Gets method, path and status of every request, never a body or a token. */
  log?: Pick<Log, "debug">;
  system: Pick<System, "fetch" | "sleep">;
};

export type ApiRequest<T> = {
  method?: "GET" | "POST" | "PATCH" | "DELETE";
  path: string;
  body?: unknown;
  headers?: Record<string, string>;
  schema: v.GenericSchema<unknown, T>;
  timeoutMs?: number;
  signal?: AbortSignal;
  /** Size limit of a successful answer. For failures it is `maxAnswerBytes`. */
  maxBytes?: number;
  /** May be retried after a network failure: the request is idempotent. */
  repeatable?: boolean;
};

export type Answer<T> = { status: number; headers: Headers; body: T | undefined };

/** The usual time-out of a request. */
export const timeoutMs = 10_000;
const maxAnswerBytes = 1024 * 1024;

/** Pauses before the first and the second repeat. */
const repeatPausesMs = [250, 1000] as const;

/**
 * Sends a request, again after a network failure if it is repeatable. Rejects with an AppError: that of the server if it answered,
 * else control_plane_unreachable, untrusted_answer or interrupted. `base`: that of the options, which client.ts has checked.
 */
export async function send<T>(
  options: ClientOptions,
  base: string,
  asked: ApiRequest<T>,
): Promise<Answer<T>> {
  for (const pauseMs of repeatPausesMs) {
    try {
      return await sendOnce(options, base, asked);
    } catch (error) {
      const isUnreachable = hasCode(error, "control_plane_unreachable");
      if (!isUnreachable || asked.repeatable !== true || asked.signal?.aborted === true) throw error;
      await options.system.sleep(pauseMs);
    }
  }
  return sendOnce(options, base, asked);
}

async function sendOnce<T>(options: ClientOptions, base: string, asked: ApiRequest<T>): Promise<Answer<T>> {
  const url = base + asked.path;
  const timeout = AbortSignal.timeout(asked.timeoutMs ?? timeoutMs);
  const init: FetchInit = {
    method: asked.method ?? "GET",
    headers: {
      Accept: "application/json",
      ...(asked.body === undefined ? {} : { "Content-Type": "application/json" }),
      ...(options.token === undefined ? {} : { Authorization: `Bearer ${options.token}` }),
      ...asked.headers,
    },
    ...(asked.body === undefined ? {} : { body: JSON.stringify(asked.body) }),
    signal: asked.signal === undefined ? timeout : AbortSignal.any([timeout, asked.signal]),
    // A redirect would send the token to another server; captive portals redirect.
    redirect: "manual",
    ...(options.ca === undefined ? {} : { tls: { ca: options.ca } }),
  };
  let response: Response;
  let text: string;
  try {
    response = await options.system.fetch(url, init);
    const maxBytes = response.ok ? (asked.maxBytes ?? maxAnswerBytes) : maxAnswerBytes;
    text = (await readCapped(response.body, maxBytes, () => tooLarge(maxBytes))).toString("utf8");
    options.log?.debug(`${init.method} ${url}`, { status: response.status });
  } catch (error) {
    options.log?.debug(`${init.method} ${url}`, { failed: messageOf(error) });
    if (error instanceof AppError) throw error;
    if (asked.signal?.aborted === true)
      throw new AppError("interrupted", "The request was canceled", { cause: error });
    throw unreachable(base, timeout.aborted ? "no answer in time" : messageOf(error), error);
  }
  if (response.status === 304 || response.status === 204)
    return { status: response.status, headers: response.headers, body: undefined };
  const json = readJson(text);
  if (!response.ok) throw refusal(base, response, json);
  // Stop at the first issue: one for each of millions of wrong items would fill the memory.
  const parsed = v.safeParse(asked.schema, json, { abortEarly: true });
  if (!parsed.success) throw untrusted(base, asked.path, response);
  return { status: response.status, headers: response.headers, body: parsed.output };
}

function tooLarge(maxBytes: number): AppError {
  const limit = maxBytes / 1024 / 1024;
  return new AppError("untrusted_answer", `The control plane's answer is larger than ${limit} MiB`);
}

function readJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    // The page of a captive portal or proxy, not an answer of the control plane.
    return undefined;
  }
}

/** The server's error if the body has its shape. Other answers prove nothing about this node's rights. */
function refusal(base: string, response: Response, json: unknown): AppError {
  const parsed = v.safeParse(ErrorBody, json, { abortEarly: true });
  if (!parsed.success || parsed.output.status_code !== response.status) {
    if (response.status >= 500) return unreachable(base, `it answered ${response.status}`);
    return untrusted(base, "", response);
  }
  const { code, detail, hint, errors, order } = parsed.output;
  const retryAfter = Number(response.headers.get("Retry-After") ?? Number.NaN);
  // A newer control plane may have codes that this program does not know.
  const substitute = response.status >= 500 ? "control_plane_unreachable" : "failed";
  return new AppError(isErrorCode(code) ? code : substitute, clean(detail), {
    ...given({ hint: hint && clean(hint), errors: errors && cleanErrors(errors), order }),
    ...(Number.isFinite(retryAfter) ? { retryAfter } : {}),
  });
}

const unreachableHint = "Check the URL, the network and that the control plane runs, then try again.";
const strangeCertificate =
  "This machine does not trust its certificate. If the control plane created it itself (serve --tls auto), give its --ca-fingerprint: on the control plane's machine, `agent setup` and `agent admin token create` print it.";

/** A server does not show a certificate of the future: this machine's clock is behind. */
const isClockBehind = (cause: unknown) => systemErrorCode(cause) === "CERT_NOT_YET_VALID";

export function unreachable(base: string, why: string, cause?: unknown): AppError {
  return new AppError("control_plane_unreachable", `Cannot reach the control plane at ${base}: ${why}`, {
    cause,
    hint: hintFor(base, cause),
  });
}

function hintFor(base: string, cause: unknown): string {
  if (isStrangeAuthority(cause)) return strangeCertificate;
  if (isClockBehind(cause)) return setClock;
  return otherScheme(base, cause) ?? unreachableHint;
}

/** The port speaks TLS, and the URL does not say so, or the reverse. */
function otherScheme(base: string, cause: unknown): string | undefined {
  const code = systemErrorCode(cause);
  const isTls = base.startsWith("https:");
  if (isTls && (code === "EPROTO" || code === "ERR_SSL_WRONG_VERSION_NUMBER"))
    return `The port may speak plain HTTP: try ${base.replace("https:", "http:")}, or another port.`;
  if (!isTls && (code === "ECONNRESET" || code === "Malformed_HTTP_Response"))
    return `The port may speak TLS: try ${base.replace("http:", "https:")}, or another port.`;
  return undefined;
}

function untrusted(base: string, path: string, response: Response): AppError {
  return new AppError(
    "untrusted_answer",
    `The answer from ${base}${path} (status ${response.status}) is not an answer of a control plane`,
    { hint: "Check whether a captive portal or a proxy is in between, then try again." },
  );
}
