// What was in force at a moment, as a signed report: the policy, or who could reach a node. The audit log gives the rows of that
// moment (history/), and the code that reads today's rows reads them.

import type { AnswerOf } from "../../api/endpoint.ts";
import type { PastQuery, PastReport, policyApi } from "../../api/policy.ts";
import type { Rule } from "../../api/rules.ts";
import { AppError } from "../../base/errors.ts";
import { formatTime } from "../../base/quantities.ts";
import { decodeBundle } from "../../pki/bundle.ts";
import { signReport } from "../../pki/signed-messages.ts";
import { certifiedGroups } from "../../protocol/users-groups.ts";
import { readPast, type Past } from "../history/read-past.ts";
import { recordNotes } from "../history/record-notes.ts";
import { inSlices, nextRound } from "../http/heavy-work.ts";
import { openOrderKey } from "../nodes/contact/orders.ts";
import type { ServerOptions } from "../options.ts";
import { decide, testable, type Member, type TestableRules } from "../policy/firewall.ts";
import { readProviders } from "../policy/group-users.ts";
import { providerWords } from "../policy/provider-words.ts";
import { openMemory } from "../store/sqlite/memory.ts";
import type { Reader } from "../store/database.ts";
import { queryAll, queryOne } from "../store/table.ts";
import { certificates } from "../store/tables/certificates.ts";
import { nodes } from "../store/tables/nodes.ts";
import { noteTime } from "../store/tables/policy-changes.ts";
import { organizations } from "../store/tables/organizations.ts";
import { readSnapshot } from "./current.ts";
import { renderPolicy, showRule, sideWriter } from "./render.ts";

type Deps = Pick<ServerOptions, "db" | "secretKey" | "system" | "dataDirectory">;
type Org = { id: number; slug: string };
type Answer = Pick<PastReport, "policy" | "access" | "refused" | "rules">;

/** Throws conflict if the audit log does not tell, bad_request for a moment to come. */
export async function reportPast(
  deps: Deps,
  org: Org,
  asked: PastQuery,
): Promise<AnswerOf<typeof policyApi.past>> {
  const { db, secretKey, system } = deps;
  const { at, from, to, protocol, port, head } = asked;
  if (at > (await noteTime(db))) throw new AppError("bad_request", "This moment has not come yet.");
  if (from !== undefined && to === undefined) throw new AppError("bad_request", "Give `to`, too.");
  await recordNotes(deps, org.id);
  const past = await readPast(deps, org, at, head);
  const { rows, chain, archives, last = null, doubts } = past;
  if (rows === undefined) throw unknown(past, at);
  const memory = await inSlices(openMemory(org.id, rows));
  try {
    const report: PastReport = {
      format: 1,
      organization: org.slug,
      order_key: (await queryOne(db, publicKey, publicKeySql, [org.id]))?.orderPublic ?? noKey(),
      at: new Date(at).toISOString(),
      made_at: formatTime(system.now()),
      asked: { from: from ?? null, to: to ?? null, protocol, port: port ?? null },
      ...(await answerFrom(db, memory, org.id, asked)),
      chain: {
        events: chain.events,
        head: chain.head,
        last,
        noted: head === undefined ? null : { hash: head, event: past.noted ?? null },
        archives,
      },
      doubts,
    };
    const text = JSON.stringify(report);
    return { report: text, signature: await signReport(text, await openOrderKey(db, org.id, secretKey)) };
  } finally {
    memory.close();
  }
}

const publicKey = organizations.pick("orderPublic");
const publicKeySql = `SELECT ${publicKey.select()} FROM organizations WHERE id = $1`;

function noKey(): never {
  throw new AppError("not_found", "There is no such organization.");
}

function unknown({ since, doubts }: Past, at: number): AppError {
  const from = since === undefined ? "" : ` It does from ${formatTime(since)} on.`;
  const [hint = "Versions before that one did not record all that decides who reaches whom."] = doubts;
  return new AppError(
    "conflict",
    `The audit log does not tell what was in force at ${formatTime(at)}.${from}`,
    { hint },
  );
}

