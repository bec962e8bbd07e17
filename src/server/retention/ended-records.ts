// Deletes rows that nothing needs any more, in batches of one short transaction each. What a restore of a backup must
// still know to be revoked is kept: deleted webhooks, and service tokens.

import { flowsKeptMs } from "../../api/flows.ts";
import type { ServerOptions } from "../options.ts";
import type { Params } from "../store/database.ts";
import { flowsKey } from "../store/tables/paths.ts";
import { idleMs } from "../../api/sessions.ts";
import { wrongCodesKeptMs } from "../store/tables/users.ts";
import { deleteEndedCertificates } from "./ended-certificates.ts";
import { deleteEndedNodes } from "./ended-nodes.ts";

type Deps = Pick<ServerOptions, "db" | "system" | "accessLifetimeS">;
/** Rows of a table to delete: those for which `where` holds. `key`: columns that find one row. */
type Ended = { table: string; key: string; where: string; params: Params };

const day = 86_400_000;
/** Retention of the log of deliveries. */
const deliveriesMs = 30 * day;
/** Retention of alarms after their end. */
const alarmsMs = 90 * day;
/** Expired certificates stay a day longer, because nodes' clocks may be behind. */
const certificatesMs = day;
const batchSize = 500;

/** `keptMs`: how long expired registration tokens, replaced tokens of nodes and ended rollouts are kept. `isEnding`: whether the server stops, asked before each batch. */
export async function deleteEnded(deps: Deps, keptMs: number, isEnding: () => boolean): Promise<void> {
  const { db } = deps;
  const now = deps.system.now();
  for (const each of endedRows(deps, now, keptMs)) await deleteRows(db, each, isEnding);
  await deleteEndedCertificates(db, now - certificatesMs, isEnding);
  await deleteEndedNodes(db, now - certificatesMs, isEnding);
}

async function deleteRows(
  db: Deps["db"],
  { table, key, where, params }: Ended,
  isEnding: () => boolean,
): Promise<void> {
  const first = `SELECT ${key} FROM ${table} WHERE ${where} LIMIT`;
  const deletion = `DELETE FROM ${table} WHERE (${key}) IN (${first} ${batchSize})`;
  while (!isEnding() && (await db.get(`${first} 1`, params)) !== undefined)
    await db.write((tx) => tx.run(deletion, params));
}

/** Deletes the flows of organizations that want none any more: within a minute (docs/policy.md), apart from what ends with time. */
export const deleteUnwantedFlows = ({ db }: Pick<Deps, "db">, isEnding: () => boolean): Promise<void> =>
  deleteRows(db, { table: "flows", key: flowsKey, where: unwantedFlows, params: [] }, isEnding);

/** In this order: sessions without tokens are found after the tokens were deleted. */
function endedRows({ accessLifetimeS }: Deps, now: number, keptMs: number): Ended[] {
  const expired = (table: string, key: string): Ended => ({
    table,
    key,
    where: "expires_at <= $1",
    params: [now],
  });
  return [
    {
      // Tokens of a session that was ended stay known as long as its access token could live.
      table: "refresh_tokens",
      key: "jti_hash",
      where: "expires_at < $1 AND (revoked_at IS NULL OR revoked_at < $2)",
      params: [now, now - accessLifetimeS * 1000],
    },
    {
      table: "session_nodes",
      key: "family",
      where: "NOT EXISTS (SELECT 1 FROM refresh_tokens t WHERE t.family = session_nodes.family)",
      params: [],
    },
    {
      // With a `family` it is the session of a command line, which does not end for want of use.
      table: "browser_sessions",
      key: "id",
      where: "ends_at <= $1 OR (family IS NULL AND last_used_at <= $2)",
      params: [now, now - idleMs],
    },
    { table: "wrong_codes", key: "id", where: "at < $1", params: [now - wrongCodesKeptMs] },
    expired("used_challenges", "challenge_hash"),
    expired("device_requests", "id"),
    expired("enrollments", "id"),
    expired("password_resets", "secret_hash"),
    {
      table: "deliveries",
      key: "id",
      where: "next_at IS NULL AND created_at < $1",
      params: [now - deliveriesMs],
    },
    { table: "alarms", key: "id", where: endedAlarms, params: [now - alarmsMs] },
    { table: "retired_tokens", key: "token_hash", where: "retired_at < $1", params: [now - keptMs] },
    { table: "registration_tokens", key: "id", where: unusedToken, params: [now - keptMs] },
    {
      table: "rollout_nodes",
      key: "rollout_id, node_id",
      where: `rollout_id IN (${oldRollouts})`,
      params: [now - keptMs],
    },
    { table: "rollouts", key: "id", where: `id IN (${oldRollouts})`, params: [now - keptMs] },
    { table: "flows", key: flowsKey, where: oldFlows, params: [Math.floor((now - flowsKeptMs) / day)] },
    { table: "sent_configs", key: "org_id, digest", where: unusedConfig, params: [now - day] },
  ];
}

/**
 * Only tokens without nodes and requests: when a token is revoked or its creator leaves, the nodes that registered with it must be
 * found.
 */
const unusedToken = `expires_at < $1
  AND NOT EXISTS (SELECT 1 FROM registration_requests q WHERE q.token_id = registration_tokens.id)
  AND id NOT IN (SELECT registered_with FROM nodes WHERE registered_with IS NOT NULL)
  AND NOT EXISTS (SELECT 1 FROM registrants r WHERE r.principal = 'registration_token/' || registration_tokens.id)`;

/** Those of a deleted organization are not looked after any more. */
const endedAlarms = `ended_at < $1
  OR ended_at IS NULL AND org_id IN (SELECT id FROM organizations WHERE deleted_at < $1)`;

/** The newest of each organization stays: the next one gets a higher number. */
const oldRollouts = `SELECT r.id FROM rollouts r WHERE r.ended_at < $1
  AND r.created_at < (SELECT max(n.created_at) FROM rollouts n WHERE n.org_id = r.org_id)`;

/** By organization, because the index begins with it. */
const oldFlows = "org_id IN (SELECT id FROM organizations) AND day < $1";
const unwantedFlows = "org_id IN (SELECT id FROM organizations WHERE flows = 0)";

/** Configurations that no node has any more. The age spares one that is being recorded for a node now. */
const unusedConfig = `sent_at < $1 AND NOT EXISTS (SELECT 1 FROM sent_files f WHERE f.org_id = sent_configs.org_id
  AND (f.config_digest = sent_configs.digest OR f.former_digest = sent_configs.digest))`;
