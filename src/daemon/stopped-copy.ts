// A copy of the records of organizations that a user has stopped, beside the state database: nothing else could restore
// them.

import * as v from "valibot";
import { boundedText, jsonText } from "../base/text.ts";
import { messageOf } from "../base/errors.ts";
import { readTextIfThere, writeFileAtomic } from "../base/files.ts";
import type { Log } from "../base/log.ts";
import { OrganizationRecord } from "./organization-record.ts";

export const stoppedCopyPath = (path: string): string => `${path}.stopped`;

const StoppedCopy = jsonText(v.record(boundedText(255), v.unknown()));

/** `path`: of the state database. Call `read` before `keep`, which replaces the file by what was kept since the opening. */
export function openStoppedCopy(path: string, log: Pick<Log, "warn">) {
  const copyPath = stoppedCopyPath(path);
  const stopped = new Map<string, OrganizationRecord>();
  /** The content of the file. */
  let written = readTextIfThere(copyPath) ?? stoppedText(stopped);
  const save = () => {
    const content = stoppedText(stopped);
    if (content === written) return;
    try {
      writeFileAtomic(copyPath, content, 0o600);
      written = content;
    } catch (error) {
      log.warn("Cannot copy which organizations are stopped", { reason: messageOf(error) });
    }
  };
  return {
    /** The records in the file. */
    read(): Map<string, OrganizationRecord> {
      const parsed = v.safeParse(StoppedCopy, written);
      const entries = parsed.success ? Object.entries(parsed.output) : [];
      return new Map(
        entries.flatMap(([slug, record]) => {
          const { success, output } = v.safeParse(OrganizationRecord, record);
          return success && output.wanted === "down" ? [[slug, output] as const] : [];
        }),
      );
    },
    /** Adds those that are stopped, and removes the others. */
    keep(records: ReadonlyMap<string, OrganizationRecord>) {
      for (const [slug, record] of records) {
        if (record.wanted === "down") stopped.set(slug, record);
        else stopped.delete(slug);
      }
      save();
    },
    remove(slug: string) {
      stopped.delete(slug);
      save();
    },
  };
}

/** The content of the copy: only what a user decides, so that it seldom changes. */
export function stoppedText(records: ReadonlyMap<string, OrganizationRecord>): string {
  const stopped = [...records]
    .filter(([, { wanted }]) => wanted === "down")
    .sort(([a], [b]) => (a < b ? -1 : 1));
  const entries = stopped.map(([slug, { wanted, forgotten, registration }]) => [
    slug,
    { wanted, forgotten, registration },
  ]);
  return `${JSON.stringify(Object.fromEntries(entries))}\n`;
}
