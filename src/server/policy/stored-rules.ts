// Reads the firewall rules of an organization.

import * as v from "valibot";
import { ruleFields, type Rule } from "../../api/rules.ts";
import { atOnce, inSlices } from "../http/heavy-work.ts";
import type { Reader, Row } from "../store/database.ts";
import { firewallRules } from "../store/tables/policies.ts";

/** As it is stored. An earlier version may have stored texts that requests may not hold any more. */
export const StoredRule = v.object({
  id: v.number(),
  ...ruleFields,
  ports: v.string(),
  description: v.string(),
});

export const ruleColumns = firewallRules.select();
export const ruleOf = (row: Row): Rule => v.parse(StoredRule, firewallRules.parse(row));

/** All rules of an organization, by id. Parses them in slices: not for transactions, which may not pause. */
export async function listRules(reader: Reader, { id }: { id: number }): Promise<Rule[]> {
  return inSlices(parseAll(await readRows(reader, id)));
}

/** The same inside of a transaction. */
export async function readRules(tx: Reader, orgId: number): Promise<Rule[]> {
  return atOnce(parseAll(await readRows(tx, orgId)));
}

function readRows(reader: Reader, orgId: number): Promise<Row[]> {
  return reader.all(`SELECT ${ruleColumns} FROM firewall_rules WHERE org_id = $1 ORDER BY id`, [orgId]);
}

function* parseAll(rows: readonly Row[]): Generator<unknown, Rule[]> {
  const rules: Rule[] = [];
  for (const row of rows) {
    rules.push(ruleOf(row));
    if (rules.length % 50 === 0) yield;
  }
  return rules;
}
