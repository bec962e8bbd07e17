// Requests of browsers: the console, the API's document with its viewers, pages that links open.

import { TokenRequest } from "./sessions.ts";
import { endpoint } from "./endpoint.ts";

const html = { 200: { description: "A page", type: "text/html" } } as const;
const consolePage = { 200: { description: "The page of the console", type: "text/html" } } as const;

export const consoleApi = {
  root: endpoint({
    name: "root_retrieve",
    method: "GET",
    path: "/",
    access: "public",
    summary: "Leads a browser to the console",
    answers: { 302: { description: "To the console", headers: { Location: "The console" } } },
    errors: ["not_found"],
  }),
  // `quiet`: these requests are logged only with --verbose.
  start: endpoint({
    name: "console_retrieve",
    method: "GET",
    path: "/console/",
    access: "public",
    quiet: true,
    summary: "The console",
    answers: consolePage,
  }),
  file: endpoint({
    name: "console_files_retrieve",
    method: "GET",
    path: "/console/files/{file}",
    patterns: { file: "[a-z0-9.-]+" },
    access: "public",
    quiet: true,
    summary: "A file of the console",
    answers: { 200: { description: "The file", type: "text/javascript" } },
  }),
  page: endpoint({
    name: "console_page_retrieve",
    method: "GET",
    path: "/console/{rest}",
    patterns: { rest: ".+" },
    access: "public",
    quiet: true,
    summary: "A page of the console",
    answers: consolePage,
  }),
};

/** The viewers of the API's document. Staff only. */
export const viewersApi = {
  document: endpoint({
    name: "schema_retrieve",
    method: "GET",
    path: "/api/schema/",
    access: "docs",
    summary: "This document",
    answers: { 200: { description: "OpenAPI 3.1", type: "application/json" } },
  }),
  swagger: endpoint({
    name: "docs_retrieve",
    method: "GET",
    path: "/api/docs/",
    access: "docs",
    summary: "The API in Swagger UI",
    answers: html,
  }),
  redoc: endpoint({
    name: "redoc_retrieve",
    method: "GET",
    path: "/api/redoc/",
    access: "docs",
    summary: "The API in ReDoc",
    answers: html,
  }),
};

export const docsApi = {
  asset: endpoint({
    name: "docs_assets_retrieve",
    method: "GET",
    path: "/api/docs/assets/{name}",
    // The pages are sandboxed, so most browsers send no cookie with the requests for their files.
    access: "public",
    summary: "A file of the docs pages",
    answers: { 200: { description: "The file", type: "text/javascript" } },
  }),
  signIn: endpoint({
    name: "docs_sign_in_create",
    method: "POST",
    path: "/api/docs/sign_in/",
    access: "public",
    guesses: true,
    fresh: false,
    summary: "Sign in to the docs pages. The cookie gives access to nothing else",
    body: TokenRequest,
    answers: {
      204: {
        description: "Signed in",
        headers: { "Set-Cookie": "The session, and a cookie by which the device is known" },
      },
    },
    errors: ["invalid_credentials", "second_factor_required", "invalid_code"],
  }),
};

/** The pages that links with a secret open. */
export const linksApi = {
  join: endpoint({
    name: "join_retrieve",
    method: "GET",
    path: "/join/",
    access: "public",
    summary: "The page that the link of an invitation opens",
    answers: html,
  }),
  setup: endpoint({
    name: "setup_retrieve",
    method: "GET",
    path: "/setup/",
    access: "public",
    summary: "The page that the link of a new server opens",
    answers: html,
  }),
};
