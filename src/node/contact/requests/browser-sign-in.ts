// Signs the command line in with a browser. On this machine, the browser brings a code to a port of loopback (RFC 8252, with
// PKCE). Else the user types a code in a browser of any machine (RFC 8628).

import { createHash, timingSafeEqual } from "node:crypto";
import { hostname } from "node:os";
import { commandLineApi } from "../../../api/command-line.ts";
import { request, type Request } from "../../../api/request.ts";
import { AppError } from "../../../base/errors.ts";
import type { TokenPair } from "../../../protocol/sign-in.ts";
import type { System } from "../../../base/system.ts";
import type { Client } from "./client.ts";
import { signInHeaders } from "./sign-in-headers.ts";

const waitMs = 5 * 60_000;

/** The page that signs the command line in, without the query. */
export const browserPage = (base: string): string => `${base}/console/-/command-line/`;

/** Opens the browser of this machine. Throws sign_in_expired after five minutes. */
export async function signInHere(
  client: Client,
  system: Pick<System, "random" | "run" | "sleep">,
  { base, browser }: { base: string; browser: readonly string[] },
  show: (address: string) => void,
): Promise<TokenPair> {
  const secret = () => Buffer.from(system.random(32)).toString("base64url");
  const state = secret();
  const verifier = secret();
  using listening = listen(state);
  const challenge = createHash("sha256").update(verifier).digest("base64url");
  const query = new URLSearchParams({ port: String(listening.port), state, challenge });
  const address = `${browserPage(base)}?${query.toString()}`;
  show(address);
  // If no browser can be started, the user opens the address that was shown.
  await system.run([...browser, address]).catch(() => undefined);
  const done = new AbortController();
  const tooLate = system.sleep(waitMs, done.signal).then(
    () => undefined,
    () => undefined,
  );
  const code = await Promise.race([listening.code, tooLate]).finally(() => done.abort());
  if (code !== undefined)
    return pairOf(client, request(commandLineApi.exchange, {}, { code, code_verifier: verifier }));
  throw new AppError("sign_in_expired", "No sign-in came from the browser within five minutes", {
    hint: "Run the command again. For a browser on another machine, add --device.",
  });
}

/** Waits on loopback for the browser with the code. A request with another state changes nothing. */
function listen(state: string): Disposable & { port: number; code: Promise<string> } {
  const { promise: code, resolve } = Promise.withResolvers<string>();
  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    development: false,
    fetch(visit) {
      const { pathname, searchParams } = new URL(visit.url);
      const sentState = Buffer.from(searchParams.get("state") ?? "");
      const isOurs = sentState.length === state.length && timingSafeEqual(sentState, Buffer.from(state));
      const sentCode = searchParams.get("code") ?? "";
      const isCode = sentCode !== "" && sentCode.length <= 1024;
      if (visit.method !== "GET" || pathname !== "/" || !isOurs || !isCode)
        return page("This page is for the browser that the command line opened.", 404);
      resolve(sentCode);
      return page("You are signed in. You can close this page and go on in the terminal.", 200);
    },
  });
  return { port: server.port ?? 0, code, [Symbol.dispose]: () => void server.stop() };
}

function page(sentence: string, status: number): Response {
  return new Response(`<!doctype html><meta charset="utf-8"><title>Command line</title><p>${sentence}</p>`, {
    status,
    headers: {
      "Content-Type": "text/html; charset=utf-8",
      "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
      "Cache-Control": "no-store",
      "Referrer-Policy": "no-referrer",
      Connection: "close",
    },
  });
}

/** Shows a code, and waits until the user has entered it in a browser. Throws sign_in_refused or sign_in_expired. */
export async function signInByCode(
  client: Client,
  system: Pick<System, "sleep">,
  show: (shown: { address: string; code: string; endsInS: number }) => void,
): Promise<TokenPair> {
  const machine = hostname().slice(0, 200) || "unnamed";
  const begun = await client.request(request(commandLineApi.begin, {}, { machine }));
  if (begun.body === undefined) throw new AppError("untrusted_answer", "The control plane gave no code");
  const {
    device_code,
    user_code: code,
    verification_uri: address,
    expires_in: endsInS,
    interval,
  } = begun.body;
  show({ address, code, endsInS });
  for (;;) {
    await system.sleep(interval * 1000);
    try {
      return await pairOf(client, request(commandLineApi.poll, {}, { device_code }));
    } catch (error) {
      if (!(error instanceof AppError) || !goesOn.has(error.code)) throw error;
    }
  }
}

/** Error codes after which the wait goes on. The control plane ends the wait by another one. */
const goesOn: ReadonlySet<string> = new Set(["sign_in_waiting", "throttled", "control_plane_unreachable"]);

async function pairOf(client: Client, asked: Request<TokenPair>): Promise<TokenPair> {
  const answer = await client.request({ ...asked, headers: signInHeaders() });
  if (answer.body !== undefined) return answer.body;
  throw new AppError("untrusted_answer", "The control plane gave no session");
}
