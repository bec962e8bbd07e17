// Approval of new machines. Where the organization asks for it, a registration becomes a request that waits for an
// administrator; the machine repeats the same registration until it is answered. A request holds a use of its token, but
// no name and no address. An approval covers one digest: the same machine with other wishes makes another request.

import type { Registration } from "../../../api/registrations.ts";
import { brand } from "../../../brand.ts";
import { formatTime, timeOrNull } from "../../../base/quantities.ts";
import { AppError } from "../../../base/errors.ts";
import { fingerprintOfHostKey } from "../../../pki/keys.ts";
import type { RegisterRequest, RegisterWaiting } from "../../../protocol/registration.ts";
import { ourselves, record, type Actor } from "../../audit/record.ts";
import type { EventType } from "../../../api/events.ts";
import type { IssuingOrg } from "../../certificates/issue.ts";
import type { OrganizationAccess } from "../../http/route.ts";
import { forAll, orgOf } from "../../for-all.ts";
import type { Store } from "../../options.ts";
import { writeAsAdmin } from "../../require-role.ts";
import type { Row, Transaction } from "../../store/database.ts";
import { computed, integer, queryAll, queryNumber, queryOne } from "../../store/table.ts";
import { registrationRequests as requests, type RegistrationRequestRow } from "../../store/tables/joining.ts";
import { sha256Hex } from "../../../base/sha256.ts";
import type { Keys } from "./register-request.ts";
import { releaseUse, type Grant } from "./registration-credential.ts";

type Org = Pick<OrganizationAccess, "id">;
type Asking = {
  keys: Keys;
  grant: Grant;
  /** The request of the machine that is stored already, whatever it asks for. */
  kept: RegistrationRequestRow | undefined;
  actor: Actor;
  now: number;
};
/** `seenFrom`: the address that it came from. */
type Request = RegisterRequest & { seenFrom: string };
/** What an approval covers: of the request, and of its grant. */
type Wishes = Pick<RegisterRequest, "name" | "is_lighthouse" | "is_relay" | "public_ip" | "ip_address">;
type Covered = Pick<Grant, "groups" | "ownerId" | "boundTo" | "ephemeralSilenceS" | "isPhone">;

/** A request that is not answered, and an answer that is not used, end after this time. */
const lifetimeMs = 7 * 86_400_000;
const maxOfOneUser = 20;
/** Bounds the list: a stolen token with many uses must not fill it. */
const maxOfOrganization = 1000;
/** How often a repeated request is recorded at most. */
const askedEveryMs = 60_000;
/** How often the machine asks: often in the first minutes, because a user may be watching. */
const firstEveryS = 5;
const laterEveryS = 30;
const firstMs = 10 * 60_000;

export function registrationItemOf(row: Row): Registration {
  const request = requests.parse(row);
  return {
    id: request.id,
    ...detailsOf(request),
    is_lighthouse: request.isLighthouse,
    is_relay: request.isRelay,
    registration_token_id: request.tokenId,
    platform: request.platform,
    version: request.agentVersion,
    created_at: formatTime(request.createdAt),
    // The answer of an administrator set `expiresAt` to its own time plus `lifetimeMs`.
    approved_at: request.state === "approved" ? formatTime(request.expiresAt - lifetimeMs) : null,
    last_asked_at: timeOrNull(request.askedAt),
    expires_at: formatTime(request.expiresAt),
  };
}

/** What lists and events say of a request. */
function detailsOf({ name, hostPublicKey, groups, ownerId, seenFrom }: RegistrationRequestRow) {
  const key_sha256 = fingerprintOfHostKey(hostPublicKey);
  return { name, key_sha256, groups, owner_id: ownerId, seen_from: seenFrom };
}

/** SQL condition: requests of a state that have not ended. Those of revoked tokens end at once. `now`: ms. */
export const answerable = (now: number, state: "waiting" | "approved" = "waiting") =>
  `AND state = '${state}' AND expires_at > ${now} AND NOT EXISTS (SELECT 1 FROM registration_tokens t
    WHERE t.id = registration_requests.token_id AND t.revoked_at IS NOT NULL)`;

/** The request with both of these keys, whatever else it asks for. One that has expired ends here. */
export async function findRequest(
  tx: Transaction,
  orgId: number,
  { hostPublicKey, csrKeySha256 }: Keys,
  now: number,
): Promise<RegistrationRequestRow | undefined> {
  const all = await requests.all(tx, { orgId, hostPublicKey });
  const found = all.find((each) => each.csrKeySha256 === csrKeySha256);
  if (found === undefined || found.expiresAt > now) return found;
  await endRequest(tx, found, "expired", now);
  return undefined;
}

