// The key of a phone, made in the browser. Its private half is kept by no page, and sent nowhere: it leaves in the site file
// that the user downloads.

/** `sha256`: of the public half, as the list of machines that wait for approval shows it. */
export type PhoneKey = { publicPem: string; privatePem: string; sha256: string };

/** Why this browser cannot make one; undefined if it can. */
export async function whyNoKey(): Promise<string | undefined> {
  if (!isSecureContext) return "This page has no TLS, so the browser makes no keys. Open it by https.";
  try {
    await makePhoneKey();
    return undefined;
  } catch {
    return "This browser cannot make the key (X25519). Use a newer one: Chrome 133, Firefox 130, Safari 17.";
  }
}

/** A new pair of X25519 keys, as Nebula writes them (PEM). Throws where the browser cannot make one. */
export async function makePhoneKey(): Promise<PhoneKey> {
  const pair = await crypto.subtle.generateKey("X25519", true, ["deriveBits"]);
  if (!("privateKey" in pair)) throw new Error("The browser made no pair of keys");
  const raw = await crypto.subtle.exportKey("raw", pair.publicKey);
  // PKCS #8 (RFC 8410): the key is its last 32 bytes.
  const pkcs8 = await crypto.subtle.exportKey("pkcs8", pair.privateKey);
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", raw));
  const sha256 = Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return { publicPem: pem("PUBLIC", raw), privatePem: pem("PRIVATE", pkcs8.slice(-32)), sha256 };
}

function pem(half: string, bytes: ArrayBuffer): string {
  const name = `NEBULA X25519 ${half} KEY`;
  const text = btoa(String.fromCharCode(...new Uint8Array(bytes)));
  return `-----BEGIN ${name}-----\n${text}\n-----END ${name}-----\n`;
}
