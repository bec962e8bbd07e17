// What needs an administrator's attention among an organization's nodes: how many are online, and the first nodes
// with each problem. Each query is bounded, or answered from an index alone: every open console asks.

import { maxFirst, type NodeTrouble } from "../../api/paths/attention.ts";
import { formatTime, timeOrNull } from "../../base/quantities.ts";
import { advisoriesFor } from "../../engine/features.ts";
import type { Params, Reader } from "../store/database.ts";
import { onlineMs } from "../../api/values.ts";
import { isOnline, nodeColumns, nodeRecord } from "../store/nodes.ts";
import { nodesWithSightings } from "../store/sightings.ts";
import {
  computed,
  integer,
  integerOrNull,
  places,
  queryAll,
  queryNumber,
  queryOne,
  text,
  type Parser,
} from "../store/table.ts";
import type { NodeStore } from "./node-store.ts";
import { appliedMs } from "./contact/version-ages.ts";
import { isHub } from "../../protocol/routing/roles.ts";
import { specialIs } from "../store/tables/nodes.ts";

/** Nodes whose certificates end first. */
const maxNext = 5;
/** Bounds the list: nodes choose the text of their engine's version. */
const maxVersions = 100;
/** Earlier than this before its end, a certificate that was not renewed needs no person yet. */
const endsSoonMs = 7 * 86_400_000;

export async function nodeTrouble(services: NodeStore, orgId: number): Promise<NodeTrouble> {
  const { db, system } = services;
  const now = system.now();
  const [counts, hubs, not_renewed, vulnerable_engines, not_applied, cloned, phones_due, ending_first] =
    await Promise.all([
      countNodes(db, orgId, now),
      lookAtHubs(services, orgId, now),
      notRenewed(db, orgId, now),
      vulnerableEngines(db, orgId),
      notApplied(services, orgId, now),
      clonedNodes(db, orgId, now),
      phonesDue(db, orgId, now),
      endingFirst(db, orgId),
    ]);
  return {
    ...counts,
    ...hubs,
    not_renewed,
    vulnerable_engines,
    not_applied,
    cloned,
    phones_due,
    ending_first,
  };
}

const named = computed({ id: integer(), name: text() });
const counted = computed({ active: integer(), online: integer() });

async function countNodes(db: Reader, orgId: number, now: number) {
  const [nodes, phones, found] = await Promise.all([
    queryNumber(db, "SELECT count(*) AS n FROM nodes WHERE org_id = $1 AND state <> 'revoked'", [orgId]),
    queryNumber(db, `SELECT count(*) AS n ${phonesOf}`, [orgId]),
    // Reads only an index of the nodes.
    queryOne(
      db,
      counted,
      `SELECT count(*) AS active,
         CAST(coalesce(sum(CASE WHEN last_checkin_at > $2 THEN 1 ELSE 0 END), 0) AS bigint) AS online
       FROM ${nodesWithSightings} WHERE org_id = $1 AND state = 'active'`,
      [orgId, now - onlineMs],
    ),
  ]);
  // Phones never check in, so they are never online: only `nodes` counts them.
  return { nodes, active: (found?.active ?? 0) - phones, online: found?.online ?? 0 };
}

/** Lighthouses and relays: how many, and which are away. The condition is that of the index `nodes_special`. */
async function lookAtHubs({ db, changes, reports }: NodeStore, orgId: number, now: number) {
  const hubs = await queryAll(
    db,
    nodeRecord,
    `SELECT ${nodeColumns} FROM ${nodesWithSightings}
     WHERE org_id = $1 AND (${specialIs()}) ORDER BY id`,
    [orgId],
  );
  // `specialIs` finds routers too. `onto` adds what is not written yet: a hub that checked in just now is not away.
  const away = hubs.filter(
    (hub) => hub.state === "active" && isHub(hub) && !isOnline(reports?.onto(hub) ?? hub, now, changes),
  );
  const first = away.slice(0, maxFirst).map(({ id, name, isLighthouse, lastCheckinAt: at }) => ({
    id,
    name,
    is_lighthouse: isLighthouse,
    last_checkin_at: timeOrNull(at),
  }));
  const lighthouses = hubs.filter(({ state, isLighthouse }) => state === "active" && isLighthouse).length;
  return { lighthouses, hubs_away: { count: away.length, first } };
}