/** `isNew`: the machine asks for the first time, or for something else than before. */
export type Held = { waiting: RegisterWaiting; isNew: boolean };

/**
 * What to answer if the registration has to wait for approval; undefined if it may go on. The grant's use of the token was taken by
 * `consume`, or is the one that `kept` holds. A stored request stays only while the same machine still waits for the same; else it
 * ends, and a new one is stored where approval is needed. Throws registration_refused, too_many_waiting.
 */
export async function holdForApproval(
  tx: Transaction,
  org: IssuingOrg,
  request: Request,
  { keys, grant, kept, actor, now }: Asking,
): Promise<Held | undefined> {
  const digest = digestOf(request, keys, grant);
  const isSame = kept?.digest === digest;
  if (isSame && kept.state === "refused") {
    throw new AppError("registration_refused", "An administrator has refused this machine.");
  }
  const needsNoApproval =
    org.nodeApproval === "none" || (org.nodeApproval === "unapproved" && grant.isApproved);
  // The use of the same token passes to this registration.
  if (kept !== undefined && kept.tokenId !== grant.tokenId) await releaseUse(tx, kept.tokenId);
  if (isSame && kept.state === "waiting" && !needsNoApproval) {
    await noteAsked(tx, kept, grant, now);
    return { waiting: waitingAnswer(kept, now), isNew: false };
  }
  if (kept !== undefined) {
    await requests.delete(tx, { id: kept.id });
    if (!isSame) await recordEnd(tx, kept, "changed", now);
  }
  if (needsNoApproval || (isSame && kept.state === "approved")) return undefined;
  const stored = await storeRequest(tx, org, request, { keys, grant, digest, actor, now });
  return { waiting: waitingAnswer(stored, now), isNew: true };
}

/** The machine repeats its request, maybe with another token, whose use the request holds from now on. */
async function noteAsked(
  tx: Transaction,
  { id, tokenId, askedAt }: RegistrationRequestRow,
  grant: Grant,
  now: number,
): Promise<void> {
  const change = {
    ...(tokenId === grant.tokenId ? {} : { tokenId: grant.tokenId }),
    ...((askedAt ?? 0) > now - askedEveryMs ? {} : { askedAt: now }),
  };
  if (Object.keys(change).length > 0) await requests.update(tx, { id }, change);
}

/** Everything that the decision of an administrator, or of the user who confirms a machine, depends on. */
export function digestOf(
  { name, is_lighthouse, is_relay, public_ip, ip_address }: Wishes,
  keys: Keys,
  { groups, ownerId, boundTo, ephemeralSilenceS, isPhone }: Covered,
): string {
  const covered = [
    [keys.hostPublicKey, keys.csrKeySha256, name, groups.toSorted(), ownerId, boundTo],
    [
      is_lighthouse ?? null,
      is_relay ?? null,
      public_ip ?? null,
      ip_address ?? null,
      ephemeralSilenceS !== null,
    ],
    // For phones alone, so that the digests that are stored of other machines stay the same.
    ...(isPhone === true ? ["phone"] : []),
  ];
  return sha256Hex(JSON.stringify(covered));
}

function waitingAnswer({ createdAt }: RegistrationRequestRow, now: number): RegisterWaiting {
  return { state: "waiting", retry_after: now - createdAt < firstMs ? firstEveryS : laterEveryS };
}

async function storeRequest(
  tx: Transaction,
  org: IssuingOrg,
  request: Request,
  {
    keys,
    grant,
    digest,
    actor,
    now,
  }: { keys: Keys; grant: Grant; digest: string; actor: Actor; now: number },
): Promise<RegistrationRequestRow> {
  await checkRoom(tx, org, grant.ownerId, now);
  const row = await requests.insertReturning(tx, {
    orgId: org.id,
    digest,
    name: request.name,
    ...keys,
    groups: grant.groups,
    isLighthouse: request.is_lighthouse === true,
    isRelay: request.is_relay ?? (request.is_lighthouse === true && org.lighthousesRelay),
    ownerId: grant.ownerId,
    tokenId: grant.tokenId,
    platform: request.platform ?? null,
    agentVersion: request.version ?? null,
    seenFrom: request.seenFrom,
    createdAt: now,
    expiresAt: now + lifetimeMs,
    askedAt: now,
  });
  await recordRequest(tx, row, "registration.waiting", actor, now);
  return row;
}

