// When organizations got their configuration versions, as far as this server knows. A healthy node applies a new
// version within seconds, so one that lacks it for longer has a fault. In memory: after a start, a server knows only
// nodes that were sent files which they have not applied (sent-files.ts), and the others ten minutes later.

import type { Versions } from "../../store/versions.ts";

/** A healthy node applies a configuration within seconds. */
export const appliedMs = 600_000;
/** Versions that are kept of one organization. */
const maxVersions = 200;

/** `at`: when this server saw the versions first, ms. */
type KnownVersions = Versions & { at: number };

export type VersionAges = {
  note(orgId: number, versions: Versions): void;
  /** The newest versions that the organization has had for `appliedMs`. */
  longKnown(orgId: number): KnownVersions | undefined;
  /** When the organization had such versions first, ms. */
  since(orgId: number, isSuch: (versions: Versions) => boolean): number | undefined;
};

export function makeVersionAges(now: () => number): VersionAges {
  const all = new Map<number, KnownVersions[]>();
  return {
    note(orgId, versions) {
      const known = all.get(orgId) ?? [];
      if (known.length === 0) all.set(orgId, known);
      // Concurrent reads may end in another order than they began.
      if (versions.lastVersion <= (known.at(-1)?.lastVersion ?? 0)) return;
      if (known.length === maxVersions) known.splice(1, 1);
      known.push({ ...versions, at: now() });
    },
    longKnown: (orgId) => all.get(orgId)?.findLast(({ at }) => at <= now() - appliedMs),
    since: (orgId, isSuch) => all.get(orgId)?.find(isSuch)?.at,
  };
}
