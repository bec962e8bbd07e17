// Passkeys: registration, and the proof of one at sign-in or for a fresh second factor. A passkey with user
// verification is two factors: the device, and the user's finger, face or PIN.

import { createPublicKey, type JsonWebKeyInput } from "node:crypto";
import type { AuthenticationResponseJSON } from "@simplewebauthn/server";
import * as v from "valibot";
import type { Assertion, Passkey, Registration } from "../../../api/factors/passkeys.ts";
import { brand } from "../../../brand.ts";
import { AppError } from "../../../base/errors.ts";
import { formatTime, timeOrNull } from "../../../base/quantities.ts";
import { parseAddress } from "../../../base/ip.ts";
import { record, type Actor } from "../../audit/record.ts";
import type { ServerOptions } from "../../options.ts";
import { ifNotUnique, type Reader, type Transaction } from "../../store/database.ts";
import { queryAll } from "../../store/table.ts";
import { passkeys, type PasskeyRow } from "../../store/tables/users.ts";
import { requireRemainingFactor } from "./own-factors.ts";
import { replaceRecoveryCodes } from "./recovery-codes.ts";
import { isChallenge, makeChallenge, useChallenge } from "./passkey-challenges.ts";
import { userEvent } from "../users.ts";
import { methodsOf } from "./second-factor.ts";
import { markProven, keyOfSignIn } from "./step-up.ts";
import type { UserCaller } from "../../http/route.ts";
import { jsonTextOf } from "../../../protocol/values.ts";

export type PasskeyServices = Pick<ServerOptions, "db" | "system" | "secretKey" | "publicUrl">;
type User = { userId: number; email: string };

/** What the browser says of the page. The library reads the rest of it. */
export const ClientData = v.object({ crossOrigin: v.optional(v.boolean()) });

/** The host of the public URL. Throws conflict for an IP address, which passkeys cannot be bound to. */
function rpIdOf(publicUrl: string): string {
  const { hostname } = new URL(publicUrl);
  if (parseAddress(hostname.replace(/^\[(.*)\]$/, "$1")) === undefined) return hostname;
  throw new AppError(
    "conflict",
    `Passkeys need a host name, and this control plane is at the address ${hostname}.`,
    {
      hint: "Start it with a name: `--public-url https://vpn.example.org`.",
    },
  );
}

/** What the passkey stores of the user. The browser sends it back as `userHandle`. */
const handleOf = (userId: number) => new TextEncoder().encode(`user ${userId}`);
const purposeOfAdding = ({ userId, signIn }: UserCaller) => `add ${userId} ${keyOfSignIn(signIn)}`;

/** What the browser needs to make a passkey for the user. */
export async function registrationOptions(services: PasskeyServices, user: UserCaller) {
  const { generateRegistrationOptions } = await import("@simplewebauthn/server");
  const present = await passkeys.all(services.db, { userId: user.userId });
  return generateRegistrationOptions({
    rpName: brand.title,
    rpID: rpIdOf(services.publicUrl),
    userName: user.email,
    userID: handleOf(user.userId),
    challenge: bytesOf(await makeChallenge(services, purposeOfAdding(user))),
    attestationType: "none",
    excludeCredentials: present.map(({ credentialId, transports }) => ({
      id: credentialId,
      transports: transports === "" ? [] : transports.split(" "),
    })),
    authenticatorSelection: { residentKey: "required", userVerification: "required" },
  });
}

/** The library does not check this: our pages are in no frames, so a passkey from a frame was made for another site. */
function refuseFramed({ response }: { response: { clientDataJSON: string } }): void {
  const text = Buffer.from(response.clientDataJSON, "base64url").toString();
  const data = v.safeParse(jsonTextOf(ClientData), text);
  if (!data.success || data.output.crossOrigin === true) throw notAccepted();
}