/** Throws too_many_waiting. */
async function checkRoom(
  tx: Transaction,
  org: IssuingOrg,
  ownerId: number | null,
  now: number,
): Promise<void> {
  const sql = `SELECT count(*) AS n FROM registration_requests WHERE org_id = $1 ${answerable(now)}`;
  const ownCount =
    ownerId === null ? 0 : await queryNumber(tx, `${sql} AND owner_id = $2`, [org.id, ownerId]);
  if (ownCount < maxOfOneUser && (await queryNumber(tx, sql, [org.id])) < maxOfOrganization) return;
  const waitingMachines =
    ownCount < maxOfOneUser
      ? `${maxOfOrganization} machines of this organization`
      : `${maxOfOneUser} machines of yours`;
  throw new AppError("too_many_waiting", `${waitingMachines} wait for approval already.`, {
    hint: `An administrator approves or refuses some of them: \`${brand.executable} admin registration list ${org.slug}\`.`,
  });
}

/** Approves or refuses a request that waits, or refuses one that `was` approved. Throws not_found, conflict. */
export async function answerRequest(
  { db, system }: Store,
  { id: orgId }: Org,
  id: number,
  { state, was = "waiting" }: { state: "approved" | "refused"; was?: "waiting" | "approved" },
  actor: Actor,
): Promise<void> {
  await writeAsAdmin(db, orgId, actor, async (tx) => {
    const now = system.now();
    const sql = `SELECT ${requests.select()} FROM registration_requests WHERE org_id = $1 AND id = $2`;
    const request = await queryOne(tx, requests, sql, [orgId, id]);
    if (request === undefined) {
      throw new AppError(
        "not_found",
        "There is no such registration: it has ended, or its machine has asked anew.",
      );
    }
    const isOpen = (await tx.get(`${sql} ${answerable(now, was)}`, [orgId, id])) !== undefined;
    if (!isOpen) throw notOpen(request, was);
    const isRefused = state === "refused";
    if (isRefused) await releaseUse(tx, request.tokenId);
    const tokenId = isRefused ? null : request.tokenId;
    await requests.update(tx, { id }, { state, tokenId, expiresAt: now + lifetimeMs });
    await recordRequest(tx, request, `registration.${state}`, actor, now);
  });
}

function notOpen({ state }: RegistrationRequestRow, was: "waiting" | "approved"): AppError {
  if (was === "approved" && state === "waiting") {
    return new AppError("conflict", "It is not approved: it still waits for an answer, or its time is over.");
  }
  const why = state === "waiting" ? "Its time is over, or its token was revoked" : `It was ${state} already`;
  return new AppError("conflict", `This registration does not wait any more. ${why}.`);
}

const due = computed({ id: integer(), orgId: integer() });
const isEnded =
  "(r.expires_at <= $1 OR r.token_id IN (SELECT t.id FROM registration_tokens t WHERE t.revoked_at IS NOT NULL))";
const ended = `SELECT r.id, r.org_id FROM registration_requests r WHERE ${isEnded} ORDER BY r.org_id, r.id LIMIT 100`;
const stillEnded = `SELECT ${requests.select("r")} FROM registration_requests r WHERE r.id = $2 AND ${isEnded}`;

/** Deletes requests that expired, or whose token was revoked. */
export async function endRequests({ db, system }: Store): Promise<void> {
  const now = system.now();
  await forAll(await queryAll(db, due, ended, [now]), orgOf, ({ id, orgId }) =>
    db.writeFor({ org: orgId }, async (tx) => {
      // Read again: the request may have been answered meanwhile, which prolongs it, or its machine has another
      // token.
      const row = await queryOne(tx, requests, stillEnded, [now, id]);
      if (row !== undefined)
        await endRequest(tx, row, row.expiresAt <= now ? "expired" : "token revoked", now);
    }),
  );
}

async function endRequest(
  tx: Transaction,
  row: RegistrationRequestRow,
  reason: "expired" | "token revoked",
  now: number,
): Promise<void> {
  await requests.delete(tx, { id: row.id });
  await releaseUse(tx, row.tokenId);
  await recordEnd(tx, row, reason, now);
}

/** Records the end of a request. A refusal has its event already. */
async function recordEnd(
  tx: Transaction,
  row: RegistrationRequestRow,
  reason: string,
  now: number,
): Promise<void> {
  if (row.state !== "refused") await recordRequest(tx, row, "registration.ended", ourselves, now, { reason });
}

/** Records an event about the request. */
async function recordRequest(
  tx: Transaction,
  row: RegistrationRequestRow,
  type: EventType,
  actor: Actor,
  at: number,
  more: Record<string, string> = {},
): Promise<void> {
  const subject = `registration/${row.id}`;
  await record(tx, { orgId: row.orgId, at, type, actor, subject, after: { ...detailsOf(row), ...more } });
}
