// A new password by a link that is sent by e-mail. The answer to a request tells nothing about whether there is a user: the
// work happens after it. Second factors stay: the link replaces only the password.

import { brand } from "../../../brand.ts";
import { AppError } from "../../../base/errors.ts";
import { hashToken, makeOpaqueToken } from "../../../pki/opaque.ts";
import { networkOf } from "../../../base/ip.ts";
import { countTokenGuess, type Throttle } from "../../http/throttle.ts";
import type { ServerOptions } from "../../options.ts";
import { passwordResets, users } from "../../store/tables/users.ts";
import { sendMail } from "../mail.ts";
import type { UserServices } from "../users.ts";
import { setPassword } from "./set-password.ts";

type Services = UserServices & Pick<ServerOptions, "log" | "mail" | "publicUrl"> & { throttle: Throttle };

const lifetimeMs = 3_600_000;
/** Links for one user, within the time of the throttle `resets`. */
const maxOfUser = 3;

/** Throws conflict without an SMTP server, throttled for a network that asks too often. */
export function requestReset(services: Services, email: string, address: string): void {
  const { mail, log, throttle } = services;
  if (mail === undefined) {
    throw new AppError("conflict", "This control plane sends no e-mail.", {
      hint: `Ask its operator for a new password: \`${brand.executable} admin user password EMAIL\`.`,
    });
  }
  throttle.check("resetsFrom", networkOf(address));
  throttle.count("resetsFrom", networkOf(address));
  void sendLink(services, mail, email).catch((error: unknown) => {
    log.warn("Cannot send the link for a new password", {
      reason: error instanceof Error ? error.message : String(error),
    });
  });
}

async function sendLink(
  { db, system, publicUrl, throttle }: Services,
  mail: NonNullable<ServerOptions["mail"]>,
  email: string,
): Promise<void> {
  const user = await users.find(db, { email, isActive: true });
  // Not for users of a provider: with a password they could sign in after leaving it.
  if (user?.passwordHash === "") return;
  if (user === undefined || throttle.counted("resets", email) >= maxOfUser) return;
  throttle.count("resets", email);
  const secret = makeOpaqueToken(system.random);
  const userId = user.id;
  await db.writeFor({ user: userId }, async (tx) => {
    await passwordResets.delete(tx, { userId });
    const expiresAt = system.now() + lifetimeMs;
    await passwordResets.insert(tx, { secretHash: hashToken(secret), userId, expiresAt });
  });
  const link = `${publicUrl}/reset/#${secret}`;
  const text = `A new password was requested for ${email} at ${publicUrl}.\n\nThis link sets one. It works once, for an hour:\n${link}\n\nIf it was not you, ignore this message: your password stays as it is.\n`;
  await sendMail(mail, { to: email, subject: `${brand.title}: a new password`, text });
}

/** Sets the password by the link. Throws not_found for one that is no longer valid. */
export async function resetPassword(
  services: Services,
  { secret, password }: { secret: string; password: string },
  address: string,
): Promise<void> {
  const { db, system, throttle } = services;
  const secretHash = hashToken(secret);
  const reset = await passwordResets.find(db, { secretHash });
  if (reset === undefined || reset.expiresAt <= system.now()) {
    countTokenGuess(throttle, address);
    throw expired();
  }
  const { userId } = reset;
  const user = await users.find(db, { id: userId, isActive: true });
  if (user === undefined) throw expired();
  // The known networks of a user have a lane of their own (password-queue.ts). Whether this is one is not looked up.
  const turn = { user: `user ${userId}`, source: networkOf(address), isKnown: false };
  const actor = { kind: "person", id: userId, ip: address } as const;
  // The link is deleted with the new password, so a request that is refused because too many wait may be repeated. Of two requests
  // with the link, one deletes it.
  const proven = { passwordHash: user.passwordHash, turn, resetHash: secretHash };
  await setPassword(services, userId, password, actor, proven).catch((error: unknown) => {
    throw error instanceof AppError && error.code === "invalid_credentials" ? expired() : error;
  });
}

function expired(): AppError {
  return new AppError("not_found", "This link is no longer valid. Ask for a new one.");
}
