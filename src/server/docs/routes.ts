// The OpenAPI document with its two viewers, and the pages that links with a secret open: handlers of src/api/pages.ts.

import { docsApi, linksApi, viewersApi } from "../../api/pages.ts";
import { AppError } from "../../base/errors.ts";
import { shellPage } from "../console/routes.ts";
import { attach, type Handlers } from "../http/attach.ts";
import { docsCookie, makeCookie } from "../http/cookies.ts";
import { networkOf } from "../../base/ip.ts";
import { acceptsHtml } from "../http/edge.ts";
import type { Reply, Route } from "../http/route.ts";
import { provenAtSignIn } from "../users/factors/second-factor.ts";
import { docsSessionS } from "../users/sessions/sessions.ts";
import { cookieOfDevice, originOf, signIn } from "../users/sign-in/sign-in.ts";
import type { Services } from "../services.ts";
import { redocPage, swaggerPage } from "./pages.ts";

/** `all`: returns all routes, including these. */
export function docsRoutes(services: Services, all: () => readonly Route[]): Route[] {
  /** The document, made at the first request. */
  let text: string | undefined;
  const document = async () => {
    // Loaded on demand, here and below: the docs are seldom read, and every server must start fast.
    const { makeOpenApi } = await import("./openapi.ts");
    return (text ??= JSON.stringify(makeOpenApi(all(), services.publicUrl)));
  };
  const viewers = attach(viewersApi, {
    document: async () => ({ raw: await document() }),
    swagger: async () => swaggerPage(await document(), services.publicUrl),
    redoc: async () => redocPage(await document()),
  });
  const others: Handlers<typeof docsApi> = {
    async asset(call) {
      const { readAsset } = await import("./assets.ts");
      const asset = await readAsset(call.param("name"));
      if (asset === undefined) throw new AppError("not_found", "There is no such file.");
      return {
        raw: asset.bytes,
        headers: { "Content-Type": asset.type, "Cache-Control": "private, max-age=3600" },
      };
    },
    async signIn(call, input) {
      const { sessions, publicUrl } = services;
      const proven = await signIn(services, input, originOf(call));
      await provenAtSignIn(services, proven, input.otp, call.address);
      const { userId, passwordHash } = proven;
      const token = await sessions.startDocs(userId, passwordHash, networkOf(call.address));
      const session = makeCookie(docsCookie, token, docsSessionS, publicUrl);
      return { status: 204, cookies: [session, await cookieOfDevice(services, proven)] };
    },
  };
  const links = attach(linksApi, { join: shellPage, setup: shellPage });
  return [...viewers.map(withSignIn), ...attach(docsApi, others), ...links];
}

/** The console's page shows the sign-in form of the docs at their addresses. */
async function signInPage(): Promise<Reply> {
  const { headers, ...page } = await shellPage();
  return { ...page, status: 401, headers: { ...headers, "WWW-Authenticate": 'Bearer realm="api"' } };
}

/** The viewer's route, with the sign-in page as the answer to a browser without a sign-in. */
const withSignIn = (viewer: Route): Route => ({
  ...viewer,
  refused: (error, request) => (error.httpStatus === 401 && acceptsHtml(request) ? signInPage() : undefined),
});
