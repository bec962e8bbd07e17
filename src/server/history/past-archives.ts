// The archives of an organization's events that a question about the past needs: those that the chain in the database continues,
// back to one from which on every row is known.

import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { messageOf } from "../../base/errors.ts";
import type { Chain, VerifiedEvent } from "../audit/verify.ts";
import { nextRound } from "../http/heavy-work.ts";
import { archiveName, verifyArchive } from "../retention/archive-file.ts";
import { isBeginning } from "./past-rows.ts";

/** `breaks`: where a hash of the file does not follow from the one before. */
export type PastArchive = { file: string; events: VerifiedEvent[]; breaks: Chain["breaks"] };
/**
 * `files`: oldest first. `missing`: a sentence about what was not found, or cannot be read. `isWhole`: they go back to the first
 * event of the chain.
 */
export type PastArchives = { files: PastArchive[]; missing: string[]; isWhole: boolean };

/** What stands in the place of a hash before the first event of a chain. */
const noHash = "";

/** `lastHash`: of the newest archive. `moment`: ms. `key`: of the signatures; undefined: the server never signed an archive. */
export async function readArchives(
  dataDirectory: string | undefined,
  orgId: number,
  { lastHash, moment, key }: { lastHash: string; moment: number; key: string | undefined },
): Promise<PastArchives> {
  const directory = join(dataDirectory ?? "", archiveName);
  const files: PastArchive[] = [];
  /** The last hash of the archive before those that were found. */
  let wanted = lastHash;
  let isBegun = false;
  for (const file of dataDirectory === undefined ? [] : namesIn(directory, orgId)) {
    if (isBegun || wanted === noHash) break;
    await nextRound();
    const events: VerifiedEvent[] = [];
    try {
      const { header, breaks } = verifyArchive(
        join(directory, file),
        key,
        (event) => void events.push(event),
      );
      // It is not of this chain: it may have been made after the backup that was restored since.
      if (header.last_hash !== wanted) continue;
      files.unshift({ file, events, breaks });
      wanted = header.previous_hash;
    } catch (error) {
      return { files, missing: [messageOf(error)], isWhole: false };
    }
    isBegun = events.some((event) => isBeginning(event, moment));
  }
  const isWhole = wanted === noHash;
  const absent = `The archive that ends with the hash ${wanted.slice(0, 16)}… is not in ${directory}: put it there to know more.`;
  return { files, missing: isWhole || isBegun ? [] : [absent], isWhole };
}

/** Newest first. */
function namesIn(directory: string, orgId: number): string[] {
  if (!existsSync(directory)) return [];
  const found = readdirSync(directory).flatMap((name) => {
    const [, org, first] = /^events-(\d+)-(\d+)-\d+\.jsonl$/.exec(name) ?? [];
    return Number(org) === orgId ? [{ name, first: Number(first) }] : [];
  });
  return found.sort((a, b) => b.first - a.first).map(({ name }) => name);
}
