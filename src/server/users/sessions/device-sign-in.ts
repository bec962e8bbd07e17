// Sign-in of the command line on a machine without a browser (RFC 8628). The machine shows a code; a signed-in user types it
// in a browser on any machine, sees which machine asks, and approves with a fresh factor. The code is typed, never part of a
// link: a link in a message approves nothing.

import type { DeviceRequest, DeviceSignIn } from "../../../api/command-line.ts";
import { AppError } from "../../../base/errors.ts";
import { formatTime } from "../../../base/quantities.ts";
import { hashToken, makeOpaqueToken } from "../../../pki/opaque.ts";
import type { TokenPair } from "../../../protocol/sign-in.ts";
import { record, type Actor } from "../../audit/record.ts";
import { networkOf } from "../../../base/ip.ts";
import type { Throttle } from "../../http/throttle.ts";
import type { ServerOptions } from "../../options.ts";
import type { Reader } from "../../store/database.ts";
import { computed, queryOne, text } from "../../store/table.ts";
import { deviceRequests, type DeviceRequestRow } from "../../store/tables/sessions.ts";
import { isKnownNetwork } from "../../store/tables/organizations.ts";
import { users } from "../../store/tables/users.ts";
import { providerOf, sessionIdOf, stillSignedIn } from "./browser-sessions.ts";
import type { UserCaller } from "../../http/route.ts";
import { userEvent } from "../users.ts";
import { makeRoom } from "../sign-in/waiting-room.ts";
import type { Sessions } from "./sessions.ts";

type Services = Pick<ServerOptions, "db" | "system" | "publicUrl"> & {
  throttle: Throttle;
  sessions: Pick<Sessions, "start">;
};

const lifetimeMs = 5 * 60_000;
const intervalS = 5;
/** No vowels, so that no words come up, and no letters that look alike. */
const letters = "BCDFGHJKLMNPQRSTVWXZ";
/** 43 bits. */
const codeLength = 10;

/** Called by the machine, without credentials. Throws throttled. */
export async function beginDeviceSignIn(
  { db, system, publicUrl, throttle }: Services,
  machine: string,
  address: string,
): Promise<DeviceSignIn> {
  const network = networkOf(address);
  throttle.check("devices", network);
  throttle.count("devices", network);
  const deviceCode = makeOpaqueToken(system.random);
  const userCode = makeUserCode(system);
  const now = system.now();
  await db.write(async (tx) => {
    await tx.run("DELETE FROM device_requests WHERE expires_at <= $1", [now]);
    await makeRoom(tx, "device_requests", address);
    const hashes = { deviceHash: hashToken(deviceCode), userHash: hashOfTyped(userCode) };
    const times = { createdAt: now, expiresAt: now + lifetimeMs };
    await deviceRequests.insert(tx, { ...hashes, machine, address, ...times });
  });
  return {
    device_code: deviceCode,
    user_code: `${userCode.slice(0, 5)}-${userCode.slice(5)}`,
    verification_uri: `${publicUrl}/console/-/command-line/`,
    expires_in: lifetimeMs / 1000,
    interval: intervalS,
  };
}

/** Ten random letters, also for the address of an enrollment. */
export function makeUserCode({ random }: Pick<ServerOptions["system"], "random">): string {
  let code = "";
  while (code.length < codeLength) {
    const [byte = 255] = random(1);
    // 240 is the greatest multiple of 20: each letter is as likely as the others.
    if (byte < 240) code += letters[byte % letters.length];
  }
  return code;
}

/** As users type it: any case, with spaces and dashes. */
const hashOfTyped = (code: string) => hashToken(code.toUpperCase().replaceAll(/[\s-]/g, ""));

/** Throws not_found for a code that no machine shows, or throttled after several of them. */
export async function findDeviceRequest(
  services: Pick<Services, "db" | "system" | "throttle">,
  { userId }: UserCaller,
  code: string,
): Promise<DeviceRequest> {
  const { db, system } = services;
  const { machine, address, createdAt, expiresAt } = await waitingRequest(services, userId, code);
  return {
    machine,
    address,
    is_known_network: await isKnownNetwork(db, { userId, network: networkOf(address), now: system.now() }),
    created_at: formatTime(createdAt),
    expires_at: formatTime(expiresAt),
  };
}

/** The undecided request of the code. Wrong codes of a user are counted. */
async function waitingRequest(
  { db, system, throttle }: Pick<Services, "db" | "system" | "throttle">,
  userId: number,
  code: string,
): Promise<DeviceRequestRow> {
  const key = String(userId);
  throttle.check("codes", key);
  const found = await deviceRequests.find(db, { userHash: hashOfTyped(code), userId: null });
  if (found !== undefined && found.expiresAt > system.now()) return found;
  throttle.count("codes", key);
  throw noSuchCode();
}

