// How many bytes an organization may store: its events, their archives in the data directory, and rows that its members,
// machines and providers of identities can create. At the limit, what adds rows or lengthens texts is refused. Revocations,
// deletions, check-ins, renewals, changes of rights and requests that only remove or shorten go on, and are recorded.

import { defer } from "../../base/defer.ts";
import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { isObject } from "../../base/is-object.ts";
import { AppError } from "../../base/errors.ts";
import { systemErrorCode } from "../../base/system-errors.ts";
import { brand } from "../../brand.ts";
import { lastCut } from "../audit/archive-cut.ts";
import { defaultRetention, type ServerOptions } from "../options.ts";
import type { Reader } from "../store/database.ts";
import { queryAll, queryNumber } from "../store/table.ts";
import { chainEnd } from "../store/tables/events.ts";
import { organizations } from "../store/tables/organizations.ts";
import { archiveName } from "./archive-file.ts";
import type { Org } from "../http/route.ts";

type Deps = Pick<ServerOptions, "db" | "system" | "dataDirectory" | "retention">;

export type Budget = {
  /** Throws organization_full if the organization may not store this request too, and the request adds something. */
  require(org: Org, request: object, grows: () => boolean | Promise<boolean>): Promise<void>;
  /** The same error as a value, whatever the request adds; undefined: there is room, which this request now takes. */
  refusal(org: Org, request: object): Promise<AppError | undefined>;
  /** Measures all organizations once, so that the first write of each need not wait for it. Ends early after `closing`. */
  prepare(closing: AbortSignal): Promise<void>;
};

/**
 * How long a measurement counts. Meanwhile this process adds what it admits, even if it replaces something; what other replicas
 * admit, and deletions, are seen by the next one.
 */
const measuredMs = 300_000;
/** At the limit, deletions are seen after this time. */
const fullMs = 5000;

export function makeBudget(deps: Deps): Budget {
  const { system, retention = defaultRetention } = deps;
  const limit = retention.organizationBytes;
  /** By organization: what it stores, and when that was measured, ms. */
  const known = new Map<number, { bytes: number; at: number }>();
  /** Measurements under way, by organization. Requests share them. */
  const measuring = new Map<number, Promise<{ bytes: number; at: number }>>();
  const measureOnce = (orgId: number) =>
    measuring.getOrInsertComputed(orgId, () => measureAt(orgId, system.now()));
  const measureAt = async (orgId: number, at: number) => {
    using _ = defer(() => measuring.delete(orgId));
    const stored = { bytes: await measure(deps, orgId), at };
    known.set(orgId, stored);
    return stored;
  };
  const refusal: Budget["refusal"] = async (org, request) => {
    // The row, and the event about it.
    const added = 2 * JSON.stringify(request).length;
    const now = system.now();
    let stored = known.get(org.id);
    // The clock may have been set back.
    const age = stored === undefined ? Infinity : Math.abs(now - stored.at);
    const isFull = (bytes: number) => bytes + added > limit;
    if (stored === undefined || age > measuredMs || (isFull(stored.bytes) && age >= fullMs)) {
      stored = await measureOnce(org.id);
    }
    if (isFull(stored.bytes)) return organizationFull(org, limit);
    stored.bytes += added;
    return undefined;
  };
  return {
    refusal,
    async require(org, request, grows) {
      const error = await refusal(org, request);
      if (error !== undefined && (await grows())) throw error;
    },
    async prepare(closing) {
      for (const { id } of await queryAll(deps.db, ids, liveOrganizations)) {
        if (closing.aborted) return;
        if (!known.has(id)) await measureOnce(id);
      }
    },
  };
}

function organizationFull({ slug }: Org, limit: number): AppError {
  const megabytes = Math.floor(limit / 1_000_000);
  return new AppError(
    "organization_full",
    `The organization ${slug} stores ${megabytes} MB, its maximum, so nothing is added. Revocations, deletions, check-ins and ` +
      "renewals still work, and so do changes that only remove or shorten something. Deleting makes little room, because the " +
      `audit log counts too and records it. Ask the operator for more (\`${brand.executable} serve --organization-storage\`).`,
  );
}

/**
 * Whether storing `sent` in place of `stored` adds something: a longer text, another value, a new key or item. A
 * request that only removes or shortens must work at the limit: it may undo a setting that does harm.
 */
export function adds(stored: unknown, sent: unknown): boolean {
  if (typeof stored === "string" && typeof sent === "string")
    return stored !== sent && Buffer.byteLength(sent) >= Buffer.byteLength(stored);
  if (Array.isArray(stored) && Array.isArray(sent)) {
    const present = new Set(stored.map((item) => JSON.stringify(item)));
    return sent.length > stored.length || !sent.every((item) => present.has(JSON.stringify(item)));
  }
  if (!isObject(stored) || !isObject(sent)) return stored !== sent;
  return Object.entries(sent).some(
    ([key, value]) => value !== undefined && (!Object.hasOwn(stored, key) || adds(stored[key], value)),
  );
}