/** Returns the passkey, and recovery codes if it is the user's first second factor. */
export async function addPasskey(
  services: PasskeyServices,
  user: UserCaller,
  { name, response }: { name: string; response: Registration },
  actor: Actor,
): Promise<{ passkey: Passkey; recovery_codes: string[] }> {
  const { db, system, publicUrl } = services;
  const rpId = rpIdOf(publicUrl);
  const { challenge, credential } = await verifiedRegistration(services, user, response, rpId);
  const { id, publicKey, counter } = credential;
  const added = db.write(async (tx) => {
    const now = system.now();
    await useChallenge(tx, challenge, now);
    const isFirst = (await methodsOf(tx, user.userId)).length === 0;
    const row = await passkeys.insertReturning(tx, {
      userId: user.userId,
      credentialId: id,
      publicKey: Buffer.from(publicKey).toString("base64url"),
      counter,
      transports: response.response.transports.join(" "),
      name,
      rpId,
      createdAt: now,
    });
    await markProven(tx, user, now);
    await record(tx, {
      ...userEvent(system, actor, user.email),
      type: "user.factor_added",
      after: { passkey: name },
    });
    const recovery_codes = isFirst ? await replaceRecoveryCodes(tx, system, user.userId) : [];
    return { passkey: showPasskey(row, rpId), recovery_codes };
  });
  const alreadyKnown = (cause: unknown) =>
    new AppError("conflict", "This passkey is registered already.", { cause });
  return added.catch(ifNotUnique(alreadyKnown));
}

/** The new credential, and the challenge that its use must count for. Throws if the browser's answer does not verify. */
async function verifiedRegistration(
  services: PasskeyServices,
  user: UserCaller,
  response: Registration,
  expectedRPID: string,
) {
  const { verifyRegistrationResponse } = await import("@simplewebauthn/server");
  refuseFramed(response);
  let challenge = "";
  const { registrationInfo } = await verifyRegistrationResponse({
    // No extension is asked for, and the API takes no results of any; the library's type has the field.
    response: { ...response, clientExtensionResults: {} },
    expectedChallenge: async (encoded) => {
      challenge = textOf(encoded);
      return isChallenge(services, challenge, purposeOfAdding(user));
    },
    expectedOrigin: new URL(services.publicUrl).origin,
    expectedRPID,
    requireUserVerification: true,
  }).catch(refused);
  if (registrationInfo === undefined) throw notAccepted();
  const { credential } = registrationInfo;
  await requireUsableKey(credential.publicKey);
  return { challenge, credential };
}

/**
 * Refuses keys that can never be proved, which would count as a second factor. The library checks only the algorithm:
 * key type (1), algorithm (3) and curve (-1) have to belong together, and the key has to be valid (RFC 9053). Every
 * algorithm that `registrationOptions` offers has to be here.
 */
async function requireUsableKey(publicKey: Uint8Array<ArrayBuffer>): Promise<void> {
  const { cose, decodeCredentialPublicKey } = await import("@simplewebauthn/server/helpers");
  const key: Pick<Map<number, unknown>, "get"> = decodeCredentialPublicKey(publicKey);
  const text = (at: number) => {
    const value = key.get(at);
    return value instanceof Uint8Array ? Buffer.from(value).toString("base64url") : "";
  };
  const { EC2, OKP, RSA, AKP } = cose.COSEKTY;
  // The library offers it first, and newer browsers take it. Not in the table: the type has no `pub`.
  const latticeKey = { kty: "AKP", alg: "ML-DSA-44", pub: text(-1) };
  const jwks: Record<string, JsonWebKeyInput["key"]> = {
    [`${EC2} -7 1`]: { kty: "EC", crv: "P-256", x: text(-2), y: text(-3) },
    [`${OKP} -8 6`]: { kty: "OKP", crv: "Ed25519", x: text(-2) },
    [`${RSA} -257`]: { kty: "RSA", n: text(-1), e: text(-2) },
    [`${AKP} -48`]: latticeKey,
  };
  // Keys of RSA and AKP have no curve: -1 is a part of the key, in bytes.
  const kind = [1, 3, -1].map((at) => key.get(at)).filter((each) => typeof each === "number");
  const jwk = jwks[kind.join(" ")];
  if (jwk === undefined) throw notAccepted();
  try {
    createPublicKey({ key: jwk, format: "jwk" });
  } catch (error) {
    throw notAccepted(error);
  }
}

function showPasskey({ id, name, rpId, createdAt, lastUsedAt }: PasskeyRow, presentRpId: string) {
  return {
    id,
    name,
    is_usable: rpId === presentRpId,
    created_at: formatTime(createdAt),
    last_used_at: timeOrNull(lastUsedAt),
  };
}

export async function listPasskeys({ db, publicUrl }: PasskeyServices, userId: number) {
  const { hostname } = new URL(publicUrl);
  return (await passkeys.all(db, { userId })).map((row) => showPasskey(row, hostname));
}

