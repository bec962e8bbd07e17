// Passkeys (WebAuthn): the browser's part of adding one and of proving one.

import { passkeysApi, type passkeyProofsApi } from "../../api/factors/passkeys.ts";
import { ApiError, call } from "../contact/api.ts";

/** Browsers bind a passkey to a host name, and offer none on a bare IP address. */
export const isPasskeyHost = !/^\[|^[\d.]+$/.test(location.hostname);
/**
 * Checks the method: Safari has had the class for longer than the method that reads the options of the control plane.
 */
export const canUsePasskeys =
  isPasskeyHost &&
  "PublicKeyCredential" in globalThis &&
  "parseRequestOptionsFromJSON" in PublicKeyCredential;

type Proofs = typeof passkeyProofsApi;

/** Proves a passkey to the endpoint. `options`: has its options. */
export async function provePasskey(
  options: Proofs["signInOptions" | "proveOptions"],
  endpoint: Proofs["signIn" | "prove"],
): Promise<void> {
  const publicKey = PublicKeyCredential.parseRequestOptionsFromJSON(await call(options, {}));
  const given = await credentialOf(() => navigator.credentials.get({ publicKey }));
  const { response } = given;
  if (!("signature" in response)) throw noPasskey();
  await call(endpoint, {}, { response: { ...given, response } });
}

/** `password`: needed for the first second factor. */
export async function addPasskey(name: string, password: string | undefined) {
  const options = await call(passkeysApi.options, {}, { current_password: password });
  const publicKey = PublicKeyCredential.parseCreationOptionsFromJSON(options);
  const given = await credentialOf(() => navigator.credentials.create({ publicKey }));
  const { response } = given;
  if (!("attestationObject" in response)) throw noPasskey();
  return call(passkeysApi.create, {}, { name, response: { ...given, response } });
}

async function credentialOf(askBrowser: () => Promise<Credential | null>) {
  const credential = await askBrowser().catch(() => null);
  if (!(credential instanceof PublicKeyCredential)) throw noPasskey();
  return { ...credential.toJSON(), type: "public-key" as const };
}

/** Browsers do not say whether the user refused or there was no passkey. */
function noPasskey(): ApiError {
  const detail = "The browser gave no passkey. Try again, or use another way.";
  return new ApiError(0, { code: "no_passkey", detail }, null);
}
