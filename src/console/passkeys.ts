// Passkeys (WebAuthn): the browser's part of adding one and of proving one.

import { ApiError, send } from "./api.ts";

/** Browsers bind a passkey to a host name, and offer none on a bare IP address. */
export const isPasskeyHost = !/^\[|^[\d.]+$/.test(location.hostname);
/**
 * Checks the method: Safari has had the class for longer than the method that reads the options of the control plane.
 */
export const canUsePasskeys =
  isPasskeyHost &&
  "PublicKeyCredential" in globalThis &&
  "parseRequestOptionsFromJSON" in PublicKeyCredential;

/** Proves a passkey to the path, which has its options below. */
export async function provePasskey(path: string): Promise<void> {
  const options = await send<PublicKeyCredentialRequestOptionsJSON>("POST", `${path}options/`);
  const publicKey = PublicKeyCredential.parseRequestOptionsFromJSON(options);
  await send("POST", path, { response: await answerOf(() => navigator.credentials.get({ publicKey })) });
}

export type NewPasskey = { passkey: { id: number; name: string }; recovery_codes: readonly string[] };

/** `password`: needed for the first second factor. */
export async function addPasskey(name: string, password: string | undefined): Promise<NewPasskey> {
  const path = "/api/user/passkeys/";
  const options = await send<PublicKeyCredentialCreationOptionsJSON>("POST", `${path}options/`, {
    current_password: password,
  });
  const publicKey = PublicKeyCredential.parseCreationOptionsFromJSON(options);
  const response = await answerOf(() => navigator.credentials.create({ publicKey }));
  return send<NewPasskey>("POST", path, { name, response });
}

/** Browsers do not say whether the user refused or there was no passkey. */
async function answerOf(askBrowser: () => Promise<Credential | null>): Promise<unknown> {
  const credential = await askBrowser().catch(() => null);
  if (credential instanceof PublicKeyCredential) return credential.toJSON();
  const detail = "The browser gave no passkey. Try again, or use another way.";
  throw new ApiError(0, { code: "no_passkey", detail }, null);
}
