// Changes and tests the firewall rules of an organization. firewall.ts defines their meaning.

import * as v from "valibot";
import { AppError, invalidField } from "../../base/errors.ts";
import { parseNetwork } from "../../base/ip.ts";
import { record, type Actor } from "../audit/record.ts";
import { decide, type Member, type TestableRules } from "./firewall.ts";
import {
  isSelf,
  CheckedRule,
  type AskedPatch,
  type AskedRule,
  type Explained,
  type Peer,
  type Rule,
  type RuleTest,
} from "../../api/rules.ts";
import { accessBetween, showAccess } from "./packets.ts";
import { editReach, type Testing } from "./edit-policy.ts";
import { ensureGroups } from "./groups.ts";
import { StoredRule, ruleColumns, ruleOf } from "./stored-rules.ts";
import { findNode } from "../store/nodes.ts";
import { parse } from "../http/parse-input.ts";
import type { ServerOptions } from "../options.ts";
import type { Reader, Transaction } from "../store/database.ts";
import {
  networkOfGroup,
  certifiedGroups,
  isUsersGroup,
  userOfGroup,
  providerOfGroup,
} from "../../protocol/users-groups.ts";
import { queryNumber, queryOne } from "../store/table.ts";
import { memberships } from "../store/tables/organizations.ts";
import { nodes } from "../store/tables/nodes.ts";
import { providerGroups } from "../store/tables/providers.ts";
import { firewallRules } from "../store/tables/policies.ts";
import { raiseConfigVersion } from "../store/versions.ts";

type Store = Pick<ServerOptions, "db" | "system"> & {
  testing: Testing;
  /** The group of the nodes of the users who have it at the provider, which the policy names from now on. */
  nameProviderGroup(tx: Transaction, orgId: number, name: string): Promise<string>;
  /** Groups that the policy no longer names. */
  forgetProviderGroups(tx: Transaction, orgId: number): Promise<void>;
};
type Org = { id: number };

export async function findRule(reader: Reader, org: Org, id: number): Promise<Rule> {
  const sql = `SELECT ${ruleColumns} FROM firewall_rules WHERE org_id = $1 AND id = $2`;
  const found = await queryOne(reader, { parse: ruleOf }, sql, [org.id, id]);
  if (found === undefined) throw new AppError("not_found", "There is no such rule.");
  return found;
}

/** Whether a rule has the node as its peer: then configurations of other nodes contain its name while it is active. */
export async function isPeerOfRule(reader: Reader, org: Org, nodeId: number): Promise<boolean> {
  const row = await reader.get("SELECT id FROM firewall_rules WHERE org_id = $1 AND peer = $2 LIMIT 1", [
    org.id,
    // The column holds JSON text, which is equal for equal sides.
    JSON.stringify({ node: nodeId } satisfies Peer),
  ]);
  return row !== undefined;
}

export async function createRule(store: Store, org: Org, asked: AskedRule, actor: Actor): Promise<Rule> {
  const { system } = store;
  return editRules(store, org, actor, async (tx) => {
    await requireRoom(tx, org);
    const request = parse(CheckedRule, { ...asked, ...(await namedSides(tx, store, org, asked)) });
    await checkReferences(tx, org, request, system.now());
    const row = { ...valuesOf(request), orgId: org.id, createdAt: system.now() };
    const after = v.parse(StoredRule, await firewallRules.insertReturning(tx, row));
    await raiseConfigVersion(tx, org.id);
    await record(tx, { ...ruleEvent(org, system, actor, after.id), type: "rule.created", after });
    return after;
  });
}

export async function patchRule(
  store: Store,
  org: Org,
  id: number,
  patch: AskedPatch,
  actor: Actor,
): Promise<Rule> {
  const { system } = store;
  return editRules(store, org, actor, async (tx) => {
    const before = await findRule(tx, org, id);
    const { id: _, ...fieldsBefore } = before;
    // Fields that are valid one by one may be invalid together.
    const request = parse(CheckedRule, {
      ...fieldsBefore,
      ...patch,
      ...(await namedSides(tx, store, org, patch)),
    });
    await checkReferences(tx, org, request, system.now());
    await firewallRules.update(tx, { orgId: org.id, id }, valuesOf(request));
    if (namesProvider(before)) await store.forgetProviderGroups(tx, org.id);
    const after = v.parse(StoredRule, { id, ...valuesOf(request) });
    await raiseConfigVersion(tx, org.id);
    await record(tx, { ...ruleEvent(org, system, actor, id), type: "rule.updated", before, after });
    return after;
  });
}

/** The sides that the request names as groups of providers, with the groups that stand for these. */
async function namedSides(
  tx: Transaction,
  { nameProviderGroup }: Store,
  org: Org,
  asked: AskedPatch,
): Promise<{ peer?: Peer; target?: Peer }> {
  const named: { peer?: Peer; target?: Peer } = {};
  for (const field of ["peer", "target"] as const) {
    const side = asked[field];
    if (side !== undefined && "idp" in side)
      named[field] = { group: await nameProviderGroup(tx, org.id, side.idp) };
  }
  return named;
}

const namesProvider = ({ peer, target }: Pick<Rule, "peer" | "target">) =>
  [peer, target].some((side) => "group" in side && providerOfGroup(side.group) !== undefined);

export async function deleteRule(store: Store, org: Org, id: number, actor: Actor): Promise<void> {
  const { system } = store;
  await editRules(store, org, actor, async (tx) => {
    const before = await findRule(tx, org, id);
    await firewallRules.delete(tx, { orgId: org.id, id });
    if (namesProvider(before)) await store.forgetProviderGroups(tx, org.id);
    await raiseConfigVersion(tx, org.id);
    await record(tx, { ...ruleEvent(org, system, actor, id), type: "rule.deleted", before });
  });
}

