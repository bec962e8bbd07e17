// Verifies archives of events, and which of them the chains in the database continue.

import type { Chain } from "../audit/read.ts";
import { verifyArchive } from "./archive-file.ts";

export type VerifiedArchive = {
  file: string;
  organization: string | null;
  first: number;
  last: number;
  events: number;
  last_hash: string;
  /** The given archive that continues it, or "the database"; null if neither does. */
  next: string | null;
};

/** Throws failed for an archive that was changed, or that another control plane signed. */
export function verifyArchives(
  files: readonly string[],
  chains: readonly Chain[],
  publicKey: string | undefined,
): VerifiedArchive[] {
  const archives = files.map((file) => verifyArchive(file, publicKey));
  return archives.map(({ header, file }) => {
    const { organization, organization_id, first, last, events, last_hash } = header;
    const isCut = chains.some(
      ({ archived }) => archived?.organization_id === organization_id && archived.last_hash === last_hash,
    );
    const after = archives.find(
      (each) => each.header.organization_id === organization_id && each.header.previous_hash === last_hash,
    );
    return {
      file,
      organization,
      first,
      last,
      events,
      last_hash,
      next: isCut ? "the database" : (after?.file ?? null),
    };
  });
}
