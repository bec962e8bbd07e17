// Finds the caller of a request: the user of a JWT, the node of a node token, the service token. Lookups are cached
// until the rights of any caller change.

import { AppError } from "../../../base/errors.ts";
import { hashToken } from "../../../pki/opaque.ts";
import type { Caller, UserCaller } from "../../http/route.ts";
import type { Database } from "../../store/database.ts";
import { makeOrKnown } from "../../store/or-known.ts";
import { makeInterner } from "../../store/intern.ts";
import { joined, queryOne } from "../../store/table.ts";
import { nodes } from "../../store/tables/nodes.ts";
import { organizations } from "../../store/tables/organizations.ts";
import { serviceTokens } from "../../store/tables/sessions.ts";
import { isStaff, users } from "../../store/tables/users.ts";
import { hasFamilyEnded } from "./families.ts";
import type { Sessions } from "./sessions.ts";

type Deps = {
  db: Database;
  now(): number;
  sessions: Pick<Sessions, "verifyAccess" | "wasIssued">;
};

export type CallerLookup = {
  /**
   * The caller of an Authorization header, if it is cached. `isWrite`: a user or service only if the rights are certainly
   * the present ones, because another process may have ended them a moment ago.
   */
  cached(header: string, isWrite: boolean): Caller | undefined;
  /** The caller of the header. Throws not_authenticated or token_not_valid. Calls `onGuess` first for a token that was never issued. */
  bearer(header: string, isWrite: boolean, onGuess: () => void): Promise<Caller>;
  /** The user, if active and the credential, issued at `issuedAt` ms, is newer than the last end of all sessions. */
  userOf(userId: number, issuedAt: number): Promise<UserCaller | undefined>;
};

type TokenCaller = Extract<Caller, { kind: "node" | "service" }>;
type CachedUser = { caller: UserCaller; isActive: boolean; sessionsFrom: number };

/** Of tokens, of users, and of families each. A full cache is emptied. */
const maxCached = 200_000;
/** Tokens of nodes and services (`makeOpaqueToken`); anything else is taken for a JWT. */
const tokenShape = /^[A-Za-z0-9_-]{43}$/;
const bearerPrefix = "Bearer ";
/** RFC 9110, section 11.1: the name of a scheme has no case. */
const bearerInAnyCase = /^bearer +/i;

export function makeCallerLookup(deps: Deps): CallerLookup {
  const { db, sessions } = deps;
  /** By the whole header: a cached request needs no parsing. */
  const tokens = new Map<string, TokenCaller & { generation: number }>();
  const orKnown = makeOrKnown();
  const knownUsers = new Map<number, CachedUser>();
  const ended = makeEndedFamilies(db, () => generation);
  const intern = makeInterner();
  // Rises with each change of rights: a row that was read before one must not be cached after it.
  let generation = 0;
  db.listen("auth", () => {
    // `tokens` stay, with the former generation: for nodes that check in while the database is away.
    generation++;
    knownUsers.clear();
    ended.forget();
  });

  const hasExpired = (caller: TokenCaller) =>
    caller.kind === "service" && caller.expiresAt !== null && caller.expiresAt <= deps.now();

  const userOf = async (userId: number, issuedAt: number, isWrite = false) => {
    let known = isWrite && !db.hasHeardAll() ? undefined : knownUsers.get(userId);
    if (known === undefined) {
      const generationBefore = generation;
      const user = await users.find(db, { id: userId });
      if (user === undefined) return undefined;
      const { email, isActive, sessionsFrom } = user;
      known = { caller: { kind: "person", userId, email, isStaff: isStaff(user) }, isActive, sessionsFrom };
      if (knownUsers.size >= maxCached) knownUsers.clear();
      if (generationBefore === generation) knownUsers.set(userId, known);
    }
    return known.isActive && issuedAt > known.sessionsFrom ? known.caller : undefined;
  };

  const byJwt = async (token: string, isWrite: boolean, onGuess: () => void): Promise<Caller> => {
    const claims = await sessions.verifyAccess(token).catch((error: unknown) => {
      if (!sessions.wasIssued(error)) onGuess();
      throw error;
    });
    // Tokens of an earlier release name no session. "" never ends.
    const { family = "" } = claims;
    const caller = await userOf(claims.userId, claims.issuedAt, isWrite);
    if (caller === undefined || (await ended.has(family, isWrite))) throw notValid();
    return { ...caller, signIn: { family } };
  };

  const byToken = async (token: string, onGuess: () => void): Promise<Caller> => {
    const tokenHash = hashToken(token);
    const generationBefore = generation;
    const known = tokens.get(bearerPrefix + token);
    // A token that is known as a service's needs no search among nodes.
    const find = known?.kind === "service" ? findService : findToken;
    // While the database is away, a node is still admitted as it was known. A service is not.
    const fallback = known?.kind === "node" ? known : undefined;
    const found = await orKnown<TokenCaller | undefined>(() => find(db, tokenHash, intern), fallback);
    // The database is away: the node is not cached anew, and keeps its former generation.
    if (found === fallback && fallback !== undefined) return fallback;
    if (found === undefined) {
      tokens.delete(bearerPrefix + token);
      if (!(await wasEverIssued(db, tokenHash))) onGuess();
      throw notValid();
    }
    if (hasExpired(found)) throw new AppError("token_not_valid", "The token is expired.");
    if (tokens.size >= maxCached) tokens.clear();
    if (generationBefore === generation) tokens.set(bearerPrefix + token, { ...found, generation });
    return found;
  };

  return {
    cached(header, isWrite) {
      const known = tokens.get(header);
      if (known === undefined) return undefined;
      // Nodes write all the time, and pay nothing. Hearing may end what is cached, so the generation is compared afterwards.
      if (isWrite && known.kind !== "node" && !db.hasHeardAll()) return undefined;
      return known.generation === generation && !hasExpired(known) ? known : undefined;
    },
    async bearer(header, isWrite, onGuess) {
      const scheme = bearerInAnyCase.exec(header);
      if (scheme === null) {
        throw new AppError("not_authenticated", "Send the token as `Authorization: Bearer TOKEN`.");
      }
      const token = header.slice(scheme[0].length);
      return tokenShape.test(token) ? byToken(token, onGuess) : byJwt(token, isWrite, onGuess);
    },
    userOf,
  };
}

