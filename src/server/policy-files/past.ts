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
import { record, type Actor, type AuditEvent } from "../audit/record.ts";
import { readPast, type Past } from "../history/read-past.ts";
import { recordNotes } from "../history/record-notes.ts";
import { inSlices, nextRound } from "../http/heavy-work.ts";
import { openOrderKey } from "../nodes/contact/orders.ts";
import type { ServerOptions } from "../options.ts";
import {
  between,
  decide,
  testable,
  type Member,
  type Parsed,
  type TestableRules,
} from "../policy/firewall.ts";
import { readProviders } from "../policy/group-users.ts";
import { accessBetween, accessOf as packetsOf, intersect, showAccess, subtract } from "../policy/packets.ts";
import { providerWords } from "../policy/provider-words.ts";
import { openMemory } from "../store/sqlite/memory.ts";
import type { Reader } from "../store/database.ts";
import { computed, integer, queryAll, queryOne, text, textOrNull } from "../store/table.ts";
import { certificates } from "../store/tables/certificates.ts";
import { nodes } from "../store/tables/nodes.ts";
import { flows, flowSides } from "../store/tables/paths.ts";
import { noteTime } from "../store/tables/policy-changes.ts";
import { organizations } from "../store/tables/organizations.ts";
import { readSnapshot } from "./current.ts";
import { renderPolicy, showRule, sideWriter } from "./render.ts";

type Deps = Pick<ServerOptions, "db" | "secretKey" | "system" | "dataDirectory">;
type Org = { id: number; slug: string };
type Answer = Pick<PastReport, "policy" | "access" | "refused" | "did" | "rules">;

