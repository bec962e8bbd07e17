// Requests to an ACME server (RFC 8555, section 6): nonces, signatures, time limits, and answers of a maximum size. Knows
// no order.

import { given } from "../../../base/given.ts";
import * as v from "valibot";
import { AppError, messageOf } from "../../../base/errors.ts";
import { signRequest, type AccountKey } from "../../../pki/acme-keys.ts";
import { readCapped } from "../../../base/read-capped.ts";
import type { System } from "../../../base/system.ts";
import { AcmeUrl, Directory, Problem } from "./messages.ts";

export type AcmeEdge = {
  system: Pick<System, "fetch" | "now" | "sleep">;
  directoryUrl: string;
  /** PEM of the CAs that the ACME server's own certificate may have, instead of the usual ones. */
  trust?: string;
  signal: AbortSignal;
};

/** A signed answer. `retryAfterMs`: when the server wants to be asked again. */
export type AcmeAnswer<T> = { body: T; location: string | undefined; retryAfterMs: number | undefined };

export type AcmeClient = {
  directory: Directory;
  /** A signed request; without `payload`, a signed read (POST-as-GET). */
  post<T>(url: string, schema: v.GenericSchema<unknown, T>, payload?: object): Promise<AcmeAnswer<T>>;
  /** A certificate chain in PEM. */
  download(url: string): Promise<string>;
  /** Signs as this account from now on; undefined: with the key itself. */
  signAs(account: string | undefined): void;
};

/** The ACME server refused. `type` without its usual prefix: "rateLimited". */
export class AcmeProblem extends Error {
  readonly type: string;
  readonly status: number;
  readonly retryAfterMs: number | undefined;

  constructor(problem: Problem, status = 0, retryAfterMs?: number) {
    const type = problem.type.replace(/^urn:ietf:params:acme:error:/, "");
    const details = [problem.detail, ...problem.subproblems.slice(0, 3).map(({ detail }) => detail)];
    super(`${details.filter((each) => each !== "").join(" ") || "no reason given"} (${type})`);
    this.name = "AcmeProblem";
    this.type = type;
    this.status = status;
    this.retryAfterMs = retryAfterMs;
  }
}

const requestWithinMs = 30_000;
const maxJsonBytes = 128 * 1024;
const maxChainBytes = 256 * 1024;
/** Pebble refuses up to half of all nonces on purpose. */
const nonceTries = 30;
const maxRetryAfterMs = 86_400_000;

/** Reads the directory of the ACME server. Throws AppError, or AcmeProblem where the server refuses. */
export async function openAcme(edge: AcmeEdge, key: AccountKey): Promise<AcmeClient> {
  const { body: directory } = await readAcme(edge, edge.directoryUrl, Directory);
  const nonces: string[] = [];
  let account: string | undefined;

  const keepNonce = (response: Response) => {
    const nonce = response.headers.get("replay-nonce");
    if (nonce !== null && /^[A-Za-z0-9_-]{1,512}$/.test(nonce) && nonces.length < 10) nonces.push(nonce);
  };
  const takeNonce = async (): Promise<string> => {
    const kept = nonces.pop();
    if (kept !== undefined) return kept;
    keepNonce(await send(edge, directory.newNonce, { method: "HEAD" }));
    const fresh = nonces.pop();
    if (fresh === undefined) throw unusable(directory.newNonce, "it gave no nonce");
    return fresh;
  };

  const postSigned = async (url: string, payload: object | "", accept: string): Promise<Response> => {
    for (let tries = 1; ; tries++) {
      const nonce = await takeNonce();
      const body = await signRequest(key, {
        url,
        nonce,
        payload,
        ...given({ account }),
      });
      const response = await send(edge, url, {
        method: "POST",
        headers: { "Content-Type": "application/jose+json", Accept: accept },
        body: JSON.stringify(body),
      });
      keepNonce(response);
      if (response.ok) return response;
      const problem = await problemOf(url, response, edge);
      if (problem.type !== "badNonce" || tries === nonceTries) throw problem;
    }
  };

  return {
    directory,
    async post(url, schema, payload) {
      const response = await postSigned(url, payload ?? "", "application/json");
      return { ...answerOf(response, edge), body: await parseBody(url, response, schema) };
    },
    async download(url) {
      return textOf(url, await postSigned(url, "", "application/pem-certificate-chain"), maxChainBytes);
    },
    signAs(of) {
      account = of;
    },
  };
}

