// The only place that decides who calls and what they may: a person's JWT, a node's token, a service token, nobody.
// What was looked up is kept in memory until somebody's rights change.

import { AppError } from "../../errors.ts";
import { hashToken } from "../../pki/opaque.ts";
import { nowhere, type Caller, type OrganizationAccess, type Role, type Route } from "../http/route.ts";
import { makeTexts } from "../store/intern.ts";
import { numberOf, numberOrNull, textOf, textOrNull, type Database, type Row } from "../store/database.ts";

/** What an access token says; issuedAt in ms. */
export type AccessClaims = { userId: number; issuedAt: number };

export type AuthDeps = {
  db: Database;
  now(): number;
  /** Throws token_not_valid; `expired` tells one that was really issued once. */
  verifyAccess(token: string): Promise<AccessClaims>;
  /** Whether a refused JWT was nonetheless signed by us (expired): no guess. */
  wasIssued(error: unknown): boolean;
};

export type Auth = {
  /** Who sends this Authorization header, where that is in memory. */
  known(header: string | null): Caller | undefined;
  /**
   * Who sends it. Throws not_authenticated or token_not_valid; `guessed` is called first where the token was never
   * issued by us.
   */
  caller(header: string, guessed: () => void): Promise<Caller>;
  /** What the caller is in the organization of the path; not_found where they do not belong to it. */
  organization(caller: Caller, slug: string): Promise<OrganizationAccess>;
  /** A person by id, if they are active and what they hold was signed after their last sign-out of everything. */
  person(userId: number, issuedAt: number): Promise<Caller | undefined>;
};

type TokenCaller = Exclude<Caller, { kind: "person" | "none" }>;
type ServiceCaller = Extract<Caller, { kind: "service" }>;
type KnownPerson = { caller: Caller; active: boolean; sessionsFrom: number };

const maxKept = 200_000;
const tokenShape = /^[A-Za-z0-9_-]{43}$/;
const bearer = "Bearer ";
const nobody: Caller = { kind: "none" };
const rank: Record<Role, number> = { member: 1, admin: 2, owner: 3 };

export function makeAuth(deps: AuthDeps): Auth {
  const { db } = deps;
  /** By the header: what is sent all the time is not taken apart each time. */
  const tokens = new Map<string, TokenCaller>();
  const people = new Map<number, KnownPerson>();
  const slugs = makeTexts();
  // What was read before somebody's rights changed must not be kept after it.
  let generation = 0;
  db.listen("auth", () => {
    generation++;
    tokens.clear();
    people.clear();
  });

  const hasExpired = (caller: TokenCaller) =>
    caller.kind === "service" && caller.expiresAt !== null && caller.expiresAt <= deps.now();

  const person = async (userId: number, issuedAt: number) => {
    let known = people.get(userId);
    if (known === undefined) {
      const before = generation;
      const row = await db.get(
        "SELECT id, email, is_staff, is_active, sessions_from FROM users WHERE id = $1",
        [userId],
      );
      if (row === undefined) return undefined;
      known = personOf(row);
      if (before === generation) people.set(userId, known);
    }
    return known.active && issuedAt > known.sessionsFrom ? known.caller : undefined;
  };

  const byJwt = async (token: string, guessed: () => void): Promise<Caller> => {
    const claims = await deps.verifyAccess(token).catch((error: unknown) => {
      if (!deps.wasIssued(error)) guessed();
      throw error;
    });
    const caller = await person(claims.userId, claims.issuedAt);
    if (caller === undefined) throw notValid();
    return caller;
  };

  const byToken = async (token: string, guessed: () => void): Promise<Caller> => {
    const hash = hashToken(token);
    const before = generation;
    const found = await findToken(db, hash, slugs);
    if (found === undefined) {
      if (!(await wasEverIssued(db, hash))) guessed();
      throw notValid();
    }
    if (hasExpired(found)) throw notValid();
    if (tokens.size >= maxKept) tokens.clear();
    if (before === generation) tokens.set(bearer + token, found);
    return found;
  };

  return {
    person,
    known(header) {
      if (header === null) return nobody;
      const known = tokens.get(header);
      return known === undefined || hasExpired(known) ? undefined : known;
    },
    async caller(header, guessed) {
      if (!header.startsWith(bearer)) {
        throw new AppError("not_authenticated", "Give the token as `Authorization: Bearer TOKEN`.");
      }
      const token = header.slice(bearer.length);
      if (tokenShape.test(token)) return byToken(token, guessed);
      return byJwt(token, guessed);
    },
    async organization(caller, slug) {
      const access =
        caller.kind === "service" ? ownOf(caller, slug) : await findOrganization(db, caller, slug);
      if (access === undefined) throw new AppError("not_found", "There is no such organization.");
      return access;
    },
  };
}

