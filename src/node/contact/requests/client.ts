// The calls of a control plane's API that nodes and the command line make. send-request.ts sends them.

import { given } from "../../../base/given.ts";
import { nodeCallsApi } from "../../../api/node-calls.ts";
import { registrationsApi } from "../../../api/registrations.ts";
import { request } from "../../../api/request.ts";
import * as v from "valibot";
import { AppError } from "../../../base/errors.ts";
import { isLoopback } from "../../../base/loopback.ts";
import { CheckinAnswer, type CheckinRequest } from "../../../protocol/checkin.ts";
import { DownloadAnswer, maxEtagLength } from "../../../protocol/download.ts";
import { RegisterAnswer, RegisterWaiting, type RegisterRequest } from "../../../protocol/registration.ts";
import type { TokenPair } from "../../../protocol/sign-in.ts";
import type { DrillReport } from "../../../protocol/updates/drill.ts";
import type { UpdateReport } from "../../../protocol/updates/order.ts";
import { send, timeoutMs, type Answer, type ApiRequest, type ClientOptions } from "./send-request.ts";

/** Enough for a configuration, escaped as JSON, and the certificates. */
const maxConfigAnswerBytes = 32 * 1024 * 1024;
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

    /**
     * The server may hold the request for up to waitS seconds until there is news. A held one is not repeated here after a network
     * failure: the caller decides when to ask again (checkin-pace.ts).
     */
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