/** An unsigned read: the directory, and when to renew. */
export async function readAcme<T>(
  edge: AcmeEdge,
  url: string,
  schema: v.GenericSchema<unknown, T>,
): Promise<AcmeAnswer<T>> {
  const response = await send(edge, url, { method: "GET" });
  if (!response.ok) throw await problemOf(url, response, edge);
  return { ...answerOf(response, edge), body: await parseBody(url, response, schema) };
}

async function send(
  { system, trust, signal }: AcmeEdge,
  url: string,
  init: { method: string; headers?: Record<string, string>; body?: string },
): Promise<Response> {
  try {
    return await system.fetch(url, {
      ...init,
      signal: AbortSignal.any([signal, AbortSignal.timeout(requestWithinMs)]),
      ...(trust === undefined ? {} : { tls: { ca: trust } }),
    });
  } catch (error) {
    signal.throwIfAborted();
    throw new AppError("failed", `The ACME server ${hostOf(url)} cannot be reached: ${messageOf(error)}`, {
      cause: error,
      hint: "Check that this machine reaches it by HTTPS, and the URL of --acme-directory.",
    });
  }
}

function answerOf(response: Response, { system }: AcmeEdge) {
  const location = v.safeParse(AcmeUrl, response.headers.get("location"));
  return {
    location: location.success ? location.output : undefined,
    retryAfterMs: retryAfterOf(response, system.now()),
  };
}

/** Seconds or a date (RFC 9110, section 10.2.3), between a second and a day. */
function retryAfterOf(response: Response, now: number): number | undefined {
  const text = response.headers.get("retry-after") ?? "";
  const ms = /^\d{1,9}$/.test(text) ? Number(text) * 1000 : Date.parse(text) - now;
  return Number.isNaN(ms) ? undefined : Math.min(Math.max(ms, 1000), maxRetryAfterMs);
}

async function problemOf(url: string, response: Response, { system }: AcmeEdge): Promise<AcmeProblem> {
  const text = await textOf(url, response, maxJsonBytes).catch(() => "");
  const problem = v.safeParse(Problem, jsonOf(text), { abortEarly: true });
  const { status } = response;
  return new AcmeProblem(
    problem.success
      ? problem.output
      : { type: "about:blank", detail: `${hostOf(url)} answered ${status}`, subproblems: [] },
    status,
    retryAfterOf(response, system.now()),
  );
}

async function parseBody<T>(
  url: string,
  response: Response,
  schema: v.GenericSchema<unknown, T>,
): Promise<T> {
  const result = v.safeParse(schema, jsonOf(await textOf(url, response, maxJsonBytes)), { abortEarly: true });
  if (result.success) return result.output;
  const [issue] = result.issues;
  throw unusable(url, `${v.getDotPath(issue) ?? "the answer"}: ${issue.message.slice(0, 200)}`);
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

async function textOf(url: string, { body }: Response, maxBytes: number): Promise<string> {
  try {
    const tooLarge = () => unusable(url, `it is larger than ${maxBytes} bytes`);
    return (await readCapped(body, maxBytes, tooLarge)).toString("utf8");
  } catch (error) {
    throw error instanceof AppError ? error : unusable(url, messageOf(error));
  }
}

function unusable(url: string, reason: string): AppError {
  return new AppError(
    "untrusted_answer",
    `An answer of the ACME server ${hostOf(url)} cannot be used: ${reason}`,
    {
      hint: "Check that --acme-directory names the directory of an ACME server (RFC 8555).",
    },
  );
}

function hostOf(url: string): string {
  return URL.canParse(url) ? new URL(url).host : url;
}
