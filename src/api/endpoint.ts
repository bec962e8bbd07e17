// The declaration of an endpoint of the HTTP API: one value, from which the server, the OpenAPI document, the command
// line, nodes and the console follow. Imports nothing at run time, because browsers load it.

import type * as v from "valibot";
import type { ErrorCode } from "../base/errors.ts";

export type Method = "GET" | "POST" | "PATCH" | "DELETE";
export const roles = ["member", "admin", "owner"] as const;
export type Role = (typeof roles)[number];

/**
 * Who may call:
 *   public    no credentials needed
 *   user      a person or a service token
 *   person    a person
 *   staff     a person of the staff
 *   docs      staff, also with the cookie of the sign-in form
 *   register  an admin, or no credentials (then the registration token in the body decides)
 *   own       a member, or a service token; the handler admits members only to what is their own
 *   member, admin, owner: this role or a higher one; staff who are not members count as members
 * A browser's session counts as its user, except for `public`, which does not look at it. Below /api/org/{slug}/ the caller
 * must belong to the organization, else the answer is 404.
 */
export type Access = "public" | "user" | "person" | "staff" | "docs" | "register" | "own" | Role;

export type Answer = {
  description: string;
  schema?: v.GenericSchema;
  type?: string;
  /** Descriptions by name. The name of an optional header ends in `?`. */
  headers?: Readonly<Record<string, string>>;
};

export type QuerySchema = v.StrictObjectSchema<v.ObjectEntries, undefined>;

/**
 * The type of a method, because TypeScript compares parameters of methods in both directions: a function for lists may stand
 * where one for any value is expected.
 */
type Bivariant = { asks(value: unknown): boolean }["asks"];
/** Whether a field that is given needs a fresh second factor. */
type FreshField = boolean | Bivariant;

export type Endpoint = {
  // What it is
  /** The operationId in the OpenAPI document: `nodes_list`, `nodes_create`. */
  name: string;
  method: Method;
  /** As in the OpenAPI document: `/api/org/{slug}/nodes/{id}/`. With a final slash. */
  path: string;
  /** Regular expressions that parameters of the path must match. A path with anything else is unknown. */
  patterns?: Readonly<Record<string, string>>;
  summary: string;
  /** The input of a request: body or query, or nothing. */
  body?: v.GenericSchema;
  query?: QuerySchema;
  /** Successful answers by status. */
  answers: Readonly<Record<number, Answer>>;
  /** Error codes besides those that every endpoint of its kind has. */
  errors?: readonly ErrorCode[];

  // Who may call it
  access: Access;
  /** The token of the node in the path is accepted, too. */
  node?: true;
  /** Service tokens are refused: the endpoint concerns users or tokens, or makes machines run another program. */
  usersOnly?: true;
  /**
   * The scope that a service token needs to call it. Without `scope` or `usersOnly`, service tokens may only read. See
   * server/users/token-scopes.ts.
   */
  scope?: "nodes" | "policy" | "webhooks";
  /** A POST that changes nothing, such as a plan: service tokens with the scope `read` may call it. */
  reads?: true;
  /**
   * Whether users with a second factor, or who need one, must have proven it within 10 minutes: always, never, or if
   * a field of the input is given that needs it (server/users/factors/step-up.ts). Required before what changes the
   * rights of a user, program or machine, what machines receive, or ends a machine; not before a mere description.
   * Fields are declared one by one, so that a new one cannot be forgotten.
   */
  fresh?: boolean | Readonly<Record<string, FreshField>>;
  /** Passwords can be guessed here. A network with too many wrong ones gets 429 before the body is read. */
  guesses?: true;

  // What it may cost
  /** The maximum of the body in bytes, if it is not the usual one (server/http/body.ts). */
  maxBody?: number;
  /**
   * The organization stores more afterwards, so at its maximum the request is refused. A handler can admit some requests all
   * the same (`grows` in server/http/attach.ts).
   */
  grows?: true;

  // How it is served
  /** Served by the listener's own route table, without Hono and without a queue: for the most frequent requests. */
  direct?: true;
  /** The answer may be held (`Prefer: wait=N`). The caller's rights are checked again before it is sent. */
  held?: true;
  /** A page sends this by itself: it does not count as use of a browser's session. */
  unattended?: true;
  /** Logged only with `logReads`. */
  quiet?: true;
};

