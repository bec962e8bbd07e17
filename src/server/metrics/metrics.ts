// `/metrics` in the text format of Prometheus: the counters of this process and figures of the database. A request costs a
// few queries, which indexes answer.

import { brand } from "../../brand.ts";
import { buildInfo } from "../../build-info.ts";
import { diskSpaceAt } from "../../base/disk-space.ts";
import { blocklistLimit } from "../../protocol/download.ts";
import { countBlocklists } from "../certificates/blocklist.ts";
import type { Meters, Sample } from "../http/meters.ts";
import type { HeldPolls } from "../config/held-polls.ts";
import type { ServerOptions } from "../options.ts";
import { readStatus } from "../store/acme-state.ts";
import { relayFigures } from "../paths/relay-list.ts";
import type { PathReports } from "../paths/path-reports.ts";
import { onlineMs } from "../../api/values.ts";
import { lastBackupAt } from "../store/meta.ts";
import { listReplicas, type ReplicaReport } from "../store/replicas.ts";
import type { Database } from "../store/database.ts";
import { computed, integer, queryAll, queryNumber, text } from "../store/table.ts";
import { nodes, specialIs } from "../store/tables/nodes.ts";

const prefix = `${brand.id.replaceAll("-", "_")}_`;
const dayMs = 86_400_000;
/** The thresholds of `certificates_expiring`, in days. */
const daysLeft = [0, 7, 14, 30];

type Deps = Pick<ServerOptions, "db" | "system" | "clock" | "dataDirectory"> & {
  changes: HeldPolls;
  meters: Meters;
  pathReports: PathReports;
};

/** All figures as text. */
export async function writeMetrics(deps: Deps): Promise<string> {
  const samples = [
    ...(await nodeSamples(deps)),
    ...(await onlineSamples(deps)),
    ...(await pathSamples(deps)),
    ...(await relaySamples(deps)),
    ...(await alarmSamples(deps)),
    ...(await certificateSamples(deps)),
    ...(await acmeSamples(deps)),
    ...(await operationSamples(deps)),
    ...(await serverSamples(deps)),
    ...deps.meters.samples(),
  ];
  return samples.map(textOfSample).join("");
}

function textOfSample({ name, type, help, values }: Sample): string {
  const head = `# HELP ${prefix}${name} ${help}\n# TYPE ${prefix}${name} ${type}\n`;
  const lines = values.map(({ suffix = "", labels = {}, value }) => {
    const inner = Object.entries(labels).map(([key, text]) => `${key}="${escaped(text)}"`);
    return `${prefix}${name}${suffix}${inner.length === 0 ? "" : `{${inner.join(",")}}`} ${value}\n`;
  });
  return head + lines.join("");
}

