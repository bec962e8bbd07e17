// The declaration of a route: method, path, access, input, answers. Routing, validation, 405 and the OpenAPI document
// come from this one declaration. Knows no route and no table.

import * as v from "valibot";
import { organizationPrefix, type Endpoint, type Role } from "../../api/endpoint.ts";
import { AppError } from "../../base/errors.ts";

export type Schema<T = unknown> = v.GenericSchema<unknown, T>;

/**
 * A command on the control plane's data directory. Only a process that has opened the data can be one: it calls the
 * application without a listener (server/operator.ts). `uid`: the user of the machine; null on systems without numbers.
 */
export type Operator = { kind: "operator"; uid: number | null };

/** The sign-in of a user: a browser's session, or a family of tokens. Undefined: the cookie of the docs pages. */
export type SignIn = { session: number } | { family: string };

/** The authenticated caller. Only users/access.ts decides this. */
export type Caller =
  | { kind: "none" }
  | Operator
  | {
      kind: "person";
      userId: number;
      email: string;
      isStaff: boolean;
      signIn?: SignIn;
    }
  | {
      kind: "service";
      tokenId: number;
      orgId: number;
      slug: string;
      role: "member" | "admin";
      /** In ms; null: it does not expire. */
      expiresAt: number | null;
      scopes: string | null;
      networks: string | null;
    }
  | { kind: "node"; nodeId: number; orgId: number; slug: string };

/**
 * The path's organization and the caller's role. Staff who are not members may read: role `member`, `visiting` true.
 */
export type OrganizationAccess = { id: number; slug: string; role: Role; visiting: boolean };

/** Placeholder id: anonymous registration must not reveal whether an organization exists. */
export const nowhere = 0;

/** What handlers see of a request. */
export type AskedRequest = Pick<Request, "headers" | "method" | "signal">;

export type Call = {
  caller: Caller;
  /** The caller's access to the path's organization; undefined outside of organizations. */
  org: OrganizationAccess | undefined;
  /** The client's network address, behind trusted proxies. */
  address: string;
  /** Without its address: a handler takes the path and the parameters that the checks have read, from the fields below. */
  request: AskedRequest;
  /** The path of the request's address. */
  path: string;
  /** The parameters of the query, each given once. A route with `query(…)` gets them validated instead. */
  parameters(): Readonly<Record<string, string>>;
  /** The caller trusts the server's own CA, beside which there is a public certificate. */
  isOwnCa: boolean;
  /** For how many seconds the answer may be held (RFC 7240, `Prefer: wait=N`). */
  waitS: number;
  /** Checks the caller's rights again, for handlers that waited for something. Throws if the rights have ended. */
  admitAgain(): Promise<void>;
  /**
   * Throws step_up_required unless the caller's second factor is fresh, for handlers where what is stored decides. Where
   * the input decides, declare `fresh`.
   */
  requireFresh(): Promise<void>;
  /** Throws organization_full if the organization stores its maximum, and the request lets it grow. */
  requireRoom(input: object, grows: () => boolean | Promise<boolean>): Promise<void>;
  /** A parameter of the path. */
  param(name: string): string;
  /** A numeric parameter of the path. */
  id(name?: string): number;
};

export type OrganizationCall = Call & { org: OrganizationAccess };

/** The answer of a handler. `body` is sent as JSON, `raw` as it is. `status` is 200 by default. */
export type Reply = {
  status?: number;
  body?: unknown;
  raw?: string | Uint8Array<ArrayBuffer> | Blob | ReadableStream<Uint8Array>;
  headers?: Record<string, string>;
  /** The values of Set-Cookie headers. */
  cookies?: readonly string[];
};

/** An answer that is not JSON: a page or a file. */
export type Page = Required<Pick<Reply, "raw">> & Pick<Reply, "headers" | "cookies">;

export type InputSource = { body<T>(schema: Schema<T>): T; query<T>(schema: Schema<T>): T };

