// The OpenAPI 3.1 document, made from the same routes and schemas that serve and validate requests.

import { toJsonSchema, type JsonSchema } from "@valibot/to-json-schema";
import type * as v from "valibot";
import { brand } from "../../brand.ts";
import { buildInfo } from "../../build-info.ts";
import { errorTable, type ErrorCode } from "../../base/errors.ts";
import { DownloadAnswer } from "../../protocol/download.ts";
import { ErrorBody } from "../../protocol/error-body.ts";
import { Node } from "../../protocol/node.ts";
import { TokenPair } from "../../protocol/sign-in.ts";
import { Event } from "../../api/events.ts";
import { Group } from "../../api/groups.ts";
import { Member } from "../../api/members.ts";
import { Organization } from "../../api/organizations.ts";
import { RegistrationToken } from "../../api/tokens/registration-tokens.ts";
import { sessionCookie } from "../http/cookies.ts";
import { isOfOrganization, type Route } from "../http/route.ts";
import { ServiceToken } from "../../api/tokens/service-tokens.ts";
import { Webhook } from "../../api/webhooks/webhooks.ts";

type Json = { [key: string]: unknown };

/** Schemas below components/schemas. */
const named = {
  Error: ErrorBody,
  Node,
  NodeConfiguration: DownloadAnswer,
  Organization,
  Member,
  Group,
  RegistrationToken,
  ServiceToken,
  Event,
  Webhook,
  TokenPair,
};

/** Headers of the answers of every list. */
const listHeaders = {
  Link: "The pages `next`, `prev`, `first` and `last` (RFC 8288)",
  "X-Total-Count": "The number of items on all pages",
};

/** All error codes of a route: those of its kind, and those that it declares. */
export function errorsOf(route: Route): ErrorCode[] {
  const isPublic = route.access === "public";
  const codes: ErrorCode[] = ["node_token_scope", "throttled", "storage_unavailable", "internal"];
  // An endpoint that signs certificates may answer this. None of them is a GET; other changes are listed with it for simplicity.
  if (route.method !== "GET") codes.push("clock_doubted");
  if (!isPublic) codes.push("token_not_valid", "not_authenticated");
  if (!isPublic && route.access !== "user") codes.push("permission_denied");
  // Errors of changes with a browser's session: only pages of this control plane may make them.
  if (!isPublic && route.method !== "GET") codes.push("cross_site", "unsupported_media_type");
  const mayNeedFactor = isOfOrganization(route) || /^(staff|docs)$/.test(route.access);
  if (mayNeedFactor || (route.fresh !== undefined && route.fresh !== false))
    codes.push("second_factor_missing", "step_up_required");
  if (route.path.includes("/:")) codes.push("not_found");
  if (isForPrograms(route)) codes.push("token_scope");
  if (route.takes.body !== undefined) {
    codes.push(
      "bad_request",
      "validation_failed",
      "payload_too_large",
      "unsupported_media_type",
      "request_timeout",
    );
  }
  if (route.takes.query !== undefined) codes.push("bad_request", "validation_failed");
  if (route.grows === true) codes.push("organization_full");
  return [...new Set([...codes, ...(route.errors ?? [])])];
}

