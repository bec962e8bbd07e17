// The cookies of the control plane: sessions of browsers, the session of the docs pages, and the devices of users.

export const docsCookie = "docs_session";
/** The cookie by which a device is known again. One for each user, because a browser may serve several. */
export const deviceCookie = (userId: number) => `device_${userId}`;

/** The cookie with a browser's session. By its prefix, browsers refuse it from other hosts and without TLS. */
export const sessionCookie = "__Host-session";

/** The cookie with the secrets of a sign-in by a provider of identities, see oidc/sign-in-flow.ts. */
export const flowCookie = "__Host-oidc";

export function cookiesOf({ headers }: Pick<Request, "headers">): string {
  return headers.get("cookie") ?? "";
}

export function readCookie(cookies: string, name: string): string | undefined {
  return new RegExp(`(?:^|; *)${name}=([^;]+)`).exec(cookies)?.[1];
}

/** Whether the request may come from a known device. The cookie's signature is checked when the user is known. */
export function mayBeDevice(cookies: string): boolean {
  return /(?:^|; *)device_\d{1,15}=/.test(cookies);
}

/** Scripts cannot read the cookie, and other sites cannot make a browser send it. */
export function makeCookie(name: string, value: string, maxAgeS: number, publicUrl: string): string {
  const secure = publicUrl.startsWith("https:") ? "; Secure" : "";
  return `${name}=${value}; Path=/api/; HttpOnly; SameSite=Strict; Max-Age=${maxAgeS}${secure}`;
}

export const makeSessionCookie = (value: string, maxAgeS: number) =>
  hostCookie(sessionCookie, value, maxAgeS);

/**
 * `maxAgeS`: 0 removes the cookie. The prefix `__Host-` demands Secure and this path. Lax: sent when another site leads
 * here, as a provider of identities does.
 */
export function hostCookie(name: typeof sessionCookie | typeof flowCookie, value: string, maxAgeS: number) {
  return `${name}=${value}; Path=/; HttpOnly; Secure; SameSite=Lax; Max-Age=${maxAgeS}`;
}
