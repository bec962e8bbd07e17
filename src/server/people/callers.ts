// Looks up who sends a request: a user's JWT, a node's token, a service token. Lookups are cached until anybody's
// rights change.

import { AppError } from "../../errors.ts";
import { hashToken } from "../../pki/opaque.ts";
import type { Caller } from "../http/route.ts";
import { makeInterner } from "../store/intern.ts";
import { numberOf, numberOrNull, textOf, type Database, type Row } from "../store/database.ts";
import type { Sessions } from "./sessions.ts";

type Deps = {
  db: Database;
  now(): number;
  sessions: Pick<Sessions, "verifyAccess" | "wasIssued">;
};

export type CallerLookup = {
  /** The caller of an Authorization header, where the cache has it. */
  cached(header: string): Caller | undefined;
  /** Throws not_authenticated or token_not_valid. Calls `guessed` first for a token that was never issued. */
  bearer(header: string, guessed: () => void): Promise<Caller>;
  /** An active user whose credential, issued at `issuedAt` ms, is newer than the last end of all sessions. */
  person(userId: number, issuedAt: number): Promise<Caller | undefined>;
};

type TokenCaller = Exclude<Caller, { kind: "person" | "none" }>;
type KnownPerson = { caller: Caller; active: boolean; sessionsFrom: number };

const maxKept = 200_000;
const tokenShape = /^[A-Za-z0-9_-]{43}$/;
const bearer = "Bearer ";

export function makeCallerLookup(deps: Deps): CallerLookup {
  const { db, sessions } = deps;
  /** By the whole header, so that a frequent one is not parsed each time. */
  const tokens = new Map<string, TokenCaller>();
  const people = new Map<number, KnownPerson>();
  const slugs = makeInterner();
  // A row that was read before a change of rights must not be cached after it.
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
    const claims = await sessions.verifyAccess(token).catch((error: unknown) => {
      if (!sessions.wasIssued(error)) guessed();
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

  const ofBearer = async (header: string, guessed: () => void): Promise<Caller> => {
    if (!header.startsWith(bearer)) {
      throw new AppError("not_authenticated", "Give the token as `Authorization: Bearer TOKEN`.");
    }
    const token = header.slice(bearer.length);
    return tokenShape.test(token) ? byToken(token, guessed) : byJwt(token, guessed);
  };

  return {
    cached(header) {
      const known = tokens.get(header);
      return known === undefined || hasExpired(known) ? undefined : known;
    },
    bearer: ofBearer,
    person,
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