/** `memory`: the rows of the moment. */
async function answerFrom(db: Reader, memory: Reader, orgId: number, asked: PastQuery): Promise<Answer> {
  const present = await readSnapshot(memory, orgId);
  // Providers belong to the installation as well: they have today's names.
  const providers = await readProviders(db, orgId);
  const snapshot = { ...present, providers, words: providerWords(providers, present.providerGroups) };
  if (asked.to === undefined)
    return { policy: await renderPolicy(memory, orgId, snapshot), access: [], refused: 0, rules: [] };
  const members = await activeNodes(memory, orgId);
  const to = named(members, asked.to);
  const senders =
    asked.from === undefined ? members.filter(({ id }) => id !== to.id) : [named(members, asked.from)];
  const valid = await validCertificates(memory, orgId, asked.at);
  const rules = await inSlices(testable(snapshot.rules));
  const all: Answer["access"] = [];
  for (const [at, from] of senders.entries()) {
    all.push(accessOf(rules, { from, to, asked, valid }));
    if (at % 50 === 49) await nextRound();
  }
  const access = asked.from === undefined ? all.filter(({ allowed }) => allowed) : all;
  const ids = new Set(access.flatMap(({ rule_id, outbound_rule_id }) => [rule_id, outbound_rule_id]));
  const used = snapshot.rules.filter(({ id }) => ids.has(id));
  return {
    policy: null,
    access,
    refused: all.length - access.length,
    rules: await shown(memory, orgId, snapshot, used),
  };
}

async function shown(
  memory: Reader,
  orgId: number,
  snapshot: Parameters<typeof sideWriter>[2],
  rules: readonly Rule[],
): Promise<PastReport["rules"]> {
  const side = await sideWriter(
    memory,
    orgId,
    snapshot,
    rules.flatMap(({ peer, target }) => [peer, target]),
  );
  return rules.map((rule) => ({ id: rule.id, ...showRule(rule, side) }));
}

const nodePick = nodes.pick("id", "name", "ip", "ip6", "groups", "ownerId", "ownerGroups");
const nodeSql = `SELECT ${nodePick.select()} FROM nodes WHERE org_id = $1 AND state = 'active' ORDER BY id`;

async function activeNodes(memory: Reader, orgId: number): Promise<Member[]> {
  const rows = await queryAll(memory, nodePick, nodeSql, [orgId]);
  return rows.map(({ id, name, ip, ip6, ...owned }) => ({
    id,
    name,
    ip,
    ip6,
    groups: certifiedGroups(owned),
  }));
}

function named(members: readonly Member[], name: string): Member {
  const found = members.find((each) => each.name === name);
  if (found !== undefined) return found;
  throw new AppError("bad_request", `No node was active with the name ${name} then.`);
}

type Valid = ReadonlyMap<number, PastReport["access"][number]["certificates"]>;
const certificatePick = certificates.pick("nodeId", "fingerprint", "version", "notBefore", "notAfter", "pem");
/** A CA that is no longer in the bundle vouches for nothing. */
const certificateSql = `SELECT ${certificatePick.select("c")} FROM certificates c JOIN authorities a ON a.id = c.authority_id
  WHERE c.org_id = $1 AND c.state <> 'blocked' AND c.not_before <= $2 AND c.not_after > $2
    AND a.retired_at IS NULL AND a.not_after > $2 ORDER BY c.id`;

/** The certificates with which a node was let in, by its id. */
async function validCertificates(memory: Reader, orgId: number, at: number): Promise<Valid> {
  const found = new Map<number, PastReport["access"][number]["certificates"]>();
  for (const [count, row] of (
    await queryAll(memory, certificatePick, certificateSql, [orgId, at])
  ).entries()) {
    const { nodeId, fingerprint, version, notBefore, notAfter, pem } = row;
    const groups = decodeBundle(pem).flatMap((each) => each.groups);
    const times = { not_before: formatTime(notBefore), not_after: formatTime(notAfter) };
    const known = found.get(nodeId) ?? [];
    found.set(nodeId, [...known, { fingerprint, version, groups, ...times }]);
    if (count % 20 === 19) await nextRound();
  }
  return found;
}

type Pair = { from: Member; to: Member; asked: PastQuery; valid: Valid };

/**
 * Peers know the groups of a node by its certificate: one that was made before the node left a group still has it, until it is
 * blocked.
 */
function accessOf(
  rules: TestableRules,
  { from, to, asked: { protocol, port }, valid }: Pair,
): PastReport["access"][number] {
  const certificates = valid.get(from.id) ?? [];
  const pair = { from: { id: from.id, name: from.name }, to: { id: to.id, name: to.name }, certificates };
  const without = [from, to].find(({ id }) => (valid.get(id) ?? []).length === 0);
  if (without !== undefined) {
    const reason = `${without.name} had no valid certificate.`;
    return { ...pair, allowed: false, rule_id: null, outbound_rule_id: null, reason };
  }
  const packet = { protocol, port };
  const verdict = decide(rules, from, to, packet);
  if (verdict.allowed) return { ...pair, ...verdict };
  for (const { fingerprint, groups } of certificates) {
    const former = decide(rules, { ...from, groups }, to, packet);
    if (!former.allowed) continue;
    const reason = `${former.reason} The node had left the group, but its certificate ${fingerprint.slice(0, 16)}… still had it.`;
    return { ...pair, ...former, reason };
  }
  return { ...pair, ...verdict };
}
