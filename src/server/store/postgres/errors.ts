// The errors of PostgreSQL as errors of the control plane, and what they mean for a transaction.

import { brand } from "../../../brand.ts";
import { AppError } from "../../../base/errors.ts";
import { systemErrorCode } from "../../../base/system-errors.ts";
import { isStorageUnavailable, NotUnique } from "../database.ts";
import { isDamage } from "./damage.ts";
import { sqlStateOf } from "./refusals.ts";

const maxTries = 10;
/** A new connection to a host that does not answer takes 5 s to fail. */
const retryForMs = 5000;

/** A serialization failure (40001) or a deadlock (40P01): the transaction must be run again. */
export class Retry extends Error {}
/** The connection ended. A new one may work. */
export class Lost extends Error {}

/** Retries when the database is known to have stored nothing. */
export async function retrying<T>(act: () => Promise<T>): Promise<T> {
  const end = performance.now() + retryForMs;
  for (let tries = 1; ; tries++) {
    try {
      return await act();
    } catch (error) {
      if (!(error instanceof Retry || error instanceof Lost)) throw error;
      if (tries >= maxTries || performance.now() > end) throw unavailable(error.cause);
      // ms, at random: transactions that collided must not meet again.
      await Bun.sleep(Math.random() * Math.min(100, 2 ** tries));
    }
  }
}

/** Throws translated errors. */
export async function attempt<T>(act: () => Promise<T>): Promise<T> {
  try {
    return await act();
  } catch (error) {
    throw translate(error);
  }
}

/** Whether the whole transaction has failed, not one work of it alone. */
export function failsAll(error: unknown): boolean {
  return error instanceof Retry || error instanceof Lost || isStorageUnavailable(error);
}

/** What to do about a damaged database. */
export const damageRemedy =
  "Examine the disk of PostgreSQL, whose log says what is damaged. If this stays, stop the server, and restore the last backup: " +
  `\`${brand.executable} admin restore FILE --replace\`.`;

function translate(error: unknown): unknown {
  if (!(error instanceof Error) || error instanceof AppError) return error;
  const state = sqlStateOf(error);
  if (state === "40001" || state === "40P01") return new Retry("try again", { cause: error });
  if (state === "23505") {
    return new NotUnique("constraint" in error ? String(error.constraint) : "", error);
  }
  if (isDamage(state)) {
    return new AppError("storage_unavailable", "The database is damaged", {
      cause: error,
      retryAfter: 60,
      hint: damageRemedy,
    });
  }
  const code = systemErrorCode(error) ?? "";
  // 08: connection. 57P: ended by the operator. 25P03: our own time-out.
  if (/^(08|57P|25P03)/.test(state) || code.includes("CONNECTION"))
    return new Lost("the connection ended", { cause: error });
  // 28: the role may not connect. 3D: no such database. 53: insufficient resources (disk full). 57: cancelled. 58: I/O error.
  // 25006: read only. 55P03: lock time-out.
  const isRefused = /^(28|3D|53|57|58|25006|55P03)/.test(state);
  // A certificate ends, or is replaced, while the server runs.
  return isRefused || /TLS|CERT|ISSUER|LEAF/.test(code) ? unavailable(error) : error;
}

export function unavailable(cause: unknown): AppError {
  return new AppError("storage_unavailable", "The database cannot be used now", {
    cause,
    retryAfter: 5,
    hint: "Check that PostgreSQL runs, that its disk works and has space, and that --database-url is right.",
  });
}
