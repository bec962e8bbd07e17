// A machine joins without a key: it shows an address and four words, and a signed-in user types the words in a browser. The
// page shows which machine asks, and never the words: a link in a message enrolls nothing. The confirmation makes the
// machine's own secret a registration token for one use, bound to its keys, name and groups; from there it registers like
// every other machine, approval included.

import type {
  Enrollment,
  EnrollmentRequest,
  EnrollmentState,
  NewEnrollment,
} from "../../../api/enrollments.ts";
import { AppError } from "../../../base/errors.ts";
import { formatTime } from "../../../base/quantities.ts";
import { areWordsOfKey } from "../../../protocol/key-words.ts";
import { fingerprintOfHostKey } from "../../../pki/keys.ts";
import { hashToken, makeOpaqueToken } from "../../../pki/opaque.ts";
import { RegisterRequest } from "../../../protocol/registration.ts";
import { record, type Actor } from "../../audit/record.ts";
import { networkOf } from "../../../base/ip.ts";
import type { UserCaller, Org } from "../../http/route.ts";
import type { Throttle } from "../../http/throttle.ts";
import type { ServerOptions } from "../../options.ts";
import { makeUserCode } from "../../users/sessions/device-sign-in.ts";
import { makeRoom } from "../../users/sign-in/waiting-room.ts";
import type { Transaction } from "../../store/database.ts";
import { nameTaken } from "../../store/nodes.ts";
import { computed, integer, queryOne, text } from "../../store/table.ts";
import { enrollments, type EnrollmentRow, registrationTokens } from "../../store/tables/joining.ts";
import { isKnownNetwork } from "../../store/tables/organizations.ts";
import { nodes } from "../../store/tables/nodes.ts";
import { refuseHeldName } from "../lifecycle/refuse-held-names.ts";
import { readKeys, refusePrivateKeys, type Keys } from "./register-request.ts";
import type { Grant } from "./registration-credential.ts";
import { digestOf } from "./registration-requests.ts";
import { organizationsFor, requireEnrolling, requireMayEnroll } from "./self-enrollment.ts";

type Services = Pick<ServerOptions, "db" | "system" | "publicUrl"> & { throttle: Throttle };

const lifetimeMs = 10 * 60_000;
/** How often the machine asks. */
const intervalS = 2;
/** Wrong words that are typed for one request, before it ends. Four words hold 44 bits. */
const maxTries = 5;
/**
 * The value of `tries` in a request that wrong words have ended. One more than `maxTries`: a request with that many is not ended
 * yet, since its last try is still compared.
 */
const refusedTries = maxTries + 1;

/** Called by the machine, without credentials. Throws throttled, validation_failed. */
export async function beginEnrollment(
  { db, system, publicUrl, throttle }: Services,
  request: EnrollmentRequest,
  address: string,
): Promise<NewEnrollment> {
  const network = networkOf(address);
  throttle.check("enrollments", network);
  throttle.count("enrollments", network);
  refusePrivateKeys(request);
  const keys = await readKeys(request);
  const token = makeOpaqueToken(system.random);
  const code = makeUserCode(system);
  const now = system.now();
  const { name, machine, platform = null, organization: slug = null } = request;
  await db.write(async (tx) => {
    await tx.run("DELETE FROM enrollments WHERE expires_at <= $1", [now]);
    await makeRoom(tx, "enrollments", address);
    const times = { createdAt: now, expiresAt: now + lifetimeMs };
    const asked = { name, machine, platform, slug, ...keys, address, ...times };
    await enrollments.insert(tx, { code, tokenHash: hashToken(token), ...asked });
  });
  return {
    enrollment_token: token,
    verification_uri: `${publicUrl}/console/-/join/?request=${code}`,
    expires_in: lifetimeMs / 1000,
    interval: intervalS,
  };
}

const slugPick = computed({ slug: text() });

