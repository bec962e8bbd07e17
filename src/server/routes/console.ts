// The console: one page for all addresses below /console/, and its files.

import { AppError } from "../../errors.ts";
import { cookiesOf, readCookie, sessionCookie } from "../http/cookies.ts";
import { acceptsHtml } from "../http/edge.ts";
import { nothing, route, type Call, type Reply, type Route } from "../http/route.ts";

/** A year: the name of a file changes with its content. */
const forEver = "public, max-age=31536000, immutable";

/**
 * The page of the console, which knows what to show at each address. Loaded on demand, here and below: a server
 * whose console is not used never loads it.
 */
export async function shellPage(call?: Pick<Call, "request" | "path">): Promise<Reply> {
  const hasSession = call !== undefined && readCookie(cookiesOf(call.request), sessionCookie) !== undefined;
  const path = call?.path ?? "";
  return (await import("../console/shell.ts")).consolePage({ hasSession, path });
}

export function consoleRoutes(): Route[] {
  const page = {
    method: "GET",
    access: "public",
    takes: nothing,
    quiet: true,
    answers: { 200: { description: "The page of the console", type: "text/html" } },
    handle: shellPage,
  } as const;
  return [
    route({
      method: "GET",
      path: "/",
      access: "public",
      name: "root_retrieve",
      summary: "Leads a browser to the console",
      takes: nothing,
      answers: { 302: { description: "To the console", headers: { Location: "The console" } } },
      errors: ["not_found"],
      handle({ request }) {
        if (!acceptsHtml(request)) throw new AppError("not_found", "There is no such resource.");
        return { status: 302, headers: { Location: "/console/" } };
      },
    }),
    route({ ...page, path: "/console/", name: "console_retrieve", summary: "The console" }),
    route({
      method: "GET",
      path: "/console/files/:file{[a-z0-9.-]+}",
      access: "public",
      quiet: true,
      name: "console_files_retrieve",
      summary: "A file of the console",
      takes: nothing,
      answers: { 200: { description: "The file", type: "text/javascript" } },
      errors: ["not_found"],
      async handle(call) {
        const { readFile } = await import("../console/files.ts");
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
    }),
    route({
      ...page,
      path: "/console/:rest{.+}",
      name: "console_page_retrieve",
      summary: "A page of the console",
    }),
  ];
}