/**
 * Current certificates. Not of ephemeral nodes, for which the end of a certificate is usual, nor of phones, whose users are asked to
 * import them again.
 */
const certified = `FROM certificates c JOIN nodes n ON n.id = c.node_id
  WHERE c.org_id = $1 AND c.state = 'current' AND c.kind = 'overlay'
    AND n.state = 'active' AND n.phone IS NULL AND n.ephemeral_silence_s IS NULL`;
const endingPick = computed({ id: integer(), name: text(), notAfter: integer() });
const showEnding = ({ id, name, notAfter }: { id: number; name: string; notAfter: number }) => ({
  id,
  name,
  not_after: formatTime(notAfter),
});

/**
 * Certificates that end soon and were not renewed: a renewal comes with a third of their life left, so one with less than a quarter
 * has missed it. `ofOnline`: only of nodes that are online.
 */
const lateCertificates = (orgId: number, now: number, { ofOnline = false } = {}): Question => {
  const isOnlineNow =
    "AND EXISTS (SELECT 1 FROM sightings s WHERE s.node_id = n.id AND s.last_checkin_at > $4)";
  return {
    count: "count(DISTINCT c.node_id)",
    // A node may have certificates of two versions.
    select: "c.node_id AS id, n.name, min(c.not_after) AS not_after",
    from: `${certified} AND c.not_after < $2 AND (c.not_after - $3) * 4 < c.not_after - c.not_before ${ofOnline ? isOnlineNow : ""}`,
    order: "GROUP BY c.node_id, n.name ORDER BY not_after, id",
    params: [orgId, now + endsSoonMs, now, ...(ofOnline ? [now - onlineMs] : [])],
  };
};

async function notRenewed(db: Reader, orgId: number, now: number) {
  const { count, first } = await countAndFirst(db, endingPick, lateCertificates(orgId, now));
  return { count, first: first.map(showEnding) };
}

/** All nodes with such certificates, those that end first before others. */
export async function readNotRenewed(
  db: Reader,
  orgId: number,
  now: number,
  which: { ofOnline?: boolean } = {},
) {
  const { select, from, order, params } = lateCertificates(orgId, now, which);
  return (await queryAll(db, endingPick, `SELECT ${select} ${from} ${order}`, params)).map(showEnding);
}

async function endingFirst(db: Reader, orgId: number) {
  // A node may have certificates of two versions: twice as many rows hold enough nodes.
  const rows = await queryAll(
    db,
    endingPick,
    `SELECT c.node_id AS id, n.name, c.not_after ${certified} ORDER BY c.not_after LIMIT ${2 * maxNext}`,
    [orgId],
  );
  const distinct = rows.filter(({ id }, at) => rows.findIndex((each) => each.id === id) === at);
  return distinct.slice(0, maxNext).map(showEnding);
}

const engine = computed({ version: text() });
const engineOf = computed({ id: integer(), name: text(), version: text() });

async function vulnerableEngines(db: Reader, orgId: number): Promise<NodeTrouble["vulnerable_engines"]> {
  const active = "FROM nodes WHERE org_id = $1 AND state = 'active' AND overlay_version IS NOT NULL";
  const all = await queryAll(db, engine, `SELECT DISTINCT overlay_version AS version ${active}`, [orgId]);
  const versions = all.map(({ version }) => version).filter((version) => advisoriesFor(version).length > 0);
  if (versions.length === 0) return { count: 0, first: [] };
  const params = versions.slice(0, maxVersions);
  const { count, first } = await countAndFirst(db, engineOf, {
    count: "count(*)",
    select: "id, name, overlay_version AS version",
    from: `${active} AND overlay_version IN (${places(params, 2)})`,
    order: "ORDER BY id",
    params: [orgId, ...params],
  });
  return {
    count,
    first: first.flatMap(({ id, name, version }) => {
      const [advisory] = advisoriesFor(version);
      if (advisory === undefined) return [];
      return { id, name, overlay_version: version, advisory: advisory.id, fixed_in: advisory.fixed_in };
    }),
  };
}