/** An endpoint with its handler. `path`: in Hono's syntax. */
export type Route = Omit<Endpoint, "body" | "query"> & {
  /** Replaces the usual answer to an error. */
  refused?(error: AppError, request: AskedRequest): Promise<Reply> | undefined;
  takes: Pick<Endpoint, "body" | "query">;
  answer(call: Call, source: InputSource): Reply | Promise<Reply>;
};

/** Whether a field that is given needs a fresh second factor. Routes that always need it were checked with the rights. */
export function asksForFresh(fresh: Endpoint["fresh"], input: unknown): boolean {
  if (typeof fresh !== "object") return false;
  return Object.entries(fresh).some(([field, rule]) => {
    const value: unknown = Object(input)[field];
    if (value === undefined) return false;
    return typeof rule === "function" ? rule(value) : rule;
  });
}

/** In Hono's syntax. */
const organizationPattern = organizationPrefix.replace("{slug}", ":slug");
export const isOfOrganization = ({ path }: Pick<Route, "path">) => path.startsWith(organizationPattern);

/** For `grows`. */
export const always = () => true;

export function isInOrganization(call: Call): call is OrganizationCall {
  return call.org !== undefined;
}

/**
 * Validates input. Throws validation_failed with the errors of each field, or with the first one of a long value: a list of a
 * few KiB has thousands of errors, and all of them take a hundred times as long as the list.
 */
export function parse<T>(schema: Schema<T>, value: unknown): T {
  const inherited = inheritedKey(value);
  if (inherited !== undefined) throw invalid({ [inherited.join(".")]: ["This field is unknown."] });
  const first = v.safeParse(schema, value, { abortEarly: true });
  if (first.success) return first.output;
  const { issues = first.issues } = countValues(value) > maxExplained ? first : v.safeParse(schema, value);
  const byField = Map.groupBy(issues, (issue) => v.getDotPath(issue) ?? "non_field_errors");
  // Object.fromEntries makes own keys, also of `__proto__`.
  throw invalid(Object.fromEntries([...byField].map(([field, list]) => [field, list.map(sentence)])));
}

function invalid(errors: Record<string, string[]>): AppError {
  return new AppError("validation_failed", "The request is not valid.", { errors });
}

/** Above this number of values, only the first error is reported. */
const maxExplained = 200;

/** The values in a value, up to one more than `maxExplained`. */
function countValues(value: unknown): number {
  let count = 1;
  if (typeof value !== "object" || value === null) return count;
  for (const key in value) {
    count += countValues(Reflect.get(value, key));
    if (count > maxExplained) break;
  }
  return count;
}

/**
 * No field has one of these names. Valibot drops them without an error, also in strict objects: `key in entries` finds
 * them. Returns the way to the first one. A body has tens of thousands of items, so nothing is made for each.
 */
function inheritedKey(value: unknown): string[] | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  if (Array.isArray(value)) {
    for (const [at, item] of value.entries()) {
      const found = typeof item === "object" ? inheritedKey(item) : undefined;
      if (found !== undefined) return [String(at), ...found];
    }
    return undefined;
  }
  for (const key of Object.keys(value)) {
    if (key in Object.prototype || key === "prototype") return [key];
    const found = inheritedKey(Reflect.get(value, key));
    if (found !== undefined) return [key, ...found];
  }
  return undefined;
}

/** Never contains the value: it may be a secret. */
function sentence(issue: v.BaseIssue<unknown>): string {
  if (issue.kind === "validation" || issue.type === "check") return issue.message;
  if (issue.expected === "never") return "This field is unknown.";
  if (issue.input === undefined) return "This field is required.";
  if (issue.input === null) return "This field may not be null.";
  if (issue.type === "picklist" || issue.type === "literal")
    return `Expected one of ${issue.expected ?? ""}.`;
  return `Expected ${issue.expected ?? "another type"}.`;
}
