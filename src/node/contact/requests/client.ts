// The only HTTP client of a control plane. Every call has a time-out, every answer is parsed by a schema, every failure
// becomes an AppError: with the server's error code if it answered, else with the kind of network failure.

import { given } from "../../../base/given.ts";
import { nodeCallsApi } from "../../../api/node-calls.ts";
import { registrationsApi } from "../../../api/registrations.ts";
import { request } from "../../../api/request.ts";
import * as v from "valibot";
import { AppError, isErrorCode, messageOf } from "../../../base/errors.ts";
import { isStrangeAuthority, systemErrorCode } from "../../../base/system-errors.ts";
import { clean, cleanErrors, type Log } from "../../../base/log.ts";
import { isLoopback } from "../../../base/loopback.ts";
import { CheckinAnswer, type CheckinRequest } from "../../../protocol/checkin.ts";
import { DownloadAnswer, maxEtagLength } from "../../../protocol/download.ts";
import { ErrorBody } from "../../../protocol/error-body.ts";
import { RegisterAnswer, RegisterWaiting, type RegisterRequest } from "../../../protocol/registration.ts";
import type { TokenPair } from "../../../protocol/sign-in.ts";
import type { DrillReport } from "../../../protocol/updates/drill.ts";
import type { UpdateReport } from "../../../protocol/updates/order.ts";
import { readCapped } from "../../../base/read-capped.ts";
import type { FetchInit, System } from "../../../base/system.ts";
import { setClock } from "../../health/findings.ts";

