// Which requests wait while the session has ended: what pages read, by timers too. Not what the sign-in itself reads. Pure.

// Not `/api/org/` itself, the list of the user's organizations: me.ts reads it right after a sign-in.
const read =
  /^\/api\/(?:org\/[^?]|servers|users|events|identity_providers|user\/(?:sessions|passkeys|identities))/;

export const needsSession = (method: string, path: string): boolean => method === "GET" && read.test(path);
