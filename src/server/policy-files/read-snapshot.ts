// Reads an organization's policy as it is at one moment, for plans, answers and upkeep. Reads in several queries, so that other
// requests are answered in between, and again if the state changed meanwhile.

import { AppError } from "../../base/errors.ts";
import { nextRound } from "../http/heavy-work.ts";
import { storedTests } from "../policy/edit-policy.ts";
import { stateStamp } from "../policy/state-stamp.ts";
import { providerWords } from "../policy/provider-words.ts";
import {
  readProviderUsers,
  readGroupUsers,
  readProviderGroups,
  readProviders,
  type NamedProvider,
} from "../policy/group-users.ts";
import { readPolicyNodes } from "../policy/policy-nodes.ts";
import { listRules } from "../policy/stored-rules.ts";
import type { Reader } from "../store/database.ts";
import { computed, integer, queryAll, text } from "../store/table.ts";
import { isOpenToken } from "../store/tables/joining.ts";
import { identityProviders } from "../store/tables/providers.ts";
import { memberships } from "../store/tables/organizations.ts";
import { nameAliases, nodeGroups } from "../store/tables/nodes.ts";
import { policies, type PolicyRow } from "../store/tables/policies.ts";
import type { Current } from "./differences.ts";

export type Snapshot = Current & {
  row: PolicyRow | undefined;
  providers: readonly NamedProvider[];
  version: number;
  /** Differs from an earlier one if a node or the policy changed in between. */
  stamp: string;
};

const maxTries = 5;

/** `now`: ms. */
export async function readSnapshot(reader: Reader, orgId: number, now: number): Promise<Snapshot> {
  for (let tries = 1; ; tries++) {
    const stamp = await stateStamp(reader, orgId);
    const row = await policies.find(reader, { orgId });
    const nodes = await readPolicyNodes(reader, orgId, nextRound);
    const rules = await listRules(reader, { id: orgId });
    await nextRound();
    const isFromToken = await tokenMemberships(reader, orgId);
    const providers = await readProviders(reader, orgId);
    const providerGroups = await readProviderGroups(reader, orgId);
    const isFromProvider = await providerMemberships(reader, orgId);
    await nextRound();
    const snapshot: Snapshot = {
      row,
      version: row?.version ?? 0,
      stamp,
      rules,
      nodes,
      groups: await nodeGroups.all(reader, { orgId }),
      tests: storedTests(row),
      users: await readMembers(reader, orgId),
      aliases: await nameAliases.all(reader, { orgId, deletedAt: null }),
      tokenGroups: await openTokenGroups(reader, orgId, now),
      people: await readGroupUsers(reader, orgId),
      providers,
      providerGroups,
      words: providerWords(providers, providerGroups),
      providerUsers: await readProviderUsers(reader, orgId, providerGroups),
      isGivenElsewhere: (node, group) => isFromToken(node, group) || isFromProvider(node, group),
    };
    await nextRound();
    if ((await stateStamp(reader, orgId)) === stamp) return snapshot;
    if (tries === maxTries) {
      throw new AppError("busy", "The organization changes all the time. Try again in a moment.");
    }
  }
}

const memberPick = memberships.pick("email", "userId");

/** The ids of the users who are members, by e-mail address. */
async function readMembers(reader: Reader, orgId: number): Promise<Map<string, number>> {
  const sql = `SELECT ${memberPick.select()} FROM memberships WHERE org_id = $1 AND user_id IS NOT NULL`;
  const rows = await queryAll(reader, memberPick, sql, [orgId]);
  return new Map(rows.flatMap(({ email, userId }) => (userId === null ? [] : [[email, userId]])));
}

const groupsPick = computed({ groups: text() });

/** The groups that registration tokens with uses left give. */
async function openTokenGroups(reader: Reader, orgId: number, now: number): Promise<Set<string>> {
  const sql = `SELECT DISTINCT groups FROM registration_tokens WHERE org_id = $1 AND ${isOpenToken("$2")}`;
  const rows = await queryAll(reader, groupsPick, sql, [orgId, now]);
  return new Set(rows.flatMap(({ groups }) => namesIn(groups)));
}

const tokenPick = computed({ id: integer(), groups: text() });
const pageSize = 500;

/** Nodes keep the groups of the token that they registered with. So retention keeps these tokens. */
async function tokenMemberships(reader: Reader, orgId: number): Promise<Current["isGivenElsewhere"]> {
  /** The groups that each token gives, by its id. */
  const given = new Map<number, readonly string[]>();
  for (let last = 0; ;) {
    const rows = await queryAll(
      reader,
      tokenPick,
      `SELECT id, groups FROM registration_tokens
       WHERE org_id = $1 AND groups <> '[]' AND id > $2 ORDER BY id LIMIT ${pageSize}`,
      [orgId, last],
    );
    for (const { id, groups } of rows) given.set(id, namesIn(groups));
    if (rows.length < pageSize) break;
    last = rows.at(-1)?.id ?? last;
    await nextRound();
  }
  return ({ registeredWith }, group) =>
    registeredWith !== null && given.get(registeredWith)?.includes(group) === true;
}

const providerPick = identityProviders.pick("id", "nodeGroups");
const userPick = computed({ userId: integer() });

/** Of the groups that a provider can give (its setting `node_groups`), it alone decides which ones nodes of its users have. */
async function providerMemberships(reader: Reader, orgId: number): Promise<Current["isGivenElsewhere"]> {
  /** The users of the providers that can give a group, by the group. */
  const given = new Map<string, Set<number>>();
  const sql = `SELECT ${providerPick.select()} FROM identity_providers
    WHERE (org_id IS NULL OR org_id = $1) AND node_groups <> '[]'`;
  for (const { id, nodeGroups } of await queryAll(reader, providerPick, sql, [orgId])) {
    const names = nodeGroups.filter((each) => each.orgId === orgId).map(({ nodeGroup }) => nodeGroup);
    if (names.length === 0) continue;
    const usersSql = `SELECT user_id FROM identities WHERE provider_id = $1
      UNION SELECT user_id FROM organization_identities WHERE provider_id = $1`;
    const found = await queryAll(reader, userPick, usersSql, [id]);
    for (const name of names) {
      const users = given.get(name) ?? new Set();
      for (const { userId } of found) users.add(userId);
      given.set(name, users);
    }
  }
  return ({ ownerId }, group) => ownerId !== null && given.get(group)?.has(ownerId) === true;
}

function namesIn(json: string): string[] {
  const value: unknown = JSON.parse(json);
  return Array.isArray(value) ? value.map(String) : [];
}