/** Throws conflict if the audit log does not tell, bad_request for a moment to come. */
export async function reportPast(
  deps: Deps,
  org: Org,
  asked: PastQuery,
  actor: Actor,
): Promise<AnswerOf<typeof policyApi.past>> {
  const { db, secretKey, system } = deps;
  const { at, from, to, protocol, port, head } = asked;
  if (at > (await noteTime(db))) throw new AppError("bad_request", "This moment has not come yet.");
  if (from !== undefined && to === undefined) throw new AppError("bad_request", "Give `to`, too.");
  await recordNotes(deps, org.id);
  const past = await readPast(deps, org, at, head);
  const { rows, chain, archives, last = null, doubts } = past;
  if (rows === undefined) throw await unknown(db, org, past, at);
  const memory = await inSlices(openMemory(org.id, rows)).catch((error: unknown) => {
    throw unreadable(error);
  });
  try {
    const answer = await answerFrom(db, memory, org.id, asked);
    // Whoever reads flows is recorded.
    if (answer.did !== null)
      await db.writeFor({ org: org.id }, (tx) => record(tx, flowsRead(org, asked, actor, system)));
    const report: PastReport = {
      format: 1,
      organization: org.slug,
      order_key: (await queryOne(db, publicKey, publicKeySql, [org.id]))?.orderPublic ?? noKey(),
      at: new Date(at).toISOString(),
      made_at: formatTime(system.now()),
      asked: {
        from: from ?? null,
        to: to ?? null,
        protocol: packetOf(asked)?.protocol ?? protocol ?? "any",
        port: port ?? null,
      },
      ...answer,
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

function flowsRead(org: Org, { at, to }: PastQuery, actor: Actor, { now }: Deps["system"]): AuditEvent {
  const after = { at: formatTime(at), to };
  return {
    orgId: org.id,
    at: now(),
    type: "flows.exported",
    actor,
    subject: `organization/${org.slug}`,
    after,
  };
}

function noKey(): never {
  throw new AppError("not_found", "There is no such organization.");
}

function unreadable(cause: unknown): AppError {
  const message = "What the audit log holds of this moment cannot be read: it was changed.";
  return new AppError("conflict", message, { cause, hint: "Compare it with a backup, and verify it." });
}

const creation = organizations.pick("slug", "createdAt");
const creationSql = `SELECT ${creation.select()} FROM organizations WHERE id = $1`;

async function unknown(db: Reader, org: Org, { since, doubts }: Past, at: number): Promise<AppError> {
  const { createdAt = 0 } = (await queryOne(db, creation, creationSql, [org.id])) ?? {};
  if (at < createdAt) {
    const message = `The organization ${org.slug} did not exist at ${formatTime(at)}. It was created at ${formatTime(createdAt)}.`;
    return new AppError("conflict", message);
  }
  const from = since === undefined ? "" : ` It does from ${formatTime(since)} on.`;
  const [hint = "Before, a version ran that did not record all that decides who reaches whom."] = doubts;
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
    return {
      policy: await renderPolicy(memory, orgId, snapshot),
      access: [],
      refused: 0,
      did: null,
      rules: [],
    };
  const members = await activeNodes(memory, orgId);
  const to = named(members, asked.to);
  const senders =
    asked.from === undefined ? members.filter(({ id }) => id !== to.id) : [named(members, asked.from)];
  const others = await validOf(memory, to.id, asked.at);
  const rules = await inSlices(testable(snapshot.rules));
  const all: Answer["access"] = [];
  /** Where everything is asked for, several rules decide. */
  const several = new Set<number>();
  for (const [at, from] of senders.entries()) {
    const own = await validOf(memory, from.id, asked.at);
    all.push(accessOf(rules, { from, to, asked, own, others, several }));
    if (at % 20 === 19) await nextRound();
  }
  const access = asked.from === undefined ? all.filter(({ allowed }) => allowed) : all;
  const ids = new Set(access.flatMap(({ rule_id, outbound_rule_id }) => [rule_id, outbound_rule_id]));
  const used = snapshot.rules.filter(({ id }) => ids.has(id) || several.has(id));
  return {
    policy: null,
    access,
    refused: all.length - access.length,
    did: await whoDid(db, to.id, asked),
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
const pageSize = 500;
const nodeSql = `SELECT ${nodePick.select()} FROM nodes WHERE org_id = $1 AND state = 'active' AND id > $2
  ORDER BY id LIMIT ${pageSize}`;

async function activeNodes(memory: Reader, orgId: number): Promise<Member[]> {
  const found: Member[] = [];
  for (let last = 0; ;) {
    const rows = await queryAll(memory, nodePick, nodeSql, [orgId, last]);
    for (const { id, name, ip, ip6, ...owned } of rows)
      found.push({ id: (last = id), name, ip, ip6, groups: certifiedGroups(owned) });
    if (rows.length < pageSize) return found;
    await nextRound();
  }
}

function named(members: readonly Member[], name: string): Member {
  const found = members.find((each) => each.name === name);
  if (found !== undefined) return found;
  throw new AppError("bad_request", `No node was active with the name ${name} then.`);
}

const flowPick = computed({
  from: integer(),
  name: textOrNull(),
  address: text(),
  protocol: text(),
  port: integer(),
  flows: integer(),
  firstAt: integer(),
  lastAt: integer(),
});
const mostFlows = 1000;
const flowSql = `SELECT f.peer AS "from", n.name, f.address, f.protocol, f.port, f.flows, f.first_at, f.last_at
  FROM flows f LEFT JOIN nodes n ON n.id = f.peer WHERE f.node_id = $1 AND f.day = $2 AND f.side = $3
    AND ($4 = '' OR f.protocol = $4) ORDER BY f.last_at DESC LIMIT ${mostFlows}`;

/** What the machine of the node reported of that day. Names are those of today. */
async function whoDid(db: Reader, nodeId: number, asked: PastQuery): Promise<Answer["did"]> {
  const { at, from, port } = asked;
  const protocol = packetOf(asked)?.protocol ?? asked.protocol ?? "";
  const day = Math.floor(at / 86_400_000);
  if ((await flows.find(db, { nodeId, day, side: flowSides.summary })) === undefined) return null;
  const rows = await queryAll(db, flowPick, flowSql, [nodeId, day, flowSides.in, protocol]);
  return rows
    .filter((row) => (port === undefined || row.port === port) && (from === undefined || row.name === from))
    .map(({ from: id, name, firstAt, lastAt, ...row }) => ({
      from: name === null ? null : { id, name },
      ...row,
      first_at: formatTime(firstAt),
      last_at: formatTime(lastAt),
    }));
}

type Certificates = PastReport["access"][number]["certificates"];
const certificatePick = certificates.pick("fingerprint", "version", "notBefore", "notAfter", "pem");
/** A CA that is no longer in the bundle vouches for nothing. */
const certificateSql = `SELECT ${certificatePick.select("c")} FROM certificates c JOIN authorities a ON a.id = c.authority_id
  WHERE c.node_id = $1 AND c.state <> 'blocked' AND c.not_before <= $2 AND c.not_after > $2
    AND a.retired_at IS NULL AND a.not_after > $2 ORDER BY c.id`;

/** The certificates with which peers let the node in. */
async function validOf(memory: Reader, nodeId: number, at: number): Promise<Certificates> {
  const rows = await queryAll(memory, certificatePick, certificateSql, [nodeId, at]);
  return rows.map(({ fingerprint, version, notBefore, notAfter, pem }) => ({
    fingerprint,
    version,
    groups: decodeBundle(pem).flatMap((each) => each.groups),
    not_before: formatTime(notBefore),
    not_after: formatTime(notAfter),
  }));
}

/** Undefined: everything is asked for, of one protocol or of all. */
const packetOf = ({ protocol = "tcp", port }: PastQuery) =>
  port === undefined && protocol !== "icmp" ? undefined : { protocol, port };

type Pair = {
  from: Member;
  to: Member;
  asked: PastQuery;
  own: Certificates;
  others: Certificates;
  /** Takes the rules by which something of everything was permitted. */
  several: Set<number>;
};

/**
 * Peers know the groups of a node by its certificate: one that was made before the node left a group still has it, until it is
 * blocked.
 */
function accessOf(rules: TestableRules, asking: Pair): PastReport["access"][number] {
  const { from, to, asked, own: certificates, others } = asking;
  const pair = { from: { id: from.id, name: from.name }, to: { id: to.id, name: to.name }, certificates };
  const without = certificates.length === 0 ? from : others.length === 0 ? to : undefined;
  if (without !== undefined) {
    const reason = `${without.name} had no valid certificate.`;
    return { ...pair, allowed: false, rule_id: null, outbound_rule_id: null, reason };
  }
  const packet = packetOf(asked);
  if (packet === undefined) return { ...pair, ...everything(rules, asking) };
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

/** All that was permitted, and what only certificates from before the node left a group still permitted. */
function everything(
  rules: TestableRules,
  { from, to, asked: { protocol }, own, several }: Pair,
): Omit<PastReport["access"][number], "from" | "to" | "certificates"> {
  const wanted = packetsOf(protocol ?? "any", "any");
  const permits = (groups: readonly string[]) => {
    const sender = { ...from, groups: [...groups] };
    return { sender, access: intersect(accessBetween(rules, sender, to), wanted) };
  };
  const present = permits(from.groups);
  const shown = showAccess(present.access);
  const senders = shown.length > 0 ? [present.sender] : [];
  const reasons = shown.length > 0 ? [`The rules permit ${shown.join(", ")}.`] : [];
  const all = new Set(shown);
  for (const { fingerprint, groups } of own) {
    if (groups.every((group) => from.groups.includes(group))) continue;
    const { sender, access } = permits(groups);
    const more = showAccess(subtract(access, present.access));
    if (more.length === 0) continue;
    senders.push(sender);
    for (const each of more) all.add(each);
    reasons.push(
      `The node had left a group, but its certificate ${fingerprint.slice(0, 16)}… still had it, and with it ${more.join(", ")}.`,
    );
  }
  const isAbout = (rule: Parsed) => protocol === undefined || ["any", protocol].includes(rule.protocol);
  for (const sender of senders) {
    for (const { id } of rules.outbound.filter(isAbout).filter(between(sender, to))) several.add(id);
    for (const { id } of rules.inbound.filter(isAbout).filter(between(to, sender))) several.add(id);
  }
  const reason =
    all.size > 0 ? reasons.join(" ") : `The rules permit nothing from ${from.name} to ${to.name}.`;
  return { allowed: all.size > 0, rule_id: null, outbound_rule_id: null, reason, permitted: [...all] };
}
