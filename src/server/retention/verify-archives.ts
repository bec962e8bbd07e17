// Verifies archives of events, and which of them the chains in the database continue.

import { messageOf } from "../../base/errors.ts";
import { sentenceOf, type Chain } from "../audit/verify.ts";
import { verifyArchive } from "./archive-file.ts";

export type VerifiedArchive = {
  file: string;
  organization: string | null;
  first: number;
  last: number;
  events: number;
  last_hash: string;
  /** What continues it: "the database" after the newest, else the file of an archive; null: none of the given ones. */
  next: string | null;
};

/**
 * `faults`: a sentence for each archive that was changed, or that another control plane signed, and for each broken chain.
 * `known`: hashes of events at which a chain is known to break, which are no faults.
 */
export function verifyArchives(
  files: readonly string[],
  chains: readonly Chain[],
  publicKey: string | undefined,
  known: ReadonlySet<string> = new Set(),
): { verified: VerifiedArchive[]; faults: string[] } {
  const faults: string[] = [];
  const archives = files.flatMap((file) => {
    try {
      const archive = verifyArchive(file, publicKey);
      for (const each of archive.breaks) if (!known.has(each.hash)) faults.push(sentenceOf(file, each));
      return [archive];
    } catch (error) {
      faults.push(messageOf(error));
      return [];
    }
  });
  const verified = archives.map(({ header, file }) => {
    const { organization, organization_id, first, last, events, last_hash } = header;
    const isNewest = chains.some(
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
      next: isNewest ? "the database" : (after?.file ?? null),
    };
  });
  return { verified, faults };
}