function editRules<T>(
  { db, system, testing }: Store,
  org: Org,
  actor: Actor,
  change: (tx: Transaction) => Promise<T>,
): Promise<T> {
  return editReach({ db, orgId: org.id, now: system.now(), actor, testing }, change);
}

/**
 * Each node applies all rules that concern it, and compares packets of new flows with them one after the other. More rules
 * from earlier versions go on working.
 */
export const maxRules = 2000;

async function requireRoom(tx: Transaction, org: Org): Promise<void> {
  const count = await queryNumber(tx, "SELECT count(*) AS n FROM firewall_rules WHERE org_id = $1", [org.id]);
  if (count < maxRules) return;
  throw new AppError(
    "too_many_rules",
    `The organization has ${count} firewall rules; the maximum is ${maxRules}. Delete rules that are not needed, or let one rule ` +
      "name a group or a network instead of many single nodes.",
  );
}

/** Whether one node may reach another, and by which rule. Both must be active. */
export async function testRules(
  { db }: Pick<ServerOptions, "db">,
  org: Org,
  rules: () => Promise<TestableRules>,
  { from, to, protocol, port }: RuleTest,
): Promise<Explained> {
  const [sender, receiver] = [await memberOf(db, org, from, "from"), await memberOf(db, org, to, "to")];
  for (const { state, name } of [sender, receiver]) {
    if (state !== "active")
      return {
        allowed: false,
        rule_id: null,
        outbound_rule_id: null,
        reason: `The node ${name} is ${state}.`,
        permitted: [],
      };
  }
  const tested = await rules();
  const permitted = showAccess(accessBetween(tested, sender, receiver));
  return { ...decide(tested, sender, receiver, { protocol, port }), permitted };
}

async function memberOf(
  reader: Reader,
  org: Org,
  id: number,
  field: string,
): Promise<Member & { state: string }> {
  const node = await findNode(reader, org.id, id).catch((error: unknown) => {
    throw error instanceof AppError && error.code === "not_found" ? noSuchNode(id, field) : error;
  });
  return { ...node, groups: certifiedGroups(node) };
}

const noSuchNode = (id: number, field: string) => invalidField(field, `There is no node ${id}.`);

/** The groups of nodes that a request names, which it creates if there are none. */
export const groupsIn = ({ peer, target }: AskedPatch): string[] =>
  [peer, target].flatMap((side) =>
    side !== undefined && "group" in side && !isUsersGroup(side.group) ? [side.group] : [],
  );

/** Creates the groups of the rule. Its nodes must exist, and its users must be members. Throws validation_failed. */
async function checkReferences(tx: Transaction, org: Org, rule: CheckedRule, now: number): Promise<void> {
  for (const field of ["peer", "target"] as const) {
    const side = rule[field];
    if (isSelf(side)) continue;
    if ("group" in side) await checkGroup(tx, org, side.group, field, now);
    if ("node" in side) await requireLasting(tx, org, side.node, field);
  }
}

/** Groups with certain prefixes stand for a network, for those of a provider's group, or for a user: then these must exist. */
async function checkGroup(
  tx: Transaction,
  org: Org,
  group: string,
  field: "peer" | "target",
  now: number,
): Promise<void> {
  const network = networkOfGroup(group);
  const userId = userOfGroup(group);
  if (network !== undefined) requireTarget(field, network);
  else if (providerOfGroup(group) !== undefined) await requireProviderGroup(tx, org, group, field);
  else if (userId !== undefined) await requireMember(tx, org, userId, field);
  else await ensureGroups(tx, org.id, [group], now);
}

/** A node that is there, and stays. */
async function requireLasting(tx: Transaction, org: Org, nodeId: number, field: string): Promise<void> {
  const node = await nodes.find(tx, { orgId: org.id, id: nodeId });
  if (node === undefined || node.state === "revoked") throw noSuchNode(nodeId, field);
  if (node.ephemeralSilenceS === null) return;
  const sentence = `The node ${node.name} is ephemeral: name a group instead, which its token gives.`;
  throw invalidField(field, sentence);
}

/** As a peer, the network itself says the same: `{"cidr": …}`. */
function requireTarget(field: string, network: string): void {
  if (field === "peer") throw invalidField(field, `As a peer, enter the network itself: ${network}.`);
  if (parseNetwork(network)?.text === network) return;
  throw invalidField(field, `${network} is not a network such as 192.168.7.0/24.`);
}

async function requireMember(tx: Transaction, org: Org, userId: number, field: string): Promise<void> {
  if ((await memberships.find(tx, { orgId: org.id, userId })) !== undefined) return;
  throw invalidField(field, `User ${userId} is not a member of the organization.`);
}

async function requireProviderGroup(tx: Transaction, org: Org, people: string, field: string): Promise<void> {
  if ((await providerGroups.find(tx, { orgId: org.id, people })) !== undefined) return;
  const sentence = `The policy names no group ${people} of a provider. Enter its name: {"idp": "GROUP"}.`;
  throw invalidField(field, sentence);
}

function valuesOf({ description = "", ...rule }: CheckedRule) {
  return { ...rule, description };
}

function ruleEvent(org: Org, system: ServerOptions["system"], actor: Actor, id: number) {
  return { orgId: org.id, at: system.now(), actor, subject: `rule/${id}` };
}