/** Once: approved or refused by the user who typed the code. Throws as findDeviceRequest. */
export async function decideDeviceRequest(
  services: Pick<Services, "db" | "system" | "throttle">,
  caller: UserCaller,
  { code, isApproved }: { code: string; isApproved: boolean },
  actor: Actor,
): Promise<void> {
  const { db, system } = services;
  const { userId, email } = caller;
  const { id, machine, address } = await waitingRequest(services, userId, code);
  await db.write(async (tx) => {
    const now = system.now();
    if (isApproved) await requirePermitted(tx, userId);
    // The user may have been disabled since the request was admitted.
    if ((await users.find(tx, { id: userId, isActive: true })) === undefined) throw noSuchCode();
    const { providerId = null, endsAt = null } = (await providerOf(tx, caller)) ?? {};
    const origin = { providerId, providerUntil: endsAt, sessionId: sessionIdOf(caller) ?? null };
    const decision = { userId, decidedAt: now, isApproved: isApproved ? 1 : 0, ...origin };
    if ((await deviceRequests.update(tx, { id, userId: null }, decision)) === 0) throw noSuchCode();
    if (!isApproved) return;
    const after = { machine, address };
    await record(tx, { ...userEvent(system, actor, email), type: "user.device_approved", after });
  });
}

/**
 * Called by the machine, every few seconds. The tokens of the user who approved, without a proof of a second factor. Throws
 * sign_in_waiting, throttled with the time to wait, sign_in_refused, sign_in_expired or permission_denied.
 */
export async function pollDeviceSignIn(
  { db, system, sessions }: Services,
  deviceCode: string,
): Promise<TokenPair> {
  const deviceHash = hashToken(deviceCode);
  const now = system.now();
  const found = await deviceRequests.find(db, { deviceHash });
  if (found === undefined || found.expiresAt <= now) throw expired();
  const { id, userId, isApproved, decidedAt, polledAt, machine, address } = found;
  const { providerId, providerUntil, sessionId } = found;
  if (userId === null) {
    // A little less than the interval: clocks and networks are not exact.
    const isEarly = polledAt !== null && now - polledAt < (intervalS - 1) * 1000;
    if (isEarly) throw new AppError("throttled", "Ask again in 5 seconds.", { retryAfter: intervalS });
    await db.writeFor("rows", (tx) => deviceRequests.update(tx, { id }, { polledAt: now }));
    throw new AppError("sign_in_waiting", "The code has not been typed in a browser yet.");
  }
  // If two polls come at once, one of them gets the session.
  const taken = await db.writeFor("rows", (tx) => deviceRequests.delete(tx, { id }));
  if (taken === 0) throw expired();
  if (isApproved !== 1) throw new AppError("sign_in_refused", "The sign-in was refused in the browser.");
  // The approval ends with the session of the browser that approved.
  const user = await stillSignedIn(db, { userId, at: decidedAt ?? 0, sessionId });
  if (user === undefined) throw expired();
  // An organization may have forbidden it since the approval.
  await requirePermitted(db, userId);
  const by = providerId === null ? undefined : { providerId, endsAt: providerUntil ?? 0 };
  return sessions.start(userId, user.passwordHash, { address, device: machine }, { by });
}

const slugPick = computed({ slug: text() });

/** Throws permission_denied if an organization of the user forbids it: the session would work in all of them. */
async function requirePermitted(reader: Reader, userId: number): Promise<void> {
  const sql = `SELECT o.slug FROM memberships m JOIN organizations o ON o.id = m.org_id
    WHERE m.user_id = $1 AND o.device_codes = 0 AND o.deleted_at IS NULL ORDER BY o.slug`;
  const found = await queryOne(reader, slugPick, sql, [userId]);
  if (found === undefined) return;
  throw new AppError("permission_denied", `The organization ${found.slug} forbids sign-in by a code.`, {
    hint: "Sign in with a browser on the machine itself, or give it a service token.",
  });
}

function noSuchCode(): AppError {
  return new AppError("not_found", "No machine shows this code, or it has ended.", {
    hint: "Check the code. It ends after five minutes: start the command again for a new one.",
  });
}

function expired(): AppError {
  return new AppError("sign_in_expired", "The time for this sign-in is over.", {
    hint: "Start the command again.",
  });
}