/** `publicUrl`: undefined in the file of the repository, which belongs to no certain server. */
export function makeOpenApi(routes: readonly Route[], publicUrl?: string): Json {
  const paths: Record<string, Json> = {};
  for (const route of routes) {
    const path = route.path.replaceAll(/:([a-z_]+)(\{[^/]*)?/g, "{$1}");
    (paths[path] ??= {})[route.method.toLowerCase()] = operation(route);
  }
  return {
    openapi: "3.1.0",
    info: {
      title: `${brand.title} control plane`,
      version: buildInfo.version,
      description:
        "Every path ends with a slash. Without it, the answer is 301 (GET, HEAD) or 308. " +
        "A node's token is accepted by its own checkin, download_config and update_report, and gets 403 everywhere else. " +
        "All errors have the same shape, and their `code` is stable. A method that a path does not have gets 405 " +
        "`method_not_allowed`, and the header `Allow` names those that it has. An unknown path gets 404 `not_found`.",
    },
    // "/" comes first, so that "Try it out" calls the server that shows the page, under the name in the browser.
    servers: [{ url: "/" }, ...(publicUrl === undefined ? [] : [{ url: publicUrl }])],
    paths,
    components: {
      schemas: Object.fromEntries(
        Object.entries(named).map(([name, schema]) => [name, jsonSchema(schema, { self: name })]),
      ),
      responses: { MethodNotAllowed: failure(405, ["method_not_allowed"]) },
      securitySchemes: {
        jwtAuth: {
          type: "http",
          scheme: "bearer",
          bearerFormat: "JWT",
          description: "A person's access token",
        },
        sessionAuth: {
          type: "apiKey",
          in: "cookie",
          name: sessionCookie,
          description:
            "A browser's session. Requests other than GET also need the server's own `Origin` and `Sec-Fetch-Site: same-origin`",
        },
        tokenAuth: { type: "http", scheme: "bearer", description: "A service token" },
        nodeAuth: { type: "http", scheme: "bearer", description: "A node's API token" },
      },
    },
  };
}

function operation(route: Route): Json {
  const { name, summary, takes, answers } = route;
  const responses: Record<string, Json> = {};
  const ofLists = "page_size" in (takes.query?.entries ?? {}) ? listHeaders : undefined;
  for (const [status, answer] of Object.entries(answers)) {
    const headers = answer.headers ?? ofLists;
    responses[status] = {
      description: answer.description,
      ...(headers === undefined ? {} : { headers: headersOf(headers) }),
      ...(answer.schema === undefined && answer.type === undefined
        ? {}
        : {
            content: {
              [answer.type ?? "application/json"]:
                answer.schema === undefined ? {} : { schema: jsonSchema(answer.schema) },
            },
          }),
    };
  }
  for (const [status, codes] of byStatus(errorsOf(route)))
    responses[String(status)] ??= failure(status, codes);
  return {
    operationId: name,
    summary,
    tags: [name.replace(/_(list|create|retrieve|partial_update|destroy)$/, "")],
    parameters: [...pathParameters(route.path), ...queryParameters(takes.query)],
    ...(takes.body === undefined
      ? {}
      : {
          requestBody: {
            required: true,
            content: { "application/json": { schema: jsonSchema(takes.body, { typeMode: "input" }) } },
          },
        }),
    responses,
    security: security(route),
  };
}

/** Whether service tokens may call it. */
function isForPrograms({ access, usersOnly }: Route): boolean {
  return usersOnly !== true && !["public", "person", "staff", "docs"].includes(access);
}

function security(route: Route): Json[] {
  const { access, node } = route;
  if (access === "public") return [];
  return [
    { jwtAuth: [] },
    { sessionAuth: [] },
    ...(isForPrograms(route) ? [{ tokenAuth: [] }] : []),
    ...(node === true ? [{ nodeAuth: [] }] : []),
    // Also without any: then the body has a registration token.
    ...(access === "register" ? [{}] : []),
  ];
}

function byStatus(codes: readonly ErrorCode[]): Map<number, ErrorCode[]> {
  const groups = Map.groupBy(codes, (code) => errorTable[code][1]);
  return new Map([...groups].sort(([a], [b]) => a - b));
}

function failure(status: number, codes: readonly ErrorCode[]): Json {
  const headers = {
    ...(status === 401 ? { "WWW-Authenticate": 'Always `Bearer realm="api"`' } : {}),
    ...(status === 405 ? { Allow: "The methods of this path" } : {}),
    ...(status === 429 ? { "Retry-After": "Seconds" } : {}),
  };
  return {
    description: codes.map((code) => `\`${code}\``).join(", "),
    ...(Object.keys(headers).length === 0 ? {} : { headers: headersOf(headers) }),
    content: { "application/json": { schema: { $ref: "#/components/schemas/Error" } } },
  };
}

/** `headers`: descriptions by name. A name with a `?` at its end: the header is not always there. */
function headersOf(headers: Record<string, string>): Json {
  return Object.fromEntries(
    Object.entries(headers).map(([name, description]) => {
      const required = !name.endsWith("?");
      return [name.replace("?", ""), { description, required, schema: { type: "string" } }];
    }),
  );
}

function pathParameters(path: string): Json[] {
  return [...path.matchAll(/:([a-z_]+)(\{[^/]*)?/g)].map(([, name, pattern]) => ({
    name,
    in: "path",
    required: true,
    // The pattern of parameters that are ids (`numberParams` in src/api/endpoint.ts).
    schema: pattern?.startsWith("{[1-9]") === true ? { type: "integer", minimum: 1 } : { type: "string" },
  }));
}

function queryParameters(schema: Route["takes"]["query"]): Json[] {
  if (schema === undefined) return [];
  return Object.entries(schema.entries).map(([name, entry]) => ({
    name,
    in: "query",
    required: entry.type !== "optional",
    schema: jsonSchema(entry, { typeMode: "input" }),
  }));
}

/**
 * Which members an answer always has. Those that earlier versions do not send (`since` in src/api/values.ts) are optional for readers,
 * but this version sends them.
 */
function requiredOf(entries: unknown): { required: string[] } {
  const isRequired = (entry: { type: string }) => "since" in entry || !/optional|nullish/.test(entry.type);
  const all = Object.entries<{ type: string }>(Object(entries));
  return { required: all.filter(([, entry]) => isRequired(entry)).map(([name]) => name) };
}

// JSON Schema cannot express some checks, such as a network without host bits: error messages explain them. The target is the
// dialect of OpenAPI 3.1.
const conversion = { errorMode: "ignore", target: "draft-2020-12" } as const;

/** `self`: the name of the schema below components, which must not become a reference to itself. */
function jsonSchema(
  schema: v.GenericSchema,
  { self, typeMode = "output" }: { self?: string; typeMode?: "input" | "output" } = {},
) {
  const definitions = Object.fromEntries(Object.entries(named).filter(([name]) => name !== self));
  return plain(
    toJsonSchema(schema, {
      ...conversion,
      typeMode,
      definitions,
      overrideSchema({ valibotSchema, jsonSchema: made }) {
        // `open` in src/api/values.ts: readers take more than this version sends. The document says what it sends.
        if ("sent" in valibotSchema)
          return plain(toJsonSchema(Object(valibotSchema.sent), { ...conversion, typeMode }));
        return "entries" in valibotSchema ? { ...made, ...requiredOf(valibotSchema.entries) } : undefined;
      },
      overrideRef: ({ referenceId }) => `#/components/schemas/${referenceId}`,
    }),
  );
}

const plain = ({ $schema: _dialect, $defs: _definitions, ...rest }: JsonSchema): JsonSchema => rest;