function escaped(text: string): string {
  return text.replace(/[\\"]/g, "\\$&").replaceAll("\n", "\\n");
}

function gauge(name: string, help: string, values: Sample["values"]): Sample {
  return { name, type: "gauge", help, values };
}

async function nodeSamples({ db, changes }: Deps): Promise<Sample[]> {
  const counts = await queryAll(
    db,
    computed({ slug: text(), state: text(), n: integer() }),
    `SELECT o.slug, n.state, count(*) AS n FROM nodes n JOIN organizations o ON o.id = n.org_id
     WHERE o.deleted_at IS NULL GROUP BY o.slug, n.state ORDER BY o.slug, n.state`,
  );
  return [
    gauge(
      "nodes",
      "Nodes by state",
      counts.map(({ slug, state, n }) => ({ labels: { organization: slug, state }, value: n })),
    ),
    gauge("long_polls_waiting", "Check-ins that wait for news", [{ value: changes.waiting() }]),
  ];
}

const online = computed({ slug: text(), online: integer() });
const groupsOf = nodes.pick("groups");
const hub = computed({ slug: text(), name: text(), role: text(), online: integer() });
/** $1: check-ins after this time count, ms. */
const isSeen = "CASE WHEN s.last_checkin_at > $1 THEN 1 ELSE 0 END";
/** Phones never check in. */
const seenNodes = `FROM nodes n JOIN organizations o ON o.id = n.org_id LEFT JOIN sightings s ON s.node_id = n.id
  WHERE o.deleted_at IS NULL AND n.state = 'active' AND n.phone IS NULL`;

/** Which nodes are online: in all, by group, and each node that others need. */
async function onlineSamples({ db, system }: Deps): Promise<Sample[]> {
  const since = [system.now() - onlineMs];
  const byGroups = await db.all(
    `SELECT o.slug, n.groups, CAST(sum(${isSeen}) AS bigint) AS online ${seenNodes} GROUP BY o.slug, n.groups ORDER BY o.slug`,
    since,
  );
  const all = new Map<string, number>();
  const groups = new Map<string, { slug: string; group: string; value: number }>();
  for (const row of byGroups) {
    const { slug, online: count } = online.parse(row);
    all.set(slug, (all.get(slug) ?? 0) + count);
    for (const group of groupsOf.parse(row).groups) {
      const key = JSON.stringify([slug, group]);
      groups.set(key, { slug, group, value: (groups.get(key)?.value ?? 0) + count });
    }
  }
  // `specialIs` holds for lighthouses, relays and nodes with subnets.
  const hubs = await queryAll(
    db,
    hub,
    `SELECT o.slug, n.name, CASE WHEN n.is_lighthouse = 1 THEN 'lighthouse' WHEN n.is_relay = 1 THEN 'relay' ELSE 'router' END AS role,
       ${isSeen} AS online ${seenNodes} AND (${specialIs("n.")}) ORDER BY o.slug, n.id`,
    since,
  );
  return [
    gauge(
      "nodes_online",
      "Nodes that checked in lately",
      [...all].map(([slug, value]) => ({ labels: { organization: slug }, value })),
    ),
    gauge(
      "group_nodes_online",
      "The same, by group",
      [...groups.values()].map(({ slug, group, value }) => ({
        labels: { organization: slug, group },
        value,
      })),
    ),
    gauge(
      "hub_online",
      "Whether a lighthouse, relay or router checked in lately",
      hubs.map(({ slug, name, role, online: value }) => ({
        labels: { organization: slug, node: name, role },
        value,
      })),
    ),
  ];
}

/** Figures from nodes' reports; nothing before the first report. */
async function pathSamples({ pathReports }: Deps): Promise<Sample[]> {
  const figures = await pathReports.figures();
  if (figures.length === 0) return [];
  const counts = figures.flatMap(({ slug, counts: byPath }) =>
    Object.entries(byPath).map(([path, value]) => ({ labels: { organization: slug, path }, value })),
  );
  const shares = figures.flatMap(({ slug, counts: { direct, relayed } }) => {
    const value = relayed / (direct + relayed);
    return Number.isNaN(value) ? [] : [{ labels: { organization: slug }, value }];
  });
  const broken = figures.map(({ slug, broken: value }) => ({ labels: { organization: slug }, value }));
  const times = figures.flatMap(({ slug, roundTrips: { bounds, count, sum } }) => {
    const labels = { organization: slug };
    const bucket = (le: string, value: number) => ({ suffix: "_bucket", labels: { ...labels, le }, value });
    return [
      ...bounds.map(({ seconds, count: below }) => bucket(String(seconds), below)),
      bucket("+Inf", count),
      { suffix: "_sum", labels, value: sum },
      { suffix: "_count", labels, value: count },
    ];
  });
  return [
    gauge("paths", "Paths between nodes as they reported last", counts),
    gauge("paths_relayed_share", "Share of the paths that go through a relay, 0 to 1", shares),
    gauge("paths_broken_pairs", "Pairs of nodes whose probes are no longer answered", broken),
    {
      name: "path_round_trip_seconds",
      type: "histogram",
      help: "Round trips of the paths as they are now",
      values: times,
    },
  ];
}

/** Nothing before the first report of a relay. */
async function relaySamples({ db, system }: Deps): Promise<Sample[]> {
  const relays = await relayFigures(db, system.now());
  if (relays.length === 0) return [];
  const labelsOf = ({ slug, node }: (typeof relays)[number]) => ({ organization: slug, node });
  const limits = relays.flatMap((relay) =>
    relay.limitBytes === null ? [] : [{ labels: labelsOf(relay), value: relay.limitBytes }],
  );
  return [
    {
      name: "relay_forwarded_bytes_total",
      type: "counter",
      help: "Forwarded by a relay for other nodes since the month began (UTC)",
      values: relays.map((relay) => ({ labels: labelsOf(relay), value: relay.bytes })),
    },
    gauge("relay_limit_bytes", "Monthly limit of a relay; absent without one", limits),
  ];
}

const openAlarms = computed({ slug: text(), kind: text(), urgent: integer(), n: integer() });

/** Nothing for kinds without an open alarm. */
async function alarmSamples({ db }: Deps): Promise<Sample[]> {
  const found = await queryAll(
    db,
    openAlarms,
    `SELECT o.slug, a.kind, a.is_urgent AS urgent, count(*) AS n FROM alarms a JOIN organizations o ON o.id = a.org_id
     WHERE a.ended_at IS NULL AND o.deleted_at IS NULL GROUP BY o.slug, a.kind, a.is_urgent ORDER BY o.slug, a.kind`,
  );
  const values = found.map(({ slug, kind, urgent, n }) => ({
    labels: { organization: slug, kind, urgent: urgent === 1 ? "yes" : "no" },
    value: n,
  }));
  return [gauge("alarms_open", "Alarms that are open, by kind", values)];
}

async function certificateSamples({ db, system }: Deps): Promise<Sample[]> {
  const now = system.now();
  const expiring = [];
  // Without those of ephemeral nodes, which live for an hour: they have expiring_told_at = created_at (issue.ts).
  for (const days of daysLeft) {
    const counts = await queryAll(
      db,
      computed({ slug: text(), n: integer() }),
      `SELECT o.slug, count(*) AS n FROM certificates c JOIN organizations o ON o.id = c.org_id
       WHERE c.state = 'current' AND c.kind = 'overlay' AND c.not_after <= $1 AND o.deleted_at IS NULL
         AND (c.expiring_told_at IS NULL OR c.expiring_told_at > c.created_at)
       GROUP BY o.slug ORDER BY o.slug`,
      [now + days * dayMs],
    );
    for (const { slug, n } of counts) {
      expiring.push({ labels: { organization: slug, days_left: String(days) }, value: n });
    }
  }
  const blocklists = (await countBlocklists(db, now)).map(({ slug, n }) => ({
    labels: { organization: slug },
    value: n,
  }));
  const authorities = await queryAll(
    db,
    computed({ slug: text(), kind: text(), until: integer() }),
    `SELECT o.slug, a.kind, min(a.not_after) AS until FROM authorities a JOIN organizations o ON o.id = a.org_id
     WHERE a.state = 'active' AND o.deleted_at IS NULL GROUP BY o.slug, a.kind ORDER BY o.slug, a.kind`,
  );
  const ends = authorities.map(({ slug, kind, until }) => ({
    labels: { organization: slug, kind },
    value: (until - now) / dayMs,
  }));
  return [
    gauge(
      "certificates_expiring",
      "Current overlay certificates that expire within days_left days",
      expiring,
    ),
    gauge("blocklist_entries", "Entries of each organization's blocklist", blocklists),
    gauge("blocklist_limit", "Maximum entries of a blocklist that nodes get", [{ value: blocklistLimit }]),
    gauge("ca_days_left", "Days until the active CA expires", ends),
  ];
}

/** Empty without `--tls acme`. */
async function acmeSamples({ db, system }: Deps): Promise<Sample[]> {
  const { notAfter, failures, failedAt } = await readStatus(db);
  const ends = notAfter === undefined ? [] : [{ value: (notAfter - system.now()) / dayMs }];
  if (notAfter === undefined && failedAt === undefined) return [];
  return [
    gauge("tls_certificate_days_left", "Days until the certificate from ACME expires", ends),
    gauge("acme_failures", "Failed attempts since the last certificate from ACME", [{ value: failures }]),
  ];
}

async function operationSamples({ db, system, clock, dataDirectory }: Deps): Promise<Sample[]> {
  const disk = dataDirectory === undefined ? undefined : diskSpaceAt(dataDirectory);
  const bytes = (value: number | undefined) => (value === undefined ? [] : [{ value }]);
  const backup = await lastBackupAt(db);
  const age = backup === undefined ? [] : [{ value: (system.now() - backup) / 1000 }];
  const waiting = await queryNumber(db, "SELECT count(*) AS n FROM deliveries WHERE next_at IS NOT NULL");
  const { version, commit } = buildInfo;
  return [
    gauge("disk_free_bytes", "Free on the disk of the data directory", bytes(disk?.freeBytes)),
    gauge("disk_bytes", "Size of the disk of the data directory", bytes(disk?.totalBytes)),
    gauge("clock_doubted", "1: the clock of this server jumped, and no certificate is signed", [
      { value: clock.doubt() === undefined ? 0 : 1 },
    ]),
    gauge("store_bytes", "Size of the database", [{ value: await storeBytes(db) }]),
    gauge("last_backup_age_seconds", "Time since the last backup; absent before the first backup", age),
    gauge("webhook_deliveries_waiting", "Webhook deliveries that wait", [{ value: waiting }]),
    gauge("resident_memory_bytes", "Memory of this process", [{ value: process.memoryUsage.rss() }]),
    gauge("uptime_seconds", "Time since the start of this process", [{ value: process.uptime() }]),
    gauge("build_info", "Version and commit of the running program", [
      { labels: { version, commit }, value: 1 },
    ]),
  ];
}

/** All servers on the database, each with its id. Empty with SQLite. */
async function serverSamples({ db }: Deps): Promise<Sample[]> {
  const servers = await listReplicas(db);
  if (servers.length === 0) return [];
  const ofEach = (name: string, help: string, value: (server: ReplicaReport) => number) =>
    gauge(
      name,
      help,
      servers.map((server) => ({ labels: { server: server.id, host: server.host }, value: value(server) })),
    );
  const leases = servers.flatMap(({ id, host, leases }) =>
    leases.map((lease) => ({ labels: { server: id, host, lease }, value: 1 })),
  );
  return [
    ofEach(
      "server_last_seen_seconds",
      "Time since a server renewed its row",
      ({ seenAgoMs }) => seenAgoMs / 1000,
    ),
    ofEach(
      "server_clock_ahead_seconds",
      "How far a server's clock is ahead of the database's",
      ({ clockAheadMs }) => clockAheadMs / 1000,
    ),
    ofEach(
      "server_notices_behind_seconds",
      "How old the changes are that a server may lack",
      ({ noticesBehindMs }) => noticesBehindMs / 1000,
    ),
    gauge("server_leases", "Which server runs each background loop", leases),
  ];
}

function storeBytes(db: Database): Promise<number> {
  return queryNumber(
    db,
    db.dialect === "postgres"
      ? "SELECT pg_database_size(current_database()) AS n"
      : "SELECT page_count * page_size AS n FROM pragma_page_count, pragma_page_size",
  );
}
