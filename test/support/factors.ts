// An authenticator app for tests.

import * as v from "valibot";
import { totpCode, totpStep } from "../../src/pki/totp.ts";
import { password, type TestServer } from "./server.ts";

export type App = {
  /** The code of the present step, or of one so many steps later. */
  code(later?: number): string;
  recoveryCodes: string[];
};

const New = v.object({ secret: v.string(), otpauth_url: v.string() });
const Codes = v.object({ recovery_codes: v.array(v.string()) });

export function bytesOfBase32(base32: string): Uint8Array {
  const bits = base32
    .split("")
    .map((letter) => "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567".indexOf(letter).toString(2).padStart(5, "0"));
  const bytes = bits.join("").match(/.{8}/g) ?? [];
  return Uint8Array.from(bytes, (each) => Number.parseInt(each, 2));
}

export function appWith(server: { clock: { ms: number } }, base32: string): App {
  const secret = bytesOfBase32(base32);
  return { code: (later = 0) => totpCode(secret, totpStep(server.clock.ms) + later), recoveryCodes: [] };
}

/** The app with a secret that waits for its first code. */
export async function beginApp(server: TestServer, token: string): Promise<App> {
  const body = { current_password: password };
  const begun = await server.send("POST", "/api/user/totp/", { token, body });
  return appWith(server, v.parse(New, begun.json).secret);
}

/** Adds an app to the user of the token. The code of the present step is spent. */
export async function addApp(server: TestServer, token: string): Promise<App> {
  const app = await beginApp(server, token);
  const confirmed = await server.send("POST", "/api/user/totp/confirm/", {
    token,
    body: { otp: app.code() },
  });
  return { ...app, recoveryCodes: v.parse(Codes, confirmed.json).recovery_codes };
}
