// Which requests wait while the session has ended: what pages read, by timers too. Not what the sign-in itself reads. Pure.

const read = /^\/api\/(?:org\/[^?]|servers|users)/;

export const needsSession = (method: string, path: string): boolean => method === "GET" && read.test(path);