/** Whether a user has confirmed the machine. Throws enrollment_ended. */
export async function pollEnrollment(
  { db, system }: Pick<Services, "db" | "system">,
  token: string,
): Promise<EnrollmentState> {
  const found = await enrollments.find(db, { tokenHash: hashToken(token) });
  if (found === undefined || found.expiresAt <= system.now()) {
    throw new AppError("enrollment_ended", "No user confirmed this machine in time.", {
      hint: "Start the command again.",
    });
  }
  if (found.orgId === null) {
    if (found.tries < refusedTries) return { state: "waiting", organization: null };
    throw new AppError("enrollment_ended", `Wrong words were typed for this machine ${maxTries} times.`, {
      hint: "Start the command again, and type the words that it shows.",
    });
  }
  const sql = "SELECT slug FROM organizations WHERE id = $1";
  const org = await queryOne(db, slugPick, sql, [found.orgId]);
  return { state: "confirmed", organization: org?.slug ?? null };
}

/** The machine behind an address of the page. Throws not_found, or throttled after several codes that do not exist. */
export async function findEnrollment(
  services: Pick<Services, "db" | "system" | "throttle">,
  { userId }: UserCaller,
  code: string,
): Promise<Enrollment> {
  const { db, system } = services;
  const found = await waitingEnrollment(services, userId, code);
  const organizations = (await organizationsFor(db, userId)).filter(
    ({ slug }) => found.slug === null || slug === found.slug,
  );
  if (found.slug !== null && organizations.length === 0) throw noSuchRequest();
  const network = networkOf(found.address);
  return {
    name: found.name,
    machine: found.machine,
    platform: found.platform,
    address: found.address,
    is_known_network: await isKnownNetwork(db, { userId, network, now: system.now() }),
    created_at: formatTime(found.createdAt),
    expires_at: formatTime(found.expiresAt),
    organizations,
  };
}

/** The unconfirmed request of the code. Wrong codes of a user are counted. */
async function waitingEnrollment(
  { db, system, throttle }: Pick<Services, "db" | "system" | "throttle">,
  userId: number,
  code: string,
): Promise<EnrollmentRow> {
  const key = String(userId);
  throttle.check("codes", key);
  const found = await enrollments.find(db, { code: code.trim().toUpperCase(), orgId: null });
  if (found !== undefined && found.expiresAt > system.now() && found.tries < maxTries) return found;
  throttle.count("codes", key);
  throw noSuchRequest();
}

/**
 * Once: makes the machine's secret a registration token of the user. Throws not_found, throttled, invalid_code for wrong
 * words, permission_denied where the organization does not allow it, name_taken, name_held.
 */
export async function confirmEnrollment(
  services: Services,
  org: Org,
  caller: UserCaller,
  { code, words }: { code: string; words: string },
  actor: Actor,
): Promise<void> {
  const { db, system } = services;
  const enrollment = await waitingEnrollment(services, caller.userId, code);
  if (enrollment.slug !== null && enrollment.slug !== org.slug) throw noSuchRequest();
  await requireMayEnroll(db, org, caller.userId);
  await requireWords(services, org, caller, { enrollment, words, actor });
  await db.writeFor({ org: org.id }, async (tx) => {
    const now = system.now();
    // The user may have been removed or demoted since the request was admitted.
    await requireMayEnroll(tx, org, caller.userId);
    await requireFreeNodeName(tx, org, enrollment.name, now);
    const expiresAt = now + lifetimeMs;
    // If a confirmation and a refusal come at the same time, the first one counts: the machine may have got its answer.
    const confirmation = `UPDATE enrollments SET org_id = $2, expires_at = $3
      WHERE id = $1 AND org_id IS NULL AND tries < ${refusedTries}`;
    if ((await tx.run(confirmation, [enrollment.id, org.id, expiresAt])) === 0) throw noSuchRequest();
    const token = await registrationTokens.insertReturning(tx, {
      orgId: org.id,
      name: enrollment.name,
      tokenHash: enrollment.tokenHash,
      uses: 1,
      expiresAt,
      createdBy: caller.userId,
      createdAt: now,
      // The token registers this machine alone, with this name.
      boundDigest: digestOf({ name: enrollment.name }, keysOf(enrollment), grantOf(caller.userId)),
    });
    const subject = `registration_token/${token.id}`;
    const after = eventDetails(enrollment);
    await record(tx, { orgId: org.id, at: now, type: "enrollment.confirmed", actor, subject, after });
  });
}

