// Routes for browsers: the OpenAPI document with its two viewers (staff only), and the pages that links with a secret
// open.

import { AppError } from "../../errors.ts";
import { TokenRequest } from "../../protocol/sign-in.ts";
import { shellPage } from "./console.ts";
import { redocPage, swaggerPage } from "../docs/pages.ts";
import { docsCookie, makeCookie } from "../http/cookies.ts";
import { acceptsHtml, networkOf } from "../http/edge.ts";
import { docsSessionS } from "../people/sessions.ts";
import { provenAtSignIn } from "../people/second-factor.ts";
import { cookieOfDevice, signIn } from "../people/sign-in.ts";
import { body, nothing, route, type Reply, type Route } from "../http/route.ts";
import type { Services } from "../services.ts";
import { originOf } from "./people.ts";

/** `all` returns all routes, including these. */
export function docsRoutes(services: Services, all: () => readonly Route[]): Route[] {
  let text: string | undefined;
  const document = async () => {
    // Loaded on demand, here and below: the docs are seldom read, and every server must start fast.
    const { makeOpenApi } = await import("../docs/openapi.ts");
    return (text ??= JSON.stringify(makeOpenApi(all(), services.publicUrl)));
  };
  const html = { 200: { description: "A page", type: "text/html" } };
  return [
    docsRoute(
      "/api/schema/",
      "schema_retrieve",
      "This document",
      { 200: { description: "OpenAPI 3.1", type: "application/json" } },
      async () => ({ raw: await document() }),
    ),
    docsRoute("/api/docs/", "docs_retrieve", "The API in Swagger UI", html, async () =>
      swaggerPage(await document(), services.publicUrl),
    ),
    docsRoute("/api/redoc/", "redoc_retrieve", "The API in ReDoc", html, async () =>
      redocPage(await document()),
    ),
    assetRoute(),
    route({
      method: "POST",
      path: "/api/docs/sign_in/",
      access: "public",
      guesses: true,
      name: "docs_sign_in_create",
      fresh: false,
      summary: "Sign in to the docs pages. The cookie gives access to nothing else",
      takes: body(TokenRequest),
      answers: {
        204: {
          description: "Signed in",
          headers: { "Set-Cookie": "The session, and a cookie by which the device is known" },
        },
      },
      errors: ["invalid_credentials", "second_factor_required", "invalid_code"],
      async handle(call, input) {
        const { sessions, publicUrl } = services;
        const proven = await signIn(services, input, originOf(call));
        await provenAtSignIn(services, proven, input.otp, call.address);
        const { userId, passwordHash } = proven;
        const token = await sessions.startDocs(userId, passwordHash, networkOf(call.address));
        const session = makeCookie(docsCookie, token, docsSessionS, publicUrl);
        return { status: 204, cookies: [session, await cookieOfDevice(services, proven)] };
      },
    }),
    route({
      method: "GET",
      path: "/join/",
      access: "public",
      name: "join_retrieve",
      summary: "The page that the link of an invitation opens",
      takes: nothing,
      answers: html,
      handle: shellPage,
    }),
    route({
      method: "GET",
      path: "/setup/",
      access: "public",
      name: "setup_retrieve",
      summary: "The page that the link of a new server opens",
      takes: nothing,
      answers: html,
      handle: shellPage,
    }),
  ];
}

function assetRoute(): Route {
  return route({
    method: "GET",
    path: "/api/docs/assets/:name",
    // The pages are sandboxed, so most browsers send no cookie with the requests for their files.
    access: "public",
    name: "docs_assets_retrieve",
    summary: "A file of the docs pages",
    takes: nothing,
    answers: { 200: { description: "The file", type: "text/javascript" } },
    errors: ["not_found"],
    async handle(call) {
      const { readAsset } = await import("../docs/assets.ts");
      const asset = await readAsset(call.param("name"));
      if (asset === undefined) throw new AppError("not_found", "There is no such file.");
      return {
        raw: asset.bytes,
        headers: { "Content-Type": asset.type, "Cache-Control": "private, max-age=3600" },
      };
    },
  });
}

/** The console's page shows the sign-in form of the docs at their addresses. */
async function signInPage(): Promise<Reply> {
  const { headers, ...page } = await shellPage();
  return { ...page, status: 401, headers: { ...headers, "WWW-Authenticate": 'Bearer realm="api"' } };
}

function docsRoute(
  path: string,
  name: string,
  summary: string,
  answers: Route["answers"],
  answer: () => Promise<Reply>,
): Route {
  return {
    ...route({
      method: "GET",
      path,
      access: "docs",
      name,
      summary,
      takes: nothing,
      answers,
      handle: answer,
    }),
    refused: (error, request) =>
      error.httpStatus === 401 && acceptsHtml(request) ? signInPage() : undefined,
  };
}
