// Databases that the control plane refuses at its start, because it would silently break its guarantees: behind a
// connection pooler, a standby, with tables of another program, without the right to create tables.

import { AppError } from "../../../base/errors.ts";
import type { Row } from "../database.ts";

/**
 * Settings of each session. A replica that is suspended during a write must not block all others, a role's own
 * timeout must not end a migration, and an acknowledged change is on disk, also on a standby that commits wait for.
 */
export const sessionSettings = {
  idle_in_transaction_session_timeout: "5s",
  lock_timeout: "15s",
  statement_timeout: "0",
  synchronous_commit: "on",
} as const;

const settings = Object.entries(sessionSettings);

export const fitnessSql = `SELECT CASE WHEN pg_is_in_recovery() THEN 1 ELSE 0 END AS standby,
  ${settings.map(([name]) => `current_setting('${name}') AS ${name}`).join(", ")}`;

/** Throws storage_unavailable for a standby, bad_configuration for a pooler. `row` answers `fitnessSql`. */
export function requireFit(row: Row): void {
  if (row["standby"] === 1) {
    throw new AppError("storage_unavailable", "The database is a standby, which takes no changes", {
      retryAfter: 5,
      hint: "Give the address of the primary with --database-url, or promote the standby: SELECT pg_promote()",
    });
  }
  for (const [name, asked] of settings) {
    if (row[name] !== asked) throw pooled(`${name} is ${String(row[name])}, not ${asked}`);
  }
}

function pooled(reason: string, cause?: unknown): AppError {
  return new AppError(
    "bad_configuration",
    `The database does not keep sessions as this server needs them: ${reason}`,
    {
      cause,
      hint: "A connection pooler such as PgBouncer seems to be in front of it. Let --database-url name PostgreSQL itself, or a proxy that only passes on TCP connections, such as HAProxy.",
    },
  );
}

/** The meaning of a failed start, unless the database is away. */
export function refusalOf(failure: unknown): AppError | undefined {
  const cause = failure instanceof AppError ? failure.cause : failure;
  if (!(cause instanceof Error)) return undefined;
  const state = sqlStateOf(cause);
  const isRefusedSetting = state === "08P01" && cause.message.includes("startup parameter");
  // 42P05, 26000: our prepared statements are in the session of another connection.
  if (isRefusedSetting || state === "42P05" || state === "26000") return pooled(cause.message, cause);
  if (state !== "42501" && state !== "3F000") return undefined;
  return new AppError(
    "bad_configuration",
    `The role of --database-url cannot create or use the tables: ${cause.message}`,
    {
      cause,
      hint: "Make it the owner of a database of its own, and of all tables there: ALTER DATABASE overlay OWNER TO overlay",
    },
  );
}

export function sqlStateOf(error: Error): string {
  return "errno" in error ? String(error.errno) : "";
}

/** `found`: the tables that have names of ours. Throws bad_configuration if another program made them. */
export function requireOwnTables(found: readonly string[]): void {
  if (found.length === 0 || (found.includes("migrations") && found.includes("meta"))) return;
  throw new AppError(
    "bad_configuration",
    `The database holds tables of another program: ${found.toSorted().slice(0, 5).join(", ")}`,
    { hint: "Give the control plane a database of its own: CREATE DATABASE overlay OWNER overlay" },
  );
}
