// The errors of SQLite as errors of the control plane, and what they mean for a connection.

import { SQLiteError } from "bun:sqlite";
import { brand } from "../../../brand.ts";
import { AppError } from "../../../base/errors.ts";
import { isStorageUnavailable, NotUnique } from "../database.ts";

/** Throws translated errors. `note` sees them first. */
export function attempt<T>(act: () => T, note: (error: unknown) => void = () => undefined): T {
  try {
    return act();
  } catch (error) {
    const translated = translate(error);
    note(translated);
    throw translated;
  }
}

const storageCodes = /^SQLITE_(FULL|IOERR|BUSY|LOCKED|READONLY|CANTOPEN|NOMEM|PROTOCOL|CORRUPT|NOTADB)/;

/** Whether nothing can be stored at this moment. `error`: translated or not. */
export const isUnavailable = (error: unknown): boolean => isStorageUnavailable(translate(error));

/** Whether another connection may succeed where this one failed with a translated error. */
export function mayBeStale(error: unknown): boolean {
  const cause = error instanceof AppError ? error.details.cause : undefined;
  return cause instanceof SQLiteError && /^SQLITE_(IOERR|READONLY|CANTOPEN)/.test(cause.code ?? "");
}

const damageCodes = /^SQLITE_(CORRUPT|NOTADB)/;

/** What SQLite found damaged, by an error that is translated or not. Undefined: the error is about something else. */
export function damageIn(error: unknown): string | undefined {
  const cause = error instanceof AppError ? error.details.cause : error;
  return cause instanceof SQLiteError && damageCodes.test(cause.code ?? "") ? cause.message : undefined;
}

/** What to do about a damaged database. */
export const damageRemedy =
  "Examine the disk: what it cannot read looks damaged. If this stays, stop the server, and restore the last backup: " +
  `\`${brand.executable} admin restore FILE --replace\`.`;

/** What to do, as far as the error code tells. */
const hints: readonly [RegExp, string][] = [
  [/^SQLITE_FULL/, "Make space on its disk."],
  [
    /^SQLITE_READONLY/,
    "Its file system or a file is read-only: look for errors of the disk (`dmesg`) and immutable files (`lsattr`), and make it writable.",
  ],
  [damageCodes, damageRemedy],
  [/^SQLITE_IOERR/, "Look for errors of its disk (`dmesg`)."],
];

function hintOf(code: string): { hint?: string } {
  const hint = hints.find(([pattern]) => pattern.test(code))?.[1];
  return hint === undefined ? {} : { hint };
}

export function translate(error: unknown): unknown {
  if (!(error instanceof SQLiteError)) return error;
  const code = error.code ?? "";
  if (storageCodes.test(code)) {
    return new AppError("storage_unavailable", `The database cannot be used now: ${error.message}`, {
      cause: error,
      retryAfter: 5,
      ...hintOf(code),
    });
  }
  if (/^SQLITE_CONSTRAINT_(UNIQUE|PRIMARYKEY)/.test(code)) {
    return new NotUnique(error.message.replace(/^UNIQUE constraint failed: /, ""), error);
  }
  return error;
}
