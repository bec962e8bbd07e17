// Makes a signed report of what was in force at a moment: the policy, or who could reach a node. history/ rebuilds the rows of that
// moment from the audit log into a database in memory, and the code that reads today's rows reads them.

import type { AnswerOf } from "../../api/endpoint.ts";
import type { PastQuery, PastReport, pastApi } from "../../api/history/past.ts";
import { AppError } from "../../base/errors.ts";
import { formatTime } from "../../base/quantities.ts";
import { decodeBundle } from "../../pki/bundle.ts";
import { signReport } from "../../pki/signed-messages.ts";
import { publicHalf } from "../../pki/tokens.ts";
import { readPast, type Past } from "../history/read-past.ts";
import { recordNotes } from "../history/record-notes.ts";
import { inSlices, nextRound } from "../http/heavy-work.ts";
import { openOrderKey } from "../nodes/contact/orders.ts";
import type { ServerOptions } from "../options.ts";
import { testable, type Member } from "../policy/firewall.ts";
import { readProviders } from "../policy/group-users.ts";
import { readSnapshot } from "../policy-files/read-snapshot.ts";
import { renderPolicy, showRule, readSideWriter } from "../policy-files/render.ts";
import { providerWords } from "../policy/provider-words.ts";
import { openMemory } from "../store/sqlite/memory.ts";
import type { Reader } from "../store/database.ts";
import { computed, joined, queryAll, textOrNull } from "../store/table.ts";
import { certificates } from "../store/tables/certificates.ts";
import { flowBlockOf, flows, flowSides } from "../store/tables/paths.ts";
import { noteTime } from "../store/tables/policy-changes.ts";
import { type OrganizationRow, requireOrganization } from "../store/tables/organizations.ts";
import { decideAccess, packetOf, type Certificates, type Found } from "./past-access.ts";
import { readReporters, requirePast } from "./read-flows.ts";
import type { Org } from "../http/route.ts";

type Deps = Pick<ServerOptions, "db" | "secretKey" | "system" | "dataDirectory">;
type Answer = Pick<PastReport, "policy" | "access" | "refused" | "did" | "rules">;

/**
 * `after`: the details of the event of `withFlows`, if the report has flows. Throws conflict if the audit log does not tell what was
 * in force, and bad_request for a moment in the future.
 */
export async function reportPast(
  deps: Deps,
  { id: orgId, slug }: Org,
  asked: PastQuery,
): Promise<{ body: AnswerOf<typeof pastApi.retrieve>; after: Record<string, unknown> | undefined }> {
  const { db, secretKey, system } = deps;
  const { at, from = null, to, protocol = "any", port = null, head } = asked;
  // By the clock of the database, from which the notes of changed rows have their times (policy-changes.ts).
  requirePast(at, await noteTime(db));
  if (to === undefined && (from !== null || port !== null || asked.protocol !== undefined))
    throw new AppError("bad_request", "Give `to`, too.");
  const key = await openOrderKey(db, orgId, secretKey);
  const org = await requireOrganization(db, { id: orgId });
  // The newest notes may not be in the audit log yet.
  await recordNotes(deps, orgId);
  const past = await readPast(deps, org, at, head);
  const { rows, chain, doubts } = past;
  if (rows === undefined) throw unknownMoment(org, past, at);
  const memory = await inSlices(openMemory(orgId, rows)).catch((error: unknown) => {
    throw unreadable(error);
  });
  try {
    const answer = await answerFrom(db, memory, org, asked);
    const report: PastReport = {
      format: 1,
      organization: slug,
      order_key: publicHalf(key),
      at: new Date(at).toISOString(),
      made_at: formatTime(system.now()),
      asked: { from, to: to ?? null, protocol: packetOf(asked)?.protocol ?? protocol, port },
      ...answer,
      chain,
      doubts,
    };
    const text = JSON.stringify(report);
    const signature = await signReport(text, key);
    const after = answer.did === null ? undefined : { at: formatTime(at), to };
    return { body: { report: text, signature }, after };
  } finally {
    memory.close();
  }
}

function unreadable(cause: unknown): AppError {
  const message = "What the audit log holds of this moment cannot be read: it was changed.";
  return new AppError("conflict", message, { cause, hint: "Compare it with a backup, and verify it." });
}

function unknownMoment({ slug, createdAt }: OrganizationRow, { since, doubts }: Past, at: number): AppError {
  if (at < createdAt) {
    const message = `The organization ${slug} did not exist at ${formatTime(at)}. It was created at ${formatTime(createdAt)}.`;
    return new AppError("conflict", message);
  }
  const from = since === undefined ? "" : ` It does from ${formatTime(since)} on.`;
  const [hint = "Before, a version ran that did not record all that decides who reaches whom."] = doubts;
  const message = `The audit log does not tell what was in force at ${formatTime(at)}.${from}`;
  return new AppError("conflict", message, { hint });
}

