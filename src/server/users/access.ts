// All authorization: which credentials an endpoint accepts, and whether the caller may use it.

import { notFound } from "../../api/values.ts";
import { AppError } from "../../base/errors.ts";
import type { Exchange } from "../http/exchange.ts";
import {
  isOfOrganization,
  nowhere,
  type Caller,
  type OrganizationAccess,
  type Route,
  type ServiceCaller,
  type UserCaller,
} from "../http/route.ts";
import { type Role, roles } from "../../api/endpoint.ts";
import { cookiesOf, docsCookie, readCookie, sessionCookie } from "../http/cookies.ts";
import { hasOpaqueOrigin } from "../http/opaque-origin.ts";
import { requireOwnPage } from "../http/own-page.ts";
import { countTokenGuess, type Throttle } from "../http/throttle.ts";
import { findSession } from "./sessions/browser-sessions.ts";
import type { Sessions } from "./sessions/sessions.ts";
import { makeCallerLookup } from "./sessions/callers.ts";
import { makeServiceAdmission } from "./token-scopes.ts";
import { doStaffNeedFactor } from "./factors/staff-factor.ts";
import { requireFactor } from "./factors/step-up.ts";
import type { Database } from "../store/database.ts";
import { computed, integer, orNull, queryOne, text, truth, word } from "../store/table.ts";

type Deps = {
  db: Database;
  now(): number;
  publicUrl: string;
  sessions: Pick<Sessions, "verifyAccess" | "verifyDocs" | "wasIssued">;
  throttle: Pick<Throttle, "check" | "count">;
};

/** The parts of a request that authorization needs. */
type Asking = Pick<Exchange, "request" | "address" | "caller" | "operator" | "param" | "id">;

export type AccessControl = {
  /**
   * The caller. `rules`: the route of the request or, if its path lacks the method, the weakest route of the path, whose rules then
   * apply. Throws not_authenticated or token_not_valid. Not a promise if the caller is cached: a promise costs
   * nearly as much as the rest of a check-in.
   */
  identify(asking: Asking, rules: Route): Caller | Promise<Caller>;
  /**
   * Checks that the caller may use the endpoint. Returns the caller's access to the organization of the path. `rules`: as above.
   * `route`: undefined if the path lacks the method. Throws not_authenticated, permission_denied, node_token_scope, not_found,
   * token_scope, or what requireFactor throws.
   */
  authorize(
    asking: Asking,
    rules: Route,
    route: Route | undefined,
  ): OrganizationAccess | undefined | Promise<OrganizationAccess | undefined>;
  /** Throws step_up_required for a user whose second factor is not fresh. `authorize` asks for a required one. */
  requireFresh(asking: Pick<Asking, "caller">): Promise<void>;
};

/** `secondFactor`: the organization requires one. */
type FoundOrganization = OrganizationAccess & { secondFactor?: boolean };

const anonymous: Caller = { kind: "none" };
const rank: Record<Role, number> = { member: 1, admin: 2, owner: 3 };