/** Throws not_found, or conflict for the last factor of a user who needs it. */
export async function removePasskey(
  { db, system }: PasskeyServices,
  { userId, email }: User,
  id: number,
  actor: Actor,
): Promise<void> {
  await db.write(async (tx) => {
    const passkey = await passkeys.find(tx, { id, userId });
    if (passkey === undefined) throw new AppError("not_found", "You have no such passkey.");
    await passkeys.delete(tx, { id, userId });
    await requireRemainingFactor(tx, userId);
    const before = { passkey: passkey.name };
    await record(tx, { ...userEvent(system, actor, email), type: "user.factor_removed", before });
  });
}

/** `purpose`: `sign in`, or a fresh proof for one sign-in. `userId`: only passkeys of this user. */
export async function assertionOptions(services: PasskeyServices, purpose: string, userId?: number) {
  const { generateAuthenticationOptions } = await import("@simplewebauthn/server");
  const own = userId === undefined ? [] : await passkeys.all(services.db, { userId });
  return generateAuthenticationOptions({
    rpID: rpIdOf(services.publicUrl),
    challenge: bytesOf(await makeChallenge(services, purpose)),
    userVerification: "required",
    allowCredentials: own.map(({ credentialId }) => ({ id: credentialId })),
  });
}

/** Returns the user of the passkey. Throws invalid_credentials. */
export async function proveAssertion(
  services: PasskeyServices,
  response: Assertion,
  purpose: string,
): Promise<number> {
  const { db, system, publicUrl } = services;
  const passkey = await passkeys.find(db, { credentialId: response.id });
  const handle = response.response.userHandle;
  if (passkey === undefined) throw notAccepted();
  if (typeof handle === "string" && handle !== Buffer.from(handleOf(passkey.userId)).toString("base64url"))
    throw notAccepted();
  refuseFramed(response);
  const { verifyAuthenticationResponse } = await import("@simplewebauthn/server");
  // The challenge is known only inside the library's call, and counts as used only after it.
  let answeredChallenge = "";
  const { verified, authenticationInfo } = await verifyAuthenticationResponse({
    response: { ...response, clientExtensionResults: {} } as AuthenticationResponseJSON,
    expectedChallenge: async (encoded) => {
      answeredChallenge = textOf(encoded);
      return isChallenge(services, answeredChallenge, purpose);
    },
    expectedOrigin: new URL(publicUrl).origin,
    expectedRPID: rpIdOf(publicUrl),
    credential: {
      id: passkey.credentialId,
      publicKey: new Uint8Array(Buffer.from(passkey.publicKey, "base64url")),
      // `countUse` compares the counter, in the statement that stores it.
      counter: 0,
    },
    requireUserVerification: true,
  }).catch(refused);
  if (!verified) throw notAccepted();
  await db.writeFor({ user: passkey.userId }, async (tx) => {
    await useChallenge(tx, answeredChallenge, system.now());
    await countUse(tx, passkey.id, authenticationInfo.newCounter, system.now());
  });
  return passkey.userId;
}

/** A counter must rise, else the passkey was copied: a copy may say 0, too. Synced passkeys have never counted. */
async function countUse(tx: Transaction, id: number, counter: number, now: number): Promise<void> {
  const sql =
    "UPDATE passkeys SET counter = $2, last_used_at = $3 WHERE id = $1 AND (counter < $2 OR counter = 0)";
  if ((await tx.run(sql, [id, counter, now])) === 0) throw notAccepted();
}

/** For the log at the start: passkeys of another public name cannot be used. */
export async function lostPasskeys(reader: Reader, publicUrl: string): Promise<string[]> {
  const { hostname } = new URL(publicUrl);
  return queryAll(
    reader,
    { parse: (row) => `${String(row["email"])} (${String(row["rp_id"])})` },
    `SELECT DISTINCT u.email, p.rp_id FROM passkeys p JOIN users u ON u.id = p.user_id
     WHERE p.rp_id <> $1 ORDER BY u.email`,
    [hostname],
  );
}

/** The library takes a challenge as bytes, and gives it back in base64url. */
const bytesOf = (challenge: string) => new TextEncoder().encode(challenge);
const textOf = (challenge: string) => Buffer.from(challenge, "base64url").toString();

function refused(error: unknown): never {
  throw notAccepted(error);
}

function notAccepted(cause?: unknown): AppError {
  return new AppError("invalid_credentials", "This passkey was not accepted. Begin again.", { cause });
}
