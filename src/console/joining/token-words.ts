// The rights of a token in words, and what is known of machines that ask with one. Pure.

/** The rights of a service token: its role decides whether it may change anything, its scopes what. */
export function mayDo({ role, scopes }: { role: string; scopes: readonly string[] | null }): string {
  const isAdmin = role === "admin";
  if (scopes === null) return isAdmin ? "all that an administrator may" : "read everything";
  const areas = scopes.filter((scope) => scope !== "read").join(", ");
  const reads = scopes.includes("read") ? "read everything" : `read ${areas}`;
  // Changes first: a column may cut the rest.
  return isAdmin && areas !== "" ? `change ${areas}; ${reads}` : reads;
}

/** For a service token without a last use. Version 0.1 recorded none, and gave no scopes. */
export const unused = ({ scopes }: { scopes: readonly string[] | null }): string =>
  scopes === null ? "not recorded" : "never";

/** The names that are there more than once: one of the machines may be an impostor. */
export function twiceIn(names: readonly string[]): ReadonlySet<string> {
  const [once, twice] = [new Set<string>(), new Set<string>()];
  for (const name of names) (once.has(name) ? twice : once).add(name);
  return twice;
}

/** The name that its maker gave it. */
export const nameOfKey = ({ id, name }: { id: number; name: string | null }): string =>
  name ?? `join key ${id}`;

type Asking = { id: number; registration_token_id: number | null };

/**
 * Whether no other machine needs this machine's token: it has no free use, and a revocation ends no other request.
 * `open`: all that wait, or were approved and have not come back; each holds a use. Undefined, before they are read: then another
 * machine may need it.
 */
export const isOnlyFor = (
  { id, registration_token_id: token }: Asking,
  { uses, used }: { uses: number; used: number },
  open: readonly Asking[] | undefined,
): boolean =>
  used >= uses && open?.some((each) => each.id !== id && each.registration_token_id === token) === false;
