// `/metrics` in the text format of Prometheus: what this process counts, and what the database says. Each look costs a
// few queries that an index answers.

import { brand } from "../../brand.ts";
import { buildInfo } from "../../build-info.ts";
import { blocklistLimit } from "../../protocol.ts";
import { countBlocklists } from "../certificates/blocklist.ts";
import type { Meters, Sample } from "../http/meters.ts";
import type { Changes } from "../config/changes.ts";
import type { ServerOptions } from "../options.ts";
import { lastBackupAt } from "../store/meta.ts";
import { numberOf, textOf, type Database, type Row } from "../store/database.ts";

const prefix = `${brand.id.replaceAll("-", "_")}_`;
const day = 86_400_000;
/** Certificates with at most so many days left. */
const daysLeft = [0, 7, 14, 30];

type Deps = Pick<ServerOptions, "db" | "system"> & { changes: Changes; meters: Meters };

export async function writeMetrics(deps: Deps): Promise<string> {
  const samples = [
    ...(await nodeSamples(deps)),
    ...(await certificateSamples(deps)),
    ...(await operationSamples(deps)),
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

/** Rows of `slug`, one more text column as the label, and `n`. */
function counted(rows: readonly Row[], label: string): Sample["values"] {
  return rows.map((row) => ({
    labels: { organization: textOf(row, "slug"), [label]: textOf(row, label) },
    value: numberOf(row, "n"),
  }));
}

async function nodeSamples({ db, changes }: Deps): Promise<Sample[]> {
  const rows = await db.all(
    `SELECT o.slug, n.state, count(*) AS n FROM nodes n JOIN organizations o ON o.id = n.org_id
     WHERE o.deleted_at IS NULL GROUP BY o.slug, n.state ORDER BY o.slug, n.state`,
  );
  return [
    gauge("nodes", "Nodes by state", counted(rows, "state")),
    gauge("long_polls_waiting", "Check-ins that are held until there is news", [
      { value: changes.waiting() },
    ]),
  ];
}

async function certificateSamples({ db, system }: Deps): Promise<Sample[]> {
  const now = system.now();
  const expiring = [];
  for (const days of daysLeft) {
    const rows = await db.all(
      `SELECT o.slug, count(*) AS n FROM certificates c JOIN organizations o ON o.id = c.org_id
       WHERE c.state = 'current' AND c.kind = 'overlay' AND c.not_after <= $1 AND o.deleted_at IS NULL
       GROUP BY o.slug ORDER BY o.slug`,
      [now + days * day],
    );
    for (const row of rows) {
      const labels = { organization: textOf(row, "slug"), days_left: String(days) };
      expiring.push({ labels, value: numberOf(row, "n") });
    }
  }
  const blocklists = (await countBlocklists(db, now)).map(({ slug, n }) => ({
    labels: { organization: slug },
    value: n,
  }));
  const authorities = await db.all(
    `SELECT o.slug, a.kind, min(a.not_after) AS until FROM authorities a JOIN organizations o ON o.id = a.org_id
     WHERE a.state = 'active' AND o.deleted_at IS NULL GROUP BY o.slug, a.kind ORDER BY o.slug, a.kind`,
  );
  const ends = authorities.map((row) => ({
    labels: { organization: textOf(row, "slug"), kind: textOf(row, "kind") },
    value: (numberOf(row, "until") - now) / day,
  }));
  return [
    gauge("certificates_expiring", "Overlay certificates in use with at most so many days left", expiring),
    gauge("blocklist_entries", "Entries of each organization's blocklist", blocklists),
    gauge("blocklist_limit", "Entries of one blocklist that nodes are sent at most", [
      { value: blocklistLimit },
    ]),
    gauge("ca_days_left", "Days until the active CA ends", ends),
  ];
}

async function operationSamples({ db, system }: Deps): Promise<Sample[]> {
  const backup = await lastBackupAt(db);
  const age = backup === undefined ? [] : [{ value: (system.now() - backup) / 1000 }];
  const waiting = await db.get("SELECT count(*) AS n FROM deliveries WHERE next_at IS NOT NULL");
  const { version, commit } = buildInfo;
  return [
    gauge("store_bytes", "Size of the database", [{ value: await storeBytes(db) }]),
    gauge("last_backup_age_seconds", "Time since the last backup; missing before the first", age),
    gauge("webhook_deliveries_waiting", "Deliveries not yet made", [{ value: numberOf(waiting ?? {}, "n") }]),
    gauge("resident_memory_bytes", "Memory of this process", [{ value: process.memoryUsage.rss() }]),
    gauge("uptime_seconds", "Time since the start of this process", [{ value: process.uptime() }]),
    gauge("build_info", "The running program", [{ labels: { version, commit }, value: 1 }]),
  ];
}

async function storeBytes(db: Database): Promise<number> {
  const row = await db.get(
    db.dialect === "postgres"
      ? "SELECT pg_database_size(current_database()) AS bytes"
      : "SELECT page_count * page_size AS bytes FROM pragma_page_count, pragma_page_size",
  );
  return numberOf(row ?? {}, "bytes");
}