/** `memory`: the rows of the moment. */
async function answerFrom(
  db: Reader,
  memory: Reader,
  org: OrganizationRow,
  asked: PastQuery,
): Promise<Answer> {
  const { id: orgId } = org;
  const stored = await readSnapshot(memory, orgId, asked.at);
  // The log of an organization has no providers of the whole installation, so today's names are used.
  const providers = await readProviders(db, orgId);
  const snapshot = { ...stored, providers, words: providerWords(providers, stored.providerGroups) };
  if (asked.to === undefined) {
    const policy = await renderPolicy(memory, orgId, snapshot);
    return { policy, access: [], refused: 0, did: null, rules: [] };
  }
  const all = await readReporters(memory, orgId);
  const members = [...all.values()].filter(({ state }) => state === "active");
  const to = memberNamed(members, asked.to);
  const sender = asked.from === undefined ? undefined : memberNamed(members, asked.from);
  const senders = sender === undefined ? members.filter(({ id }) => id !== to.id) : [sender];
  const receiverCertificates = await validCertificates(memory, to.id, asked.at);
  // Parsed once, for all pairs of nodes.
  const rules = await inSlices(testable(snapshot.rules));
  const found: Found[] = [];
  for (const [index, from] of senders.entries()) {
    const senderCertificates = await validCertificates(memory, from.id, asked.at);
    found.push(decideAccess(rules, { from, to, asked, senderCertificates, receiverCertificates }));
    // Now and then other requests get their chance.
    if (index % 20 === 19) await nextRound();
  }
  const shown = sender === undefined ? found.filter(({ access }) => access.allowed) : found;
  const ids = new Set(shown.flatMap(({ ruleIds }) => ruleIds));
  const used = snapshot.rules.filter(({ id }) => ids.has(id));
  const sides = used.flatMap(({ peer, target }) => [peer, target]);
  const side = await readSideWriter(memory, orgId, snapshot, sides);
  return {
    policy: null,
    access: shown.map(({ access }) => access),
    refused: found.length - shown.length,
    // An organization that wants no flows has none: earlier ones are being deleted.
    did: org.flows ? await flowsOfDay(db, to.id, asked, sender?.id) : null,
    rules: used.map((rule) => ({ id: rule.id, ...showRule(rule, side) })),
  };
}

/** Throws bad_request. */
function memberNamed(members: readonly Member[], name: string): Member {
  const found = members.find((each) => each.name === name);
  if (found !== undefined) return found;
  throw new AppError("bad_request", `No node was active with the name ${name} then.`);
}

const flowPick = joined(
  "f",
  flows.pick("peer", "address", "protocol", "port", "flows", "answered", "firstAt", "lastAt"),
  "n",
  computed({ name: textOrNull() }),
);
const maxFlows = 1000;
/**
 * Of the day $2 and its block $7, to the node $1, which reported them as the side $3. Any protocol if $4 is empty, any port or sender if
 * $5 or $6 is 0.
 */
const flowSql = `SELECT ${flowPick.select()} FROM flows f LEFT JOIN nodes n ON n.id = f.peer
  WHERE f.node_id = $1 AND f.block = $7 AND f.day = $2 AND f.side = $3
    AND ($4 = '' OR f.protocol = $4) AND ($5 = 0 OR f.port = $5) AND ($6 = 0 OR f.peer = $6) ORDER BY f.last_at DESC LIMIT ${maxFlows}`;

/** The flows to the node that its machine reported of that day. Names are those of today. Null: it reported nothing. */
async function flowsOfDay(
  db: Reader,
  nodeId: number,
  asked: PastQuery,
  senderId: number | undefined,
): Promise<Answer["did"]> {
  const { at, port = 0 } = asked;
  const protocol = packetOf(asked)?.protocol ?? asked.protocol ?? "";
  const day = Math.floor(at / 86_400_000);
  const block = flowBlockOf(day);
  if ((await flows.find(db, { nodeId, block, day, side: flowSides.summary })) === undefined) return null;
  const params = [nodeId, day, flowSides.in, protocol, port, senderId ?? 0, block];
  return (await queryAll(db, flowPick, flowSql, params)).map(
    ({ peer: id, name, firstAt, lastAt, ...row }) => ({
      from: name === null ? null : { id, name },
      ...row,
      first_at: formatTime(firstAt),
      last_at: formatTime(lastAt),
    }),
  );
}

const certificatePick = certificates.pick("fingerprint", "version", "notBefore", "notAfter", "pem");
/** Valid at $2, and signed by a CA that nodes still trusted. */
const certificateSql = `SELECT ${certificatePick.select("c")} FROM certificates c JOIN authorities a ON a.id = c.authority_id
  WHERE c.node_id = $1 AND c.state <> 'blocked' AND c.not_before <= $2 AND c.not_after > $2
    AND a.retired_at IS NULL AND a.not_after > $2 ORDER BY c.id`;

/** The certificates with which peers accepted the node. */
async function validCertificates(memory: Reader, nodeId: number, at: number): Promise<Certificates> {
  const rows = await queryAll(memory, certificatePick, certificateSql, [nodeId, at]);
  return rows.map(({ fingerprint, version, notBefore, notAfter, pem }) => ({
    fingerprint,
    version,
    groups: decodeBundle(pem).flatMap((each) => each.groups),
    not_before: formatTime(notBefore),
    not_after: formatTime(notAfter),
  }));
}
