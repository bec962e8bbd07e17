// One-time codes by time (RFC 6238) with the parameters that every authenticator app knows: SHA-1, 6 digits, 30 s. SHA-1
// is safe here: HMAC does not rely on its resistance to collisions.

import { createHmac, timingSafeEqual } from "node:crypto";

const stepMs = 30_000;
const digits = 6;
const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/** RFC 4648, without padding. */
export function base32(bytes: Uint8Array): string {
  const bits = [...bytes].map((byte) => byte.toString(2).padStart(8, "0")).join("");
  return (bits.match(/.{1,5}/g) ?? [])
    .map((group) => alphabet[Number.parseInt(group.padEnd(5, "0"), 2)])
    .join("");
}

export function totpCode(secret: Uint8Array, step: number): string {
  const counter = Buffer.alloc(8);
  counter.writeBigUInt64BE(BigInt(step));
  const mac = createHmac("sha1", secret).update(counter).digest();
  // The last four bits say which four bytes are the code (RFC 4226, section 5.3).
  const number = mac.readUInt32BE((mac.at(-1) ?? 0) & 0xf) & 0x7f_ff_ff_ff;
  return String(number % 10 ** digits).padStart(digits, "0");
}

/** The number of the 30 s since 1970. */
export const totpStep = (nowMs: number) => Math.floor(nowMs / stepMs);

/**
 * The step of a valid code: the one of now, or one beside it because clocks differ. Undefined: the code is not valid. `last`: the
 * step of the last code that was accepted; each step counts once.
 */
export function matchingStep(
  secret: Uint8Array,
  code: string,
  { nowMs, last }: { nowMs: number; last: number },
): number | undefined {
  if (!/^\d{6}$/.test(code)) return undefined;
  const now = totpStep(nowMs);
  return [now - 1, now, now + 1].find(
    (step) => step > last && timingSafeEqual(Buffer.from(totpCode(secret, step)), Buffer.from(code)),
  );
}

/** The URI that authenticator apps read from a QR code. */
export function totpUri(secret: Uint8Array, { issuer, user }: { issuer: string; user: string }): string {
  const query = `secret=${base32(secret)}&issuer=${encodeURIComponent(issuer)}&algorithm=SHA1&digits=${digits}&period=30`;
  return `otpauth://totp/${encodeURIComponent(issuer)}:${encodeURIComponent(user)}?${query}`;
}