const ids = organizations.pick("id");
const liveOrganizations = "SELECT id FROM organizations WHERE deleted_at IS NULL ORDER BY id";

/** What a row takes besides its long columns. */
const rowBytes = 256;
/** SQL: the bytes of an organization's rows in a table. `bytes`: SQL for the long columns. */
const sum = (table: string, bytes: string) =>
  `(SELECT coalesce(sum(${bytes} + ${rowBytes}), 0) FROM ${table} WHERE org_id = $1)`;
/** SQL: the bytes of the users of the organization's own providers, who are valid there only. */
const boundUsers = `(SELECT coalesce(sum(octet_length(u.email) + ${rowBytes}), 0) FROM users u WHERE u.bound_org_id = $1)`;
/** The same for the rows `i` of these users in a table. */
const ofBoundUsers = (table: string, bytes: string) =>
  `(SELECT coalesce(sum(${bytes} + ${rowBytes}), 0) FROM users u JOIN ${table} i ON i.user_id = u.id
    WHERE u.bound_org_id = $1)`;
const storedRows = `SELECT ${[
  "(SELECT coalesce(sum(octet_length(config_overrides)), 0) FROM organizations WHERE id = $1)",
  sum(
    "nodes",
    "octet_length(config_overrides) + octet_length(groups) + octet_length(owner_groups) + octet_length(subnets)",
  ),
  sum("firewall_rules", "octet_length(description)"),
  sum("node_groups", "octet_length(description)"),
  sum("group_people", "octet_length(name)"),
  sum("provider_groups", "octet_length(name)"),
  sum("name_aliases", "octet_length(name)"),
  sum("policies", "coalesce(octet_length(text), 0) + octet_length(tests)"),
  sum("registration_tokens", "octet_length(groups)"),
  sum("registration_requests", "octet_length(groups)"),
  sum("service_tokens", "octet_length(name)"),
  sum("memberships", "octet_length(email)"),
  sum("verified_domains", "octet_length(domain)"),
  sum(
    "identity_providers",
    "octet_length(issuer) + octet_length(roles) + octet_length(node_groups) + octet_length(required_groups) + coalesce(octet_length(trust), 0)",
  ),
  // One row for each kind of flows and day. Counted with a usual size: to read them all takes long.
  "(SELECT count(*) * 320 FROM flows WHERE org_id = $1)",
  sum("webhooks", "octet_length(url) + octet_length(events)"),
  // One row for each event and webhook.
  "(SELECT count(*) * 128 FROM deliveries WHERE webhook_id IN (SELECT id FROM webhooks WHERE org_id = $1))",
  sum("rollouts", "octet_length(groups) + octet_length(hours) + octet_length(settings)"),
  // One row for each node, in each rollout.
  "(SELECT count(*) * 320 FROM rollout_nodes WHERE rollout_id IN (SELECT id FROM rollouts WHERE org_id = $1))",
  boundUsers,
  ofBoundUsers("organization_identities", "octet_length(i.subject) + octet_length(i.groups)"),
  ofBoundUsers("provider_grants", "octet_length(i.subject) + octet_length(i.token_sealed)"),
  ofBoundUsers("browser_sessions", "octet_length(i.device)"),
  ofBoundUsers("refresh_tokens", "0"),
].join(" + ")} AS n`;

async function measure({ db, dataDirectory }: Deps, orgId: number): Promise<number> {
  const archives =
    dataDirectory === undefined ? 0 : await archivedBytes(join(dataDirectory, archiveName), orgId);
  return (await storedEventBytes(db, orgId)) + archives + (await queryNumber(db, storedRows, [orgId]));
}

/** The bytes of the events in the database: of all, without those that are in archives. */
export async function storedEventBytes(reader: Reader, orgId: number | null): Promise<number> {
  return (await chainEnd(reader, orgId)).bytes - ((await lastCut(reader, orgId))?.archived_bytes ?? 0);
}

/** Archives that the operator moved elsewhere do not count. */
async function archivedBytes(directory: string, orgId: number): Promise<number> {
  let bytes = 0;
  try {
    for (const name of await readdir(directory)) {
      if (name.startsWith(`events-${orgId}-`)) bytes += (await stat(join(directory, name))).size;
    }
  } catch (error) {
    // No archive yet, or one was moved away meanwhile.
    if (systemErrorCode(error) !== "ENOENT") throw error;
  }
  return bytes;
}
