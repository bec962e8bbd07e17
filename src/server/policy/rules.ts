// Firewall rules of an organization: stored, changed, asked. What they mean is in firewall.ts.

import * as v from "valibot";
import { AppError } from "../../errors.ts";
import { record, type Actor } from "../audit/record.ts";
import {
  decide,
  Peer,
  Protocol,
  RuleRequest,
  Target,
  type Member,
  type Rule,
  type RulePatch,
  type RuleTest,
  type Verdict,
} from "./firewall.ts";
import { ensureGroups } from "./groups.ts";
import { findNode } from "../store/nodes.ts";
import { parse } from "../http/route.ts";
import type { ServerOptions } from "../options.ts";
import { textOf, type Reader, type Row, type Transaction } from "../store/database.ts";
import { raiseConfigVersion } from "../store/versions.ts";

type Store = Pick<ServerOptions, "db" | "system">;
type Org = { id: number };

export const FirewallRule = v.object({
  id: v.number(),
  direction: v.picklist(["inbound", "outbound"]),
  protocol: Protocol,
  ports: v.string(),
  peer: Peer,
  target: Target,
  description: v.string(),
});

export const ruleColumns = "id, direction, protocol, ports, peer, target, description";

export function ruleOf(row: Row): Rule {
  return v.parse(FirewallRule, {
    ...row,
    peer: JSON.parse(textOf(row, "peer")),
    target: JSON.parse(textOf(row, "target")),
  });
}

/** All of them, by id. */
export async function listRules(reader: Pick<Reader, "all">, { id }: Org): Promise<Rule[]> {
  const rows = await reader.all(`SELECT ${ruleColumns} FROM firewall_rules WHERE org_id = $1 ORDER BY id`, [
    id,
  ]);
  return rows.map(ruleOf);
}

export async function findRule(reader: Pick<Reader, "get">, org: Org, id: number): Promise<Rule> {
  const row = await reader.get(`SELECT ${ruleColumns} FROM firewall_rules WHERE org_id = $1 AND id = $2`, [
    org.id,
    id,
  ]);
  if (row === undefined) throw new AppError("not_found", "There is no such rule.");
  return ruleOf(row);
}

/** Whether other nodes' configurations name the node, once it is active. */
export async function isPeerOfRule(reader: Pick<Reader, "get">, org: Org, nodeId: number): Promise<boolean> {
  const row = await reader.get("SELECT id FROM firewall_rules WHERE org_id = $1 AND peer = $2 LIMIT 1", [
    org.id,
    JSON.stringify({ node: nodeId } satisfies Peer),
  ]);
  return row !== undefined;
}

export async function createRule(
  { db, system }: Store,
  org: Org,
  request: RuleRequest,
  actor: Actor,
): Promise<Rule> {
  return db.write(async (tx) => {
    await checkReferences(tx, org, request, system.now());
    const row = await tx.get(
      `INSERT INTO firewall_rules (org_id, direction, protocol, ports, peer, target, description, created_at)
       VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING ${ruleColumns}`,
      [org.id, ...valuesOf(request), system.now()],
    );
    const rule = ruleOf(row ?? {});
    await raiseConfigVersion(tx, org.id);
    await record(tx, { ...happened(org, system, actor, rule.id), type: "rule.created", after: { ...rule } });
    return rule;
  });
}

export async function patchRule(
  { db, system }: Store,
  org: Org,
  id: number,
  patch: RulePatch,
  actor: Actor,
): Promise<Rule> {
  return db.write(async (tx) => {
    const { id: _, ...before } = await findRule(tx, org, id);
    // What is right field by field may be wrong together.
    const request = parse(RuleRequest, { ...before, ...patch });
    await checkReferences(tx, org, request, system.now());
    const row = await tx.get(
      `UPDATE firewall_rules SET direction = $3, protocol = $4, ports = $5, peer = $6, target = $7, description = $8
       WHERE org_id = $1 AND id = $2 RETURNING ${ruleColumns}`,
      [org.id, id, ...valuesOf(request)],
    );
    const rule = ruleOf(row ?? {});
    await raiseConfigVersion(tx, org.id);
    await record(tx, {
      ...happened(org, system, actor, id),
      type: "rule.updated",
      before: { ...before },
      after: { ...rule },
    });
    return rule;
  });
}

export async function deleteRule({ db, system }: Store, org: Org, id: number, actor: Actor): Promise<void> {
  await db.write(async (tx) => {
    const before = await findRule(tx, org, id);
    await tx.run("DELETE FROM firewall_rules WHERE org_id = $1 AND id = $2", [org.id, id]);
    await raiseConfigVersion(tx, org.id);
    await record(tx, { ...happened(org, system, actor, id), type: "rule.deleted", before: { ...before } });
  });
}

/** May one node reach another, and by which rule? Both must be active. */
export async function testRules(
  { db }: Pick<ServerOptions, "db">,
  org: Org,
  { from, to, protocol, port }: RuleTest,
): Promise<Verdict> {
  const [sender, receiver] = [await memberOf(db, org, from, "from"), await memberOf(db, org, to, "to")];
  for (const { state, name } of [sender, receiver]) {
    if (state !== "active") return { allowed: false, rule_id: null, reason: `The node ${name} is ${state}.` };
  }
  return decide(await listRules(db, org), sender, receiver, { protocol, port });
}

async function memberOf(
  reader: Pick<Reader, "get">,
  org: Org,
  id: number,
  field: string,
): Promise<Member & { state: string }> {
  return findNode(reader, org.id, id).catch((error: unknown) => {
    throw error instanceof AppError && error.code === "not_found" ? noSuchNode(id, field) : error;
  });
}

function noSuchNode(id: number, field: string): AppError {
  return new AppError("validation_failed", `There is no node ${id}.`, {
    errors: { [field]: [`There is no node ${id}.`] },
  });
}

/** Groups exist from when a rule speaks of them; nodes must be there already. */
async function checkReferences(tx: Transaction, org: Org, rule: RuleRequest, now: number): Promise<void> {
  for (const field of ["peer", "target"] as const) {
    const side = rule[field];
    if ("group" in side) await ensureGroups(tx, org.id, [side.group], now);
    if (!("node" in side)) continue;
    const row = await tx.get("SELECT state FROM nodes WHERE org_id = $1 AND id = $2", [org.id, side.node]);
    if (row === undefined || row["state"] === "revoked") throw noSuchNode(side.node, field);
  }
}

function valuesOf(rule: RuleRequest): string[] {
  const { direction, protocol, ports, peer, target, description = "" } = rule;
  return [direction, protocol, ports, JSON.stringify(peer), JSON.stringify(target), description];
}

function happened(org: Org, system: ServerOptions["system"], actor: Actor, id: number) {
  return { orgId: org.id, at: system.now(), actor, subject: `rule/${id}` };
}
