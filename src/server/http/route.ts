// The declaration of a route: method, path, access, input, answers. Routing, validation, 405 and the OpenAPI document
// come from this one declaration. Knows no route and no table.

import { organizationPrefix, type Endpoint, type Role } from "../../api/endpoint.ts";
import { AppError } from "../../base/errors.ts";
import type { Schema } from "./parse-input.ts";

/**
 * A command on the control plane's data directory. Only a process that has opened the data can be one: it calls the
 * application without a listener (server/operator.ts). `uid`: the user of the machine; null on systems without numbers.
 */
export type Operator = { kind: "operator"; uid: number | null };

/** The sign-in of a user: the id of a browser's session, or a family: all tokens that follow from one sign-in of a command line. */
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
      /** Undefined: the cookie of the docs pages. */
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
      /** Words with spaces between; null: all rights of the role. */
      scopes: string | null;
      /** Networks with spaces between, from which the token is valid; null: from everywhere. */
      networks: string | null;
    }
  | { kind: "node"; nodeId: number; orgId: number; slug: string };

/** A signed-in user. */
export type UserCaller = Extract<Caller, { kind: "person" }>;
export type ServiceCaller = Extract<Caller, { kind: "service" }>;

/**
 * The path's organization and the caller's role. Staff who are not members may read: role `member`, `visiting` true.
 */
export type OrganizationAccess = { id: number; slug: string; role: Role; visiting: boolean };
/** An organization, for operations that ask for no role. */
export type Org = Pick<OrganizationAccess, "id" | "slug">;

/** The id of no organization, in place of an unknown one: anonymous registration must not reveal whether an organization exists. */
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

/** The routes of one path, by method. `weakest`: the one with the widest access; its callers may get 405. */
export type RoutesOfPath = { routes: ReadonlyMap<string, Route>; weakest: Route };

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

/** For `requireRoom`: the request lets the organization grow, whatever is stored. */
export const always = () => true;

export function isInOrganization(call: Call): call is OrganizationCall {
  return call.org !== undefined;
}
