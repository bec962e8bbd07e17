// Requests to the API of this control plane, with the session's cookie.

import { signal } from "@preact/signals";
import {
  filledPath,
  hasQuery,
  type SentOf,
  type Endpoint,
  type CallInput,
  type Method,
  type Params,
  type Path,
} from "../../api/endpoint.ts";
import type { ErrorBody } from "../../protocol/error-body.ts";
import { checkAnswer } from "./checked.ts";
import { needsSession } from "./needs-session.ts";

/** A refusal by the server, or a failure of the network. */
export class ApiError extends Error {
  readonly status: number;
  readonly code: string;
  readonly hint: string | undefined;
  /** Sentences by the field that they concern. */
  readonly fields: Readonly<Record<string, readonly string[]>>;
  /** How a second factor can be proven, where one is asked for. */
  readonly methods: readonly string[];
  readonly requestId: string | null;

  constructor(status: number, body: Partial<ErrorBody>, requestId: string | null) {
    super(body.detail ?? `The control plane answered ${status}.`);
    this.status = status;
    this.code = body.code ?? "unknown";
    this.hint = body.hint;
    this.fields = body.errors ?? {};
    this.requestId = requestId;
    this.methods = body.methods ?? [];
  }
}

type Sent = { body?: unknown; signal?: AbortSignal | undefined };
export type Answer<T> = { data: T; headers: Headers };

/** Since when the control plane does not answer, ms since 1970. */
export const awaySince = signal<number>();
/** The session ended: the page keeps its content, with the sign-in form over it. */
export const isSignedOut = signal(false);

let proveAgain: (methods: readonly string[]) => Promise<boolean> = async () => false;

/** `prove` asks the user for a fresh second factor; false: the user cancelled. */
export function onStepUp(prove: typeof proveAgain): void {
  proveAgain = prove;
}

/** When the user last did something on this page, ms since 1970. */
let touchedAt = Date.now();
for (const type of ["pointermove", "pointerdown", "keydown"])
  addEventListener(type, () => (touchedAt = Date.now()), { capture: true, passive: true });
const presentMs = 60_000;
/** Headers of a reading. Pages read again by themselves, which must not extend the session of a user who is away. */
const readingBy = () => (Date.now() - touchedAt < presentMs ? {} : { "Session-Use": "none" });

let user: number | undefined;

/** The user that the page was loaded for. The server refuses changes if the session now belongs to another user. */
export function actFor(id: number): void {
  user = id;
}

/** A request that needs a fresh second factor is sent again after the proof. Throws an ApiError. Status 0: no answer. */
export async function ask<T>(method: Method, path: Path<T> | string, sent: Sent = {}): Promise<Answer<T>> {
  try {
    return await askOnce<T>(method, path, sent);
  } catch (error) {
    const isAsked = error instanceof ApiError && error.code === "step_up_required";
    if (!isAsked) throw error;
    if (!(await proveAgain(error.methods)))
      throw new ApiError(
        error.status,
        { code: error.code, detail: "Not changed: the second factor was not confirmed." },
        null,
      );
    return askOnce<T>(method, path, sent);
  }
}

async function askOnce<T>(method: Method, path: string, sent: Sent): Promise<Answer<T>> {
  // A browser's request without JSON could come from another site's form, so the server refuses it.
  const { body = method === "POST" || method === "PATCH" ? {} : undefined, signal } = sent;
  // Without a session, requests of timers would get 401 again and again.
  if (isSignedOut.peek() && needsSession(method, path))
    throw new ApiError(401, { code: "not_authenticated", detail: "Your session has ended." }, null);
  const read = async () => {
    const response = await fetch(path, {
      method,
      headers: {
        // A GET has no `Session-User`: the page preloads some answers, and a header would keep the browser from using them.
        ...(method === "GET" ? readingBy() : user === undefined ? {} : { "Session-User": `${user}` }),
        ...(body === undefined ? {} : { "Content-Type": "application/json" }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      signal: signal ?? null,
    });
    return { response, text: await response.text() };
  };
  // The network may also fail while the answer is read.
  const { response, text } = await read().catch((error: unknown) => {
    if (signal?.aborted === true) throw error;
    awaySince.value ??= Date.now();
    throw new ApiError(
      0,
      { code: "no_answer", detail: "The control plane does not answer. Try again." },
      null,
    );
  });
  awaySince.value = undefined;
  const isJson = response.headers.get("content-type")?.includes("json") === true;
  const parsed: unknown = isJson && text !== "" ? JSON.parse(text) : undefined;
  if (response.ok) {
    checkAnswer(parsed, { method, path, status: response.status });
    // The one place where the console takes an answer for what the contract says.
    return { data: parsed as T, headers: response.headers };
  }
  const error = new ApiError(response.status, parsed ?? {}, response.headers.get("x-request-id"));
  if (response.status === 401 && !guesses.has(error.code)) isSignedOut.value = true;
  throw error;
}

/** A request: as the terminal shows it, and the sending, which throws an ApiError. */
export type Sending<T = unknown> = {
  call: readonly [method: Method, path: string, body: unknown];
  send(): Promise<T>;
};

/** Makes the request of an endpoint, without sending it. */
export function request<const E extends Endpoint>(
  of: E,
  params: Params<E>,
  ...[given]: CallInput<E>
): Sending<SentOf<E>> {
  const [query, body] = hasQuery(of) ? [given] : [undefined, given];
  const path = filledPath(of.path, params, query);
  return {
    call: [of.method, path, body],
    send: async () => (await ask<SentOf<E>>(of.method, path, { body })).data,
  };
}

/** Calls an endpoint. Throws an ApiError. */
export const call = <const E extends Endpoint>(
  of: E,
  params: Params<E>,
  ...given: CallInput<E>
): Promise<SentOf<E>> => request(of, params, ...given).send();

/** Errors of a wrong password or code. They do not end the session. */
const guesses = new Set(["invalid_credentials", "invalid_code", "second_factor_required"]);

/** The answer to a GET. Throws an ApiError, or the reason of the signal when it is aborted. */
export async function get<T>(path: Path<T> | string, signal?: AbortSignal): Promise<T> {
  return (await ask<T>("GET", path, { signal })).data;
}

/** All pages of a list. The API answers at most 1000 items a page. */
export async function getAll<T>(path: Path<T[]> | string, signal?: AbortSignal): Promise<T[]> {
  const items: T[] = [];
  for (let next: string | undefined = path; next !== undefined;) {
    const { data, headers }: Answer<T[]> = await ask<T[]>("GET", next, { signal });
    items.push(...data);
    next = linkTo("next", headers.get("link"));
  }
  return items;
}

/** The path of a link (RFC 8288), without the host: a proxy may have another name than this page. */
function linkTo(rel: string, header: string | null): string | undefined {
  const link = header?.split(",").find((each) => each.includes(`rel="${rel}"`));
  const target = /<([^>]+)>/.exec(link ?? "")?.[1];
  if (target === undefined) return undefined;
  const { pathname, search } = new URL(target, location.origin);
  return pathname + search;
}
