// Handlers of the console's page and files in src/api/pages.ts.

import { notFound } from "../../api/values.ts";
import type { consoleApi } from "../../api/pages.ts";
import { AppError } from "../../base/errors.ts";
import type { Handlers } from "../http/attach.ts";
import { cookiesOf, readCookie, sessionCookie } from "../http/cookies.ts";
import { acceptsHtml } from "../http/edge.ts";
import type { AskedRequest } from "../http/route.ts";

/** A year: the name of a file changes with its content. */
const forEver = "public, max-age=31536000, immutable";

/**
 * The page of the console, which knows what to show at each address. `call`: its request; without one, the page is that of a browser
 * that has not signed in. Loaded on demand, here and below: a server whose console is not used never loads it.
 */
export async function shellPage(call?: { request: AskedRequest; path: string }) {
  const hasSession = call !== undefined && readCookie(cookiesOf(call.request), sessionCookie) !== undefined;
  const path = call?.path ?? "";
  return (await import("./shell.ts")).consolePage({ hasSession, path });
}

export const consoleHandlers: Handlers<typeof consoleApi> = {
  root({ request }) {
    if (!acceptsHtml(request)) throw new AppError("not_found", notFound.path);
    return { status: 302, headers: { Location: "/console/" } };
  },
  start: shellPage,
  async file(call) {
    const { readFile } = await import("./files.ts");
    const file = readFile(call.param("file"));
    if (file === undefined) throw new AppError("not_found", "There is no such file.");
    const isPacked = /\bgzip\b/.test(call.request.headers.get("accept-encoding") ?? "");
    return {
      raw: isPacked ? file.gzip : Bun.gunzipSync(file.gzip),
      headers: {
        "Content-Type": file.type,
        "Cache-Control": forEver,
        // The shared worker has the policy of its own file, not that of the page.
        "Content-Security-Policy": "default-src 'none'; connect-src 'self'; frame-ancestors 'none'",
        Vary: "Accept-Encoding",
        ...(isPacked ? { "Content-Encoding": "gzip" } : {}),
      },
    };
  },
  page: shellPage,
};