const unapplied = computed({ id: integer(), name: text(), applied: integer(), since: integerOrNull() });

/** SQL: the configuration version that the node has applied. */
const applied = "coalesce(s.applied_config_version, 0)";

/**
 * Nodes that are online and have lacked their configuration for `appliedMs`. The index `nodes_confirmed` leaves few nodes, unless the
 * organization was changed just now.
 */
async function notApplied({ db, ages }: NodeStore, orgId: number, now: number) {
  // The newest configuration that nodes have had `appliedMs` to apply. Undefined: this server has not run for so long, or this is a
  // command on the data, which has no `ages`.
  const longKnown = ages?.longKnown(orgId);
  const { count, first } = await countAndFirst(db, unapplied, {
    count: "count(*)",
    // `since`: when it was sent files that it has not applied; null: it was not sent any.
    select: `n.id, n.name, ${applied} AS applied, CASE WHEN ${applied} < f.version THEN f.sent_at END AS since`,
    from: `FROM nodes n JOIN sightings s ON s.node_id = n.id LEFT JOIN sent_files f ON f.node_id = n.id
      WHERE n.org_id = $1 AND n.state = 'active' AND n.phone IS NULL
        AND n.confirmed_config_version < (SELECT config_version FROM organizations WHERE id = $1)
        AND s.last_checkin_at > $3
        AND CASE WHEN ${applied} < f.version THEN f.sent_at <= $2 ELSE ${applied} < $4 END`,
    order: "ORDER BY since, id",
    params: [orgId, now - appliedMs, now - onlineMs, longKnown?.configVersion ?? 0],
  });
  const lackingSince = (version: number) =>
    ages?.since(orgId, ({ configVersion }) => version < configVersion);
  return {
    count,
    first: first.map(({ id, name, applied: version, since }) => ({
      id,
      name,
      since: formatTime(since ?? lackingSince(version) ?? now),
    })),
  };
}

/** The index `sightings_cloned` leaves few nodes. */
async function clonedNodes(db: Reader, orgId: number, now: number) {
  return countAndFirst(db, named, {
    count: "count(*)",
    select: "id, name",
    from: `FROM sightings s JOIN nodes n ON n.id = s.node_id
      WHERE s.overlay_state = 'cloned' AND s.last_checkin_at > $2 AND n.org_id = $1 AND n.state = 'active'`,
    order: "ORDER BY id",
    params: [orgId, now - onlineMs],
  });
}

/** Active phones. A comparison of the state with "=" would make SQLite read all active nodes by another index. */
const phonesOf = "FROM nodes WHERE org_id = $1 AND phone IS NOT NULL AND state NOT IN ('pending', 'revoked')";

async function phonesDue(db: Reader, orgId: number, now: number) {
  return countAndFirst(db, named, {
    count: "count(*)",
    select: "id, name",
    from: `${phonesOf} AND coalesce(renew_at, 0) <= $2`,
    order: "ORDER BY id",
    params: [orgId, now],
  });
}

/** Parts of two queries: how many there are, and the first of them. `from` holds the condition, too. */
type Question = { count: string; select: string; from: string; order: string; params: Params };

async function countAndFirst<T>(db: Reader, pick: Parser<T>, question: Question) {
  const { count, select, from, order, params } = question;
  const [n, first] = await Promise.all([
    queryNumber(db, `SELECT ${count} AS n ${from}`, params),
    queryAll(db, pick, `SELECT ${select} ${from} ${order} LIMIT ${maxFirst}`, params),
  ]);
  return { count: n, first };
}