export function makeAccessControl(deps: Deps): AccessControl {
  const { db, sessions, throttle } = deps;
  const callers = makeCallerLookup(deps);
  const admitService = makeServiceAdmission(deps);

  const byHeader = async (header: string, asking: Asking, rules: Route): Promise<Caller> => {
    const onGuess = () => countTokenGuess(throttle, asking.address);
    const isWrite = changes(asking);
    if (rules.access !== "public") return callers.bearer(header, isWrite, onGuess);
    // Public endpoints ignore an invalid token, but `authorize` still refuses a node token there.
    try {
      return await callers.bearer(header, isWrite, () => undefined);
    } catch (error) {
      if (error instanceof AppError && error.httpStatus === 401) return { kind: "none" };
      throw error;
    }
  };

  /** A browser sends no Authorization header. */
  const byCookie = async (asking: Asking, rules: Route): Promise<Caller> => {
    const cookies = cookiesOf(asking.request);
    const session = readCookie(cookies, sessionCookie);
    const found = session === undefined ? undefined : await bySession(deps, session, asking, rules);
    if (found !== undefined) return found;
    const token = rules.access === "docs" ? readCookie(cookies, docsCookie) : undefined;
    if (token !== undefined) {
      const { userId, issuedAt } = await sessions.verifyDocs(token);
      return (await callers.userOf(userId, issuedAt)) ?? { kind: "none" };
    }
    if (session === undefined) return { kind: "none" };
    throw new AppError("token_not_valid", "This browser's session has ended. Sign in again.");
  };

  const inOrganization = async (asking: Asking, rules: Route): Promise<OrganizationAccess> => {
    const { caller } = asking;
    const slug = asking.param("slug");
    const org = caller.kind === "service" ? ownOf(caller, slug) : await findOrganization(db, caller, slug);
    if (org === undefined) throw new AppError("not_found", notFound.organization);
    if (!mayInOrganization(org, caller, rules.access)) throw denied();
    if (caller.kind === "person") await checkFactor(caller, rules, org);
    return org;
  };

  /** Throws what requireFactor throws. `org`: the organization of the path, if there is one. */
  const checkFactor = async (caller: UserCaller, { access, fresh }: Route, org?: FoundOrganization) => {
    // Staff who are members of the organization act as members there.
    const actsAsStaff = caller.isStaff && (org?.visiting ?? /^(staff|docs)$/.test(access));
    const isRequired = org?.secondFactor === true || (actsAsStaff && (await doStaffNeedFactor(db)));
    await requireFactor(db, caller, { isRequired, isFresh: fresh === true, now: deps.now() });
  };

  return {
    identify(asking, rules) {
      if (asking.operator !== undefined) return asking.operator;
      const header = asking.request.headers.get("authorization");
      if (header === null) {
        const hasCookie = rules.access !== "public" && asking.request.headers.has("cookie");
        return hasCookie ? byCookie(asking, rules) : anonymous;
      }
      return callers.cached(header, changes(asking)) ?? byHeader(header, asking, rules);
    },
    authorize(asking, rules, route) {
      const { caller } = asking;
      if (caller.kind === "node") {
        if (route?.node !== true || asking.param("slug") !== caller.slug || asking.id() !== caller.nodeId) {
          throw nodeTokenScope();
        }
        return { id: caller.orgId, slug: caller.slug, role: "member", visiting: false };
      }
      const refused = refusal(caller, rules, asking.request);
      if (refused !== undefined) throw refused;
      if (rules.access === "public") return undefined;
      if (caller.kind === "service") admitService(caller, rules, asking.address);
      if (isOfOrganization(rules)) return inOrganization(asking, rules);
      if (caller.kind !== "person") return undefined;
      return checkFactor(caller, rules).then(() => undefined);
    },
    async requireFresh({ caller }) {
      if (caller.kind !== "person") return;
      await requireFactor(db, caller, { isRequired: false, isFresh: true, now: deps.now() });
    },
  };
}

/** Any site can send requests from the networks of its visitors. */
function boundToNetworks(): AppError {
  return new AppError(
    "token_scope",
    "This service token is bound to networks, so web pages may not use it.",
    { hint: "Send it with a program, such as curl." },
  );
}

/** The user of the cookie's session; undefined if it has ended, or the page names another user. */
async function bySession(
  { db, now, publicUrl }: Deps,
  token: string,
  asking: Asking,
  { unattended }: Route,
): Promise<Caller | undefined> {
  const isChange = changes(asking);
  if (isChange) requireOwnPage(asking.request, publicUrl);
  // A page also sends requests by itself, which must not extend the session.
  const isUse = isChange || !(unattended === true || asking.request.headers.get("session-use") === "none");
  const found = await findSession(db, token, { now: now(), address: asking.address, isUse });
  // The page names its user: meanwhile another one may have signed in, in another tab.
  const named = asking.request.headers.get("session-user");
  return named === null || named === String(found?.userId) ? found : undefined;
}