function notValid(): AppError {
  return new AppError("token_not_valid", "The token is not valid.");
}

function personOf(row: Row): KnownPerson {
  return {
    caller: {
      kind: "person",
      userId: numberOf(row, "id"),
      email: textOf(row, "email"),
      isStaff: numberOf(row, "is_staff") === 1,
    },
    active: numberOf(row, "is_active") === 1,
    sessionsFrom: numberOf(row, "sessions_from"),
  };
}

/** A revoked node's token still says who it is: that is how it learns of its revocation. */
async function findToken(
  db: Database,
  hash: string,
  one: (slug: string) => string,
): Promise<TokenCaller | undefined> {
  const node = await db.get(
    "SELECT n.id, n.org_id, o.slug FROM nodes n JOIN organizations o ON o.id = n.org_id WHERE n.token_hash = $1",
    [hash],
  );
  if (node !== undefined) {
    return {
      kind: "node",
      nodeId: numberOf(node, "id"),
      orgId: numberOf(node, "org_id"),
      slug: one(textOf(node, "slug")),
    };
  }
  const service = await db.get(
    `SELECT s.id, s.org_id, s.role, s.expires_at, o.slug
     FROM service_tokens s JOIN organizations o ON o.id = s.org_id
     WHERE s.token_hash = $1 AND s.revoked_at IS NULL AND o.deleted_at IS NULL`,
    [hash],
  );
  if (service === undefined) return undefined;
  return {
    kind: "service",
    tokenId: numberOf(service, "id"),
    orgId: numberOf(service, "org_id"),
    slug: one(textOf(service, "slug")),
    role: textOf(service, "role") === "admin" ? "admin" : "member",
    expiresAt: numberOrNull(service, "expires_at"),
  };
}

async function wasEverIssued(db: Database, hash: string): Promise<boolean> {
  const row = await db.get(
    `SELECT 1 AS yes FROM retired_tokens WHERE token_hash = $1
     UNION ALL SELECT 1 FROM service_tokens WHERE token_hash = $1
     UNION ALL SELECT 1 FROM registration_tokens WHERE token_hash = $1`,
    [hash],
  );
  return row !== undefined;
}

/** A service token belongs to one organization; it ends with it. */
function ownOf({ orgId, slug, role }: ServiceCaller, asked: string): OrganizationAccess | undefined {
  return asked === slug ? { id: orgId, slug, role, visiting: false } : undefined;
}

async function findOrganization(
  db: Database,
  caller: Exclude<Caller, ServiceCaller>,
  slug: string,
): Promise<OrganizationAccess | undefined> {
  const userId = caller.kind === "person" ? caller.userId : 0;
  const row = await db.get(
    `SELECT o.id, o.slug, m.role FROM organizations o
     LEFT JOIN memberships m ON m.org_id = o.id AND m.user_id = $2
     WHERE o.slug = $1 AND o.deleted_at IS NULL`,
    [slug, userId],
  );
  if (row === undefined) {
    return caller.kind === "none" ? { id: nowhere, slug, role: "member", visiting: true } : undefined;
  }
  const place = { id: numberOf(row, "id"), slug: textOf(row, "slug") };
  const role = textOrNull(row, "role");
  if (role === "member" || role === "admin" || role === "owner") return { ...place, role, visiting: false };
  // Nobody: the register endpoint without credentials. Staff read every organization.
  const visits = caller.kind === "none" || (caller.kind === "person" && caller.isStaff);
  return visits ? { ...place, role: "member", visiting: true } : undefined;
}

/** Whether the caller may use the route at all; organizations are looked at by `mayInOrganization`. */
export function refusal(caller: Caller, route: Pick<Route, "access" | "people">): AppError | undefined {
  const { access } = route;
  if (access === "public") return undefined;
  if (caller.kind === "none") {
    return access === "register"
      ? undefined
      : new AppError("not_authenticated", "Authentication credentials were not provided.");
  }
  if (caller.kind === "service" && (route.people === true || access === "person")) return denied();
  if ((access === "staff" || access === "docs") && !(caller.kind === "person" && caller.isStaff))
    return denied();
  return undefined;
}

export function mayInOrganization(
  { role, visiting }: OrganizationAccess,
  caller: Caller,
  access: Route["access"],
): boolean {
  if (access === "register") return caller.kind === "none" || rank[role] >= rank.admin;
  if (access !== "member" && access !== "admin" && access !== "owner") return true;
  return rank[role] >= rank[access] && !(visiting && access !== "member");
}

export function denied(): AppError {
  return new AppError("permission_denied", "You do not have permission to perform this action.");
}

export function nodeTokenScope(): AppError {
  return new AppError(
    "node_token_scope",
    "A node's token opens its own checkin and download_config only; use a person's token here.",
  );
}
