// What a route is: method, path, who may call it, what it takes, what it answers. Validation, the order of checks,
// 405 and the OpenAPI document all come from this one description. Nothing here knows a route or a table.

import * as v from "valibot";
import { AppError, type ErrorCode } from "../../errors.ts";

export type Method = "GET" | "POST" | "PATCH" | "DELETE";
export type Role = "member" | "admin" | "owner";
export type Schema<T = unknown> = v.GenericSchema<unknown, T>;

/** Who calls; decided in people/access.ts alone. */
export type Caller =
  | { kind: "none" }
  | { kind: "person"; userId: number; email: string; isStaff: boolean }
  | {
      kind: "service";
      tokenId: number;
      orgId: number;
      slug: string;
      role: "member" | "admin";
      /** In ms; null: never. */
      expiresAt: number | null;
    }
  | { kind: "node"; nodeId: number; orgId: number; slug: string };

/** The organization of the path, and what the caller is in it. Staff from outside read: role `member`, `visiting`. */
export type OrganizationAccess = { id: number; slug: string; role: Role; visiting: boolean };

/** No organization's id. Nobody, who may register with a token, is not told by the path alone whether there is one. */
export const nowhere = 0;

/**
 * public: anybody, signed in or not.  user: a person or a service token.  person: a person.  staff: staff.
 * docs: staff, also by the cookie of the sign-in form.
 * Below /api/org/{slug}/, where the caller must belong to the organization (else 404):
 * member, admin, owner: that role or a higher one; staff from outside count as members.
 * register: an admin, or no credentials at all (the body's registration token decides then).
 */
export type Access = "public" | "user" | "person" | "staff" | "docs" | "register" | Role;

export type Call = {
  caller: Caller;
  /** What the caller is in the organization of the path, where it names one. */
  org: OrganizationAccess | undefined;
  /** The caller's network address, trusted proxies taken off. */
  address: string;
  request: Request;
  /** How long the answer may be held, s (RFC 7240, `Prefer: wait=N`). */
  waitS: number;
  /** Throws where the caller may not do this any more: for who has waited for others meanwhile. */
  admitAgain(): Promise<void>;
  /** A part of the path by its name. */
  param(name: string): string;
  /** A numeric part of the path. */
  id(name?: string): number;
};

export type OrganizationCall = Call & { org: OrganizationAccess };

/** What a handler answers: JSON unless `raw` is given; 200 unless `status` says otherwise. */
export type Reply = {
  status?: number;
  body?: unknown;
  raw?: string | Uint8Array<ArrayBuffer> | Blob;
  headers?: Record<string, string>;
};

/** What a route reads from a request. Made by `nothing`, `body()`, `query()`. */
export type Input<T> = {
  body?: Schema;
  query?: v.ObjectSchema<v.ObjectEntries, undefined> | v.StrictObjectSchema<v.ObjectEntries, undefined>;
  read(source: InputSource): T;
};

export type InputSource = { body<T>(schema: Schema<T>): T; query<T>(schema: Schema<T>): T };

export const nothing: Input<undefined> = { read: () => undefined };

export function body<T>(schema: Schema<T>): Input<T> {
  return { body: schema, read: (source) => source.body(schema) };
}

export function query<E extends v.ObjectEntries>(
  schema: v.StrictObjectSchema<E, undefined>,
): Input<v.InferOutput<v.StrictObjectSchema<E, undefined>>> {
  return { query: schema, read: (source) => source.query(schema) };
}

export type Answer = {
  description: string;
  schema?: Schema;
  type?: string;
  /** Name → what it says. A name that ends in ? is not in every answer. */
  headers?: Record<string, string>;
};

type Description = {
  method: Method;
  /** Hono's spelling; numbers as `:id{[0-9]+}` (the constant `id` below). Always with the trailing slash. */
  path: string;
  access: Access;
  /** operationId in the OpenAPI document: `nodes_list`, `nodes_create`. */
  name: string;
  summary: string;
  /** The success answers by status; what fails is documented from the table of errors. */
  answers: Record<number, Answer>;
  /** Codes beyond those that every route of its kind has. */
  errors?: readonly ErrorCode[];
  /** About people or tokens: closed to service tokens. */
  people?: true;
  /** Anybody may guess here: whose address has used up its guesses of this kind is refused before anything is read. */
  guesses?: "address" | "token";
  /** The token of the node that the path names may call it too. */
  node?: true;
  /** Served by the listener's own table, past Hono, where the path is plain: for what is requested most. */
  direct?: true;
  /** Logged only where reads are. */
  quiet?: true;
  /** The answer may be held (`Prefer: wait=N`). The caller's rights are checked again before it is sent. */
  held?: true;
};

export type Route = Description & {
  /** An answer of its own in place of an error's ordinary one. */
  refused?(error: AppError, request: Request): Reply | undefined;
  takes: Pick<Input<unknown>, "body" | "query">;
  answer(call: Call, source: InputSource): Reply | Promise<Reply>;
};

/** The session of the docs pages. */
export const docsCookie = "docs_session";

/** A numeric part of a path: anything else there is an unknown path. */
export const id = ":id{[0-9]{1,15}}";

/** A route outside of any organization. */
export function route<T>(
  description: Description & { takes: Input<T>; handle(call: Call, input: T): Promise<Reply> | Reply },
): Route {
  const { takes, handle } = description;
  return {
    ...description,
    answer: (call, source) => handle(call, takes.read(source)),
  };
}

/** A route below /api/org/{slug}/; `path` is what follows. */
export function organizationRoute<T>(
  description: Description & {
    takes: Input<T>;
    handle(call: OrganizationCall, input: T): Promise<Reply> | Reply;
  },
): Route {
  const { takes, handle } = description;
  return {
    ...description,
    path: `/api/org/:slug/${description.path}`,
    answer(call, source) {
      if (!isInOrganization(call)) throw new AppError("internal", `${description.name} has no organization`);
      return handle(call, takes.read(source));
    },
  };
}

function isInOrganization(call: Call): call is OrganizationCall {
  return call.org !== undefined;
}

/** Checks what came from outside; a failure names each field (decisions 4). */
export function parse<T>(schema: Schema<T>, value: unknown): T {
  const result = v.safeParse(schema, value);
  if (result.success) return result.output;
  const byField = Map.groupBy(result.issues, (issue) => v.getDotPath(issue) ?? "non_field_errors");
  // Own keys whatever they are called, `__proto__` too.
  const errors = Object.fromEntries([...byField].map(([field, issues]) => [field, issues.map(sentence)]));
  throw new AppError("validation_failed", "The request does not hold what it should.", { errors });
}

/** Never with the value met: it may be a secret. */
function sentence(issue: v.BaseIssue<unknown>): string {
  if (issue.kind === "validation" || issue.type === "check") return issue.message;
  if (issue.expected === "never") return "This field is not known.";
  if (issue.input === undefined) return "This field is required.";
  if (issue.input === null) return "This field may not be null.";
  if (issue.type === "picklist" || issue.type === "literal")
    return `Expected one of ${issue.expected ?? ""}.`;
  return `Expected ${issue.expected ?? "another type"}.`;
}