/** A self-service node: of its user, ordinary, in no group. */
function grantOf(ownerId: number) {
  return { groups: [], ownerId, boundTo: null, ephemeralSilenceS: null };
}

const keysOf = ({ hostPublicKey, csrKeySha256 }: EnrollmentRow): Keys => ({ hostPublicKey, csrKeySha256 });

/** The content of events about a request. */
function eventDetails({ name, hostPublicKey, machine, address }: EnrollmentRow) {
  return { name, key_sha256: fingerprintOfHostKey(hostPublicKey), machine, seen_from: address };
}

const triesPick = computed({ tries: integer() });

/**
 * Compares the words. Each try is counted before the comparison, so that parallel tries are no more than the maximum together. A
 * try with the right words is not counted in the end: the confirmation may fail for another reason, and the user tries again.
 */
async function requireWords(
  { db, system, throttle }: Services,
  org: Org,
  { userId }: UserCaller,
  { enrollment, words, actor }: { enrollment: EnrollmentRow; words: string; actor: Actor },
): Promise<void> {
  const count = `UPDATE enrollments SET tries = tries + 1 WHERE id = $1 AND tries < ${maxTries} AND org_id IS NULL
    RETURNING tries`;
  const counted = await db.writeFor("rows", (tx) => queryOne(tx, triesPick, count, [enrollment.id]));
  if (counted === undefined) throw noSuchRequest();
  if (areWordsOfKey(words, fingerprintOfHostKey(enrollment.hostPublicKey))) {
    const giveBack = `UPDATE enrollments SET tries = tries - 1 WHERE id = $1 AND tries < ${refusedTries}`;
    await db.writeFor("rows", (tx) => tx.run(giveBack, [enrollment.id]));
    return;
  }
  throttle.count("codes", String(userId));
  const left = maxTries - counted.tries;
  if (left > 0) {
    throw new AppError("invalid_code", "These are not the words that the machine shows.", {
      errors: { words: [`Wrong words. ${left} more ${left === 1 ? "try" : "tries"}.`] },
    });
  }
  await db.writeFor({ org: org.id }, async (tx) => {
    const refusal = { tries: refusedTries };
    if ((await enrollments.update(tx, { id: enrollment.id, orgId: null }, refusal)) === 0)
      throw noSuchRequest();
    await record(tx, {
      orgId: org.id,
      at: system.now(),
      type: "enrollment.refused",
      actor,
      subject: `enrollment/${enrollment.id}`,
      after: { ...eventDetails(enrollment), reason: "wrong words" },
    });
  });
  throw new AppError("invalid_code", "Wrong words were typed too often: this request has ended.", {
    hint: "Start the command on the machine again, and type the words that it shows.",
  });
}

/**
 * Refuses a name that a node has, or that is held. The registration checks it again, but only here does the user see it. Throws
 * name_taken, name_held.
 */
export async function requireFreeNodeName(
  tx: Transaction,
  org: Org,
  name: string,
  now: number,
): Promise<void> {
  const sql = `SELECT ${nodes.pick("registeredAt").select()} FROM nodes WHERE org_id = $1 AND name = $2 AND state <> 'revoked'`;
  const holder = await queryOne(tx, nodes.pick("registeredAt"), sql, [org.id, name]);
  if (holder !== undefined) throw nameTaken(name, { isUnclaimed: holder.registeredAt === null });
  await refuseHeldName(tx, org, name, now);
}

/** At the registration: the user confirmed exactly this machine, and may still do so. Throws conflict, token_not_valid. */
export async function requireConfirmedMachine(
  tx: Transaction,
  org: { id: number },
  request: RegisterRequest,
  { keys, grant }: { keys: Keys; grant: Grant },
): Promise<void> {
  if (digestOf(request, keys, grant) !== grant.boundDigest) {
    throw new AppError("conflict", "The user confirmed another name, or a machine with other keys.", {
      hint: "Start the command again, and confirm the machine as it is now.",
    });
  }
  await requireEnrolling(tx, org.id, grant.ownerId);
}

function noSuchRequest(): AppError {
  return new AppError("not_found", "No machine waits here, or its time is over.", {
    hint: "Open the address that the machine shows. It ends after ten minutes: start the command there again.",
  });
}
