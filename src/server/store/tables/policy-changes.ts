// What decides who reaches whom, as it was at each moment: triggers note each changed row beside its change, whoever writes
// it. `history/` moves the notes into the audit log, and reads them there.

import type { Database, Params, Transaction } from "../database.ts";
import { integer, queryNumber, serial, table, text, textOrNull, type TableRow } from "../table.ts";
import { authorities, certificates } from "./certificates.ts";
import { nameAliases, nodeGroups, nodes } from "./nodes.ts";
import { memberships, organizations } from "./organizations.ts";
import { firewallRules, policies } from "./policies.ts";
import { groupUsers, providerGroups } from "./providers.ts";

type Dialect = Database["dialect"];

/** Notes that are not in the audit log yet. */
export const policyChanges = table(
  "policy_changes",
  {
    id: serial,
    orgId: integer(),
    /** The database's time, ms. */
    at: integer(),
    /** The name of a part; `*`: what came before does not count, and every row follows. */
    part: text(),
    rowId: integer(),
    /** The values of the part's columns, a JSON list; null: the row is gone. */
    content: textOrNull(),
  },
  {
    indexes: [
      "CREATE INDEX policy_changes_org ON policy_changes (org_id, id)",
      "CREATE INDEX policy_changes_begin ON policy_changes (org_id, id) WHERE part = '*'",
    ],
  },
);
export type PolicyChangeRow = TableRow<typeof policyChanges>;

/**
 * Columns that are noted together: those of a row that change together. A column that is noted later stands at the end, with its
 * migration in `since`; that migration makes the triggers again, by historySteps.
 */
type Part = {
  /** The table's, unless one table has several parts. */
  name: string;
  table: string;
  /** The column with the id of the organization. */
  org: string;
  /** The column with the id of the row. */
  key: string;
  columns: string[];
  /** A condition in SQL: other rows are not noted. */
  only?: string;
  since?: Readonly<Record<string, number>>;
};

type Declared = { name: string; pick(...keys: string[]): { select(): string } };
/** `keys`: of the table's declaration, with spaces between them. */
const part = (of: Declared, keys: string, more: Partial<Part> = {}): Part => {
  const columns = of.pick(...keys.split(" ")).select();
  return { name: of.name, table: of.name, org: "org_id", key: "id", columns: columns.split(", "), ...more };
};

const overlayOnly = "kind = 'overlay'";
export const parts: readonly Part[] = [
  part(organizations, "slug name network network6 configOverrides orderPublic deletedAt", { org: "id" }),
  part(memberships, "email userId role"),
  part(
    nodes,
    "name ip ip6 state groups ownerId ownerGroups registeredWith subnets isRelay isLighthouse exitGroups configOverrides ephemeralSilenceS revokedAt",
  ),
  part(authorities, "kind version fingerprint state notBefore notAfter retiredAt", { only: overlayOnly }),
  part(certificates, "nodeId authorityId kind version fingerprint notBefore notAfter state blockedAt", {
    only: overlayOnly,
  }),
  // Long, and never changed.
  part(certificates, "pem", { name: "certificates/pem", only: overlayOnly }),
  part(firewallRules, "direction protocol ports peer target description"),
  part(nodeGroups, "name description"),
  part(groupUsers, "name people"),
  part(providerGroups, "providerId name people"),
  part(nameAliases, "name nodeId address deletedAt"),
  part(policies, "byFile tests", { key: "org_id" }),
];

const clock: Record<Dialect, string> = {
  sqlite: "CAST(round(unixepoch('subsec') * 1000) AS INT)",
  postgres: "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)",
};

/** The time that notes have, ms. */
export const noteTime = (db: Database): Promise<number> =>
  queryNumber(db, `SELECT ${clock[db.dialect]} AS n`);

const columnsOf = (prefix: string, columns: readonly string[]) =>
  columns.map((each) => `${prefix}.${each}`).join(", ");

const listOf = (dialect: Dialect, prefix: string, columns: readonly string[]) =>
  dialect === "sqlite"
    ? `json_array(${columnsOf(prefix, columns)})`
    : `json_build_array(${columnsOf(prefix, columns)})::text`;

/** Named one by one, not taken from the table: triggers of this release must not name columns that later releases add. */
const into = "INSERT INTO policy_changes (org_id, at, part, row_id, content)";