/** The sessions of access tokens that have ended: a token ends with its session, not only when it expires. */
function makeEndedFamilies(db: Database, generation: () => number) {
  /** Whether each family that was asked for has ended. */
  const families = new Map<string, boolean>();
  return {
    forget: () => families.clear(),
    async has(family: string, isWrite: boolean): Promise<boolean> {
      const known = isWrite && !db.hasHeardAll() ? undefined : families.get(family);
      if (known !== undefined) return known;
      const generationBefore = generation();
      const hasEnded = await hasFamilyEnded(db, family);
      if (families.size >= maxCached) families.clear();
      if (generationBefore === generation()) families.set(family, hasEnded);
      return hasEnded;
    },
  };
}

function notValid(): AppError {
  return new AppError("token_not_valid", "The token is not valid.");
}

const slug = organizations.pick("slug");
const nodeCaller = joined("t", nodes.pick("id", "orgId"), "o", slug);
const serviceCaller = joined(
  "t",
  serviceTokens.pick("id", "orgId", "role", "expiresAt", "scopes", "networks"),
  "o",
  slug,
);

/** The node or the service of a token. That of a revoked node is found too: its check-in tells the node that it is revoked. */
async function findToken(
  db: Database,
  tokenHash: string,
  intern: (slug: string) => string,
): Promise<TokenCaller | undefined> {
  const node = await queryOne(
    db,
    nodeCaller,
    `SELECT ${nodeCaller.select()} FROM nodes t JOIN organizations o ON o.id = t.org_id WHERE t.token_hash = $1`,
    [tokenHash],
  );
  if (node !== undefined) {
    return { kind: "node", nodeId: node.id, orgId: node.orgId, slug: intern(node.slug) };
  }
  return findService(db, tokenHash, intern);
}

async function findService(
  db: Database,
  tokenHash: string,
  intern: (slug: string) => string,
): Promise<TokenCaller | undefined> {
  const service = await queryOne(
    db,
    serviceCaller,
    `SELECT ${serviceCaller.select()} FROM service_tokens t JOIN organizations o ON o.id = t.org_id
     WHERE t.token_hash = $1 AND t.revoked_at IS NULL AND o.deleted_at IS NULL`,
    [tokenHash],
  );
  if (service === undefined) return undefined;
  const { id, slug, ...rest } = service;
  return { kind: "service", tokenId: id, slug: intern(slug), ...rest };
}

/** Whether the token was valid once, or is one for registrations: then its use is no guess. */
async function wasEverIssued(db: Database, tokenHash: string): Promise<boolean> {
  const row = await db.get(
    `SELECT 1 AS yes FROM retired_tokens WHERE token_hash = $1
     UNION ALL SELECT 1 FROM service_tokens WHERE token_hash = $1
     UNION ALL SELECT 1 FROM registration_tokens WHERE token_hash = $1`,
    [tokenHash],
  );
  return row !== undefined;
}
