// When organizations got their configuration versions, as far as this server knows. A healthy node applies a new version
// within seconds, so one that lacks it for longer has a fault. Kept in memory: after its start, a server finds at once only nodes
// that were sent files which they have not applied (sent-files.ts), and other faulty nodes ten minutes later.

import type { System } from "../../../base/system.ts";
import type { Versions } from "../../store/versions.ts";

/** A node that lacks a version for longer has a fault. */
export const appliedMs = 600_000;
/** Versions that are kept of one organization. */
const maxVersions = 200;

/** When this server saw the versions first. `at`: ms since 1970. `seenAt`: by the monotonic clock, ms. */
type KnownVersions = Versions & { at: number; seenAt: number };

export type VersionAges = {
  note(orgId: number, versions: Versions): void;
  /** The newest versions that the organization has had for `appliedMs`. */
  longKnown(orgId: number): KnownVersions | undefined;
  /** When this server first saw versions for which `isSuch` is true, ms. */
  since(orgId: number, isSuch: (versions: Versions) => boolean): number | undefined;
};

export function makeVersionAges({ now, monotonic }: Pick<System, "now" | "monotonic">): VersionAges {
  const all = new Map<number, KnownVersions[]>();
  return {
    note(orgId, versions) {
      const known = all.get(orgId) ?? [];
      if (known.length === 0) all.set(orgId, known);
      // Concurrent reads may end in another order than they began.
      if (versions.lastVersion <= (known.at(-1)?.lastVersion ?? 0)) return;
      // The oldest stays: it says since when this server knows the organization.
      if (known.length === maxVersions) known.splice(1, 1);
      known.push({ ...versions, at: now(), seenAt: monotonic() });
    },
    longKnown: (orgId) => all.get(orgId)?.findLast(({ seenAt }) => seenAt <= monotonic() - appliedMs),
    since: (orgId, isSuch) => all.get(orgId)?.find(isSuch)?.at,
  };
}
