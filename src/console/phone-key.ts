// The key of a phone, made in the browser. Its private half is kept by no page, and sent nowhere: it leaves in the site file
// that the user downloads.

export type PhoneKey = { publicPem: string; privatePem: string };

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

export async function makePhoneKey(): Promise<PhoneKey> {
  const pair = await crypto.subtle.generateKey("X25519", true, ["deriveBits"]);
  if (!("privateKey" in pair)) throw new Error("The browser made no pair of keys");
  const raw = await crypto.subtle.exportKey("raw", pair.publicKey);
  // PKCS #8 (RFC 8410): the key is its last 32 bytes.
  const pkcs8 = await crypto.subtle.exportKey("pkcs8", pair.privateKey);
  return { publicPem: pem("PUBLIC", raw), privatePem: pem("PRIVATE", pkcs8.slice(-32)) };
}

function pem(half: string, bytes: ArrayBuffer): string {
  const name = `NEBULA X25519 ${half} KEY`;
  const text = btoa(String.fromCharCode(...new Uint8Array(bytes)));
  return `-----BEGIN ${name}-----\n${text}\n-----END ${name}-----\n`;
}