type ClientOptions = {
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

const timeoutMs = 10_000;
const maxAnswerBytes = 1024 * 1024;
/** Enough for a configuration, escaped as JSON, and the certificates. */
const maxConfigAnswerBytes = 32 * 1024 * 1024;
/** Pauses before the first and the second repeat. */
const repeatPausesMs = [250, 1000] as const;

/** Loaded on demand, like the next one: nodes do not sign in, and few calls ask for the clock. */
const signInApi = () => import("../../../api/sessions.ts");
const serversApi = () => import("../../../api/servers.ts");

export type Client = ReturnType<typeof makeClient>;

/** `etag`: empty if the next request must download everything again. */
export type Download =
  | { changed: true; answer: DownloadAnswer; etag: string }
  | { changed: false; configVersion: number | undefined };

export function makeClient(options: ClientOptions) {
  const base = checkBase(options.base, options.allowPlainHttp === true);
  const call = <T>(asked: ApiRequest<T>) => send(options, base, asked);
  return {
    base,
    /** Safe to repeat with the same keys. While it waits for approval: repeat it. */
    async register(slug: string, body: RegisterRequest): Promise<RegisterAnswer | RegisterWaiting> {
      const { answers } = registrationsApi.register;
      return requireBody(
        await call({
          ...request(registrationsApi.register, { slug }, body),
          schema: v.union([answers[202].schema, answers[201].schema]),
          maxBytes: maxConfigAnswerBytes,
          repeatable: true,
          timeoutMs: 30_000,
        }),
      );
    },

    /** The server may hold the request for up to waitS seconds until there is news. */
    checkin: async (
      slug: string,
      id: number,
      body: CheckinRequest,
      {
        waitS = 0,
        signal,
        repeatable = waitS === 0,
      }: { waitS?: number; signal?: AbortSignal; repeatable?: boolean } = {},
    ): Promise<CheckinAnswer> =>
      requireBody(
        await call({
          ...request(nodeCallsApi.checkin, { slug, id }, body),
          schema: nodeCallsApi.checkin.answers[200].schema,
          headers: waitS > 0 ? { Prefer: `wait=${waitS}` } : {},
          timeoutMs: timeoutMs + waitS * 1000,
          ...given({ signal }),
          repeatable,
        }),
      ),

    /** How far the node is with an update. Safe to repeat. */
    async reportUpdate(slug: string, id: number, body: UpdateReport): Promise<void> {
      await call({
        ...request(nodeCallsApi.reportUpdate, { slug, id }, body),
        schema: v.unknown(),
        repeatable: true,
      });
    },

    /** Which peers the node lost during a drill. Safe to repeat. */
    async reportDrill(slug: string, id: number, body: DrillReport): Promise<void> {
      await call({
        ...request(nodeCallsApi.reportDrill, { slug, id }, body),
        schema: v.unknown(),
        repeatable: true,
      });
    },

    /** The node's files; `changed: false` if the ETag still matches. */
    async downloadConfig(slug: string, id: number, etag?: string): Promise<Download> {
      const headers: Record<string, string> = given({ "If-None-Match": etag });
      const answer = await call({
        ...request(nodeCallsApi.download, { slug, id }),
        schema: nodeCallsApi.download.answers[200].schema,
        headers,
        maxBytes: maxConfigAnswerBytes,
        repeatable: true,
      });
      if (answer.status === 304) return { changed: false, configVersion: versionHeader(answer.headers) };
      return { changed: true, answer: requireBody(answer), etag: usableEtag(answer.headers.get("ETag")) };
    },

    /** The server's clock from its Date header, ms since 1970. */
    async serverTime(): Promise<number | undefined> {
      const { healthApi } = await serversApi();
      const aliveRequest = { ...request(healthApi.alive, {}), schema: v.unknown(), repeatable: true };
      const { headers } = await call(aliveRequest);
      const time = Date.parse(headers.get("Date") ?? "");
      return Number.isNaN(time) ? undefined : time;
    },

    /** Any request of the API. */
    request: call,
    ...signInCalls(call),
  };
}

function signInCalls(call: <T>(asked: ApiRequest<T>) => Promise<Answer<T>>) {
  return {
    /** A token pair for e-mail and password. `otp`: only for a control plane that asked for it. */
    token: async (email: string, password: string, otp?: string): Promise<TokenPair> => {
      const body = { email, password, ...given({ otp }) };
      const { signInHeaders } = await import("./sign-in-headers.ts");
      const { tokenPairsApi } = await signInApi();
      return requireBody(
        await call({ ...request(tokenPairsApi.create, {}, body), headers: signInHeaders() }),
      );
    },

    /** The next pair. Never repeated: a refresh token that is used twice ends the session. */
    refresh: async (refresh: string): Promise<TokenPair> =>
      requireBody(await call(request((await signInApi()).tokenPairsApi.refresh, {}, { refresh }))),

    /** Signs out. */
    signOut: async (refresh: string): Promise<void> => {
      await call(request((await signInApi()).tokenPairsApi.revoke, {}, { refresh }));
    },
  };
}

/** The URL without a final slash. Throws usage if it is not valid, or if it would send secrets unencrypted. */
export function checkBase(text: string, allowPlainHttp: boolean): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || (url.protocol !== "https:" && url.protocol !== "http:")) {
    throw new AppError("usage", `"${text}" is not the URL of a control plane`, {
      hint: /^[\w.-]+(:\d+)?$/.test(text)
        ? `Did you mean https://${text}?`
        : "Enter a URL such as https://control.example.com.",
    });
  }
  if (url.username !== "" || url.password !== "" || url.search !== "" || url.hash !== "") {
    throw new AppError("usage", "The URL of the control plane must not contain credentials or a query");
  }
  if (url.protocol === "http:" && !allowPlainHttp && !isLoopback(url.hostname)) {
    throw new AppError("usage", `http://${url.host} would send the token unencrypted over the network`, {
      hint: "Use https://, or --allow-plain-http if the network path is safe.",
    });
  }
  return url.href.replace(/(?<!\/)\/+$/, "");
}

async function send<T>(options: ClientOptions, base: string, asked: ApiRequest<T>): Promise<Answer<T>> {
  for (const pauseMs of repeatPausesMs) {
    try {
      return await sendOnce(options, base, asked);
    } catch (error) {
      const isUnreachable = error instanceof AppError && error.code === "control_plane_unreachable";
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
    ...(hint === undefined ? {} : { hint: clean(hint) }),
    ...(errors === undefined ? {} : { errors: cleanErrors(errors) }),
    ...given({ order }),
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

function requireBody<T>(answer: Answer<T>): T {
  if (answer.body === undefined)
    throw new AppError("untrusted_answer", `The control plane answered ${answer.status} without a body`);
  return answer.body;
}

/** Empty for one that cannot be stored. */
function usableEtag(etag: string | null): string {
  return etag === null || etag.length > maxEtagLength ? "" : etag;
}

function versionHeader(headers: Headers): number | undefined {
  const text = headers.get("X-Config-Version") ?? "";
  return /^\d{1,15}$/.test(text) ? Number(text) : undefined;
}