/** The triggers of a part: one for each way to write a row. Released migrations contain this text: never change it. */
function triggersOf(dialect: Dialect, { name, table: of, org, key, columns, only }: Part): string[] {
  const newValues = listOf(dialect, "NEW", columns);
  const [before, after] = [columnsOf("OLD", columns), columnsOf("NEW", columns)];
  const differs =
    dialect === "sqlite"
      ? `(${before}) IS NOT (${after})`
      : `(ROW(${before}) IS DISTINCT FROM ROW(${after}))`;
  const ways = [
    { way: "INSERT", row: "NEW", content: newValues, when: [] },
    { way: "DELETE", row: "OLD", content: "NULL", when: [] },
    { way: `UPDATE OF ${columns.join(", ")}`, row: "NEW", content: newValues, when: [differs] },
  ];
  return ways.flatMap(({ way, row, content, when }) => {
    const [verb = ""] = way.toLowerCase().split(" ");
    const trigger = `noted_${name.replace("/", "_")}_${verb}`;
    const conditions = [...(only === undefined ? [] : [`${row}.${only}`]), ...when];
    const condition = conditions.length === 0 ? "" : ` WHEN (${conditions.join(" AND ")})`;
    const values = `${row}.${org}, ${clock[dialect]}, '${name}', ${row}.${key}, ${content}`;
    const note = `${into} VALUES (${values});`;
    if (dialect === "sqlite")
      return [
        `DROP TRIGGER IF EXISTS ${trigger}`,
        `CREATE TRIGGER ${trigger} AFTER ${way} ON ${of}${condition} BEGIN ${note} END`,
      ];
    return [
      `DROP TRIGGER IF EXISTS ${trigger} ON ${of}`,
      `CREATE OR REPLACE FUNCTION ${trigger}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN ${note} RETURN NULL; END $$`,
      `CREATE TRIGGER ${trigger} AFTER ${way} ON ${of} FOR EACH ROW${condition} EXECUTE FUNCTION ${trigger}()`,
    ];
  });
}

/**
 * Notes that everything before does not count, and then every present row, of some organizations. `which`: the SQL condition for
 * them, from the column with their id.
 */
function beginning(dialect: Dialect, noted: readonly Part[], which: (org: string) => string): string[] {
  /** SQL: the time of the mark, which all rows of the organization get. */
  const begun = (org: string) =>
    `(SELECT at FROM policy_changes c WHERE c.org_id = ${org} AND c.part = '*' ORDER BY c.id DESC LIMIT 1)`;
  const marks = `${into} SELECT o.id, ${clock[dialect]}, '*', 0, NULL FROM organizations o WHERE ${which("o.id")}`;
  return [
    marks,
    ...noted.map(({ name, table: of, org, key, columns, only }) => {
      const more = only === undefined ? "" : ` AND t.${only}`;
      const values = `t.${org}, ${begun(`t.${org}`)}, '${name}', t.${key}, ${listOf(dialect, "t", columns)}`;
      return `${into} SELECT ${values} FROM ${of} t WHERE ${which(`t.${org}`)}${more} ORDER BY t.${key}`;
    }),
  ];
}

/** For the migration with this number: triggers, and the present rows of all organizations. */
export function historySteps(migration: number): (dialect: Dialect) => string[] {
  const known = parts.map((each) => ({
    ...each,
    columns: each.columns.filter((column) => (each.since?.[column] ?? 0) <= migration),
  }));
  return (dialect) => [
    ...known.flatMap((each) => triggersOf(dialect, each)),
    ...beginning(dialect, known, () => "1 = 1"),
  ];
}

/** Notes the present rows of an organization again: what the audit log has of them goes into an archive. */
export async function beginAgain(tx: Transaction, orgId: number): Promise<void> {
  for (const sql of beginning(tx.dialect, parts, (org) => `${org} = $1`)) await tx.run(sql, [orgId]);
}

/** The rows of a part as they are, as `content`: a page after an id. */
export function presentRows(dialect: Dialect, { table: of, org, key, columns, only }: Part): string {
  const more = only === undefined ? "" : ` AND t.${only}`;
  return `SELECT t.${key} AS row_id, ${listOf(dialect, "t", columns)} AS content FROM ${of} t
    WHERE t.${org} = $1 AND t.${key} > $2${more} ORDER BY t.${key} LIMIT $3`;
}

/** Takes the oldest notes of an organization out, at most `limit`. */
export async function takeNotes(tx: Transaction, orgId: number, limit: number): Promise<PolicyChangeRow[]> {
  const params: Params = [orgId, limit];
  const rows = await tx.all(
    `DELETE FROM policy_changes WHERE id IN (SELECT id FROM policy_changes WHERE org_id = $1 ORDER BY id LIMIT $2)
     RETURNING ${policyChanges.select()}`,
    params,
  );
  return rows.map(policyChanges.parse).sort((a, b) => a.id - b.id);
}