/** Whether the request may change anything. */
function changes({ request }: Pick<Asking, "request">): boolean {
  return request.method !== "GET" && request.method !== "HEAD";
}

/** A service token belongs to one organization and ends with it. */
function ownOf({ orgId, slug, role }: ServiceCaller, asked: string): OrganizationAccess | undefined {
  return asked === slug ? { id: orgId, slug, role, visiting: false } : undefined;
}

const organizationWithRole = computed({
  id: integer(),
  slug: text(),
  secondFactor: truth(0),
  role: orNull(word(roles)),
});

async function findOrganization(
  db: Database,
  caller: Exclude<Caller, ServiceCaller>,
  slug: string,
): Promise<FoundOrganization | undefined> {
  const userId = caller.kind === "person" ? caller.userId : 0;
  // `bound_org_id`: a user whom an organization's provider made is a member of that organization only.
  const found = await queryOne(
    db,
    organizationWithRole,
    `SELECT o.id, o.slug, o.second_factor, m.role FROM organizations o
     LEFT JOIN memberships m ON m.org_id = o.id AND m.user_id = $2
       AND EXISTS (SELECT 1 FROM users u WHERE u.id = $2 AND coalesce(u.bound_org_id, o.id) = o.id)
     WHERE o.slug = $1 AND o.deleted_at IS NULL`,
    [slug, userId],
  );
  if (found === undefined) {
    // Placeholder id: anonymous registration must not reveal whether an organization exists.
    return caller.kind === "none" ? { id: nowhere, slug, role: "member", visiting: true } : undefined;
  }
  const { role } = found;
  if (caller.kind === "operator") return { ...found, role: "owner", visiting: false };
  if (role !== null) return { ...found, role, visiting: false };
  // Anonymous callers may register; staff may read every organization.
  const isVisitor = caller.kind === "none" || (caller.kind === "person" && caller.isStaff);
  return isVisitor ? { ...found, role: "member", visiting: true } : undefined;
}

/** Why the caller may not use the route, as far as that needs no organization; `mayInOrganization` checks the rest. */
function refusal(
  caller: Caller,
  route: Pick<Route, "access" | "usersOnly">,
  request: Request,
): AppError | undefined {
  const { access } = route;
  if (access === "public" || caller.kind === "operator") return undefined;
  if (caller.kind === "none") {
    return access === "register"
      ? undefined
      : new AppError("not_authenticated", "Authentication credentials were not provided.");
  }
  if (caller.kind === "service" && (route.usersOnly === true || access === "person")) return usersOnly();
  if ((access === "staff" || access === "docs") && !(caller.kind === "person" && caller.isStaff))
    return denied();
  return caller.kind === "service" && caller.networks !== null && hasOpaqueOrigin(request)
    ? boundToNetworks()
    : undefined;
}

/** Whether the role in the organization suffices. Visiting staff may read what members may. `access`: see `Access` in api/endpoint.ts. */
function mayInOrganization(
  { role, visiting }: OrganizationAccess,
  caller: Caller,
  access: Route["access"],
): boolean {
  if (access === "register") return caller.kind === "none" || rank[role] >= rank.admin;
  if (access === "own") return !visiting;
  // The others need no role: `refusal` has decided.
  if (access !== "member" && access !== "admin" && access !== "owner") return true;
  return rank[role] >= rank[access] && !(visiting && access !== "member");
}

function denied(): AppError {
  return new AppError("permission_denied", "You do not have permission to perform this action.");
}

function usersOnly(): AppError {
  return new AppError(
    "permission_denied",
    "A service token does not give this right, whatever its role: sign in as a user.",
  );
}

function nodeTokenScope(): AppError {
  return new AppError(
    "node_token_scope",
    "A node token is valid only for check-ins, reports and downloads of its own node. Use a user's token.",
  );
}