type AllFields<T> = { [K in keyof T]-?: boolean | ((value: T[K]) => boolean) };

/** Declares an endpoint. Keeps the exact types of path, schemas and answers. */
export function endpoint<const E extends Endpoint>(
  declared: E & (E extends { fresh: object } ? { fresh: AllFields<InputOf<E>> } : unknown),
): E {
  return declared;
}

/** For `fresh`: a list that is not empty; a switch that is on. */
export const hasSome = (list: readonly unknown[] | undefined): boolean =>
  list !== undefined && list.length > 0;
export const isOn = (value: boolean | "true" | "false" | undefined): boolean =>
  value === true || value === "true";

/** How the paths of an organization begin. Their callers must belong to it. */
export const organizationPrefix = "/api/org/{slug}/";

/** The parameters of paths that are whole numbers; others are texts. */
export const numberParams = ["id", "delivery", "session"] as const;
type NumberName = (typeof numberParams)[number];
const number = "[1-9][0-9]{0,14}";
/** The regular expression that a parameter of the path must match, if any text will not do. */
export const paramPattern = ({ patterns }: Endpoint, name: string): string | undefined =>
  patterns?.[name] ?? (numberParams.some((each) => each === name) ? number : undefined);
export type ParamName<P extends string> = P extends `${string}{${infer Name}}${infer Rest}`
  ? Name | ParamName<Rest>
  : never;
/** The parameters of a path, read from its text. */
export type Params<E extends Endpoint> = {
  [K in ParamName<E["path"]>]: K extends NumberName ? number : string;
};

type SchemaOf<E> = E extends { body: infer S extends v.GenericSchema }
  ? S
  : E extends { query: infer S extends v.GenericSchema }
    ? S
    : v.UndefinedSchema<undefined>;
/** The handler's input: the parsed body or query. */
export type InputOf<E> = v.InferOutput<SchemaOf<E>>;
/** The caller's input. */
export type GivenOf<E> = v.InferInput<SchemaOf<E>>;

/** The last parameter of a call: nothing, or the optional or required input. */
export type CallInput<E> = [GivenOf<E>] extends [undefined]
  ? []
  : object extends GivenOf<E>
    ? [input?: GivenOf<E>]
    : [input: GivenOf<E>];

type Answers<E extends Endpoint> = E["answers"][keyof E["answers"]];
/**
 * The caller's answer; `undefined`: it has no body. Fields that an older control plane does not send may be undefined (`since` in
 * values.ts).
 */
export type AnswerOf<E extends Endpoint> =
  Answers<E> extends infer A
    ? A extends { schema: infer S extends v.GenericSchema }
      ? v.InferInput<S>
      : undefined
    : never;
/** The same for the console. Its own control plane serves it, so both have the same version, and no field is missing. */
export type SentOf<E extends Endpoint> =
  Answers<E> extends infer A
    ? A extends { schema: infer S extends v.GenericSchema }
      ? v.InferOutput<S>
      : undefined
    : never;

/** An item of a list. */
export type ItemOf<E extends Endpoint> = AnswerOf<E> extends readonly (infer Item)[] ? Item : never;

/** A path, with the type of what it answers. The property never exists: it only carries the type. */
export type Path<Answered> = string & { readonly answers?: Answered };

type QueryOf<E> = E extends { query: v.GenericSchema } ? [query?: GivenOf<E>] : [];

/** The path of a request, with its parameters and its query. */
export function apiPath<const E extends Endpoint>(
  of: E,
  params: Params<E>,
  ...query: QueryOf<E>
): Path<SentOf<E>> {
  return filledPath(of.path, params, Object.assign({}, ...query));
}

/** The same for values that are not typed. Fields of the query that are undefined are left out. */
export function filledPath(path: string, params: object, query: object = {}): string {
  const fields = Object.entries<string>({ ...query }).filter(([, value]) => value !== undefined);
  const queryText = new URLSearchParams(fields).toString();
  const values: Record<string, string | number> = { ...params };
  const filled = path.replace(/{(\w+)}/g, (_, name: string) => {
    const value = values[name];
    if (value === undefined) throw new Error(`${path} lacks ${name}`);
    return encodeURIComponent(value);
  });
  return queryText === "" ? filled : `${filled}?${queryText}`;
}

/** GET and DELETE carry a query, the others a body. */
export const hasQuery = ({ method }: Pick<Endpoint, "method">) => method === "GET" || method === "DELETE";
