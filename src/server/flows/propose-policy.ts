// Proposes a policy file: today's rules, narrowed to what reported flows used, with the evidence in comments. Throws an internal
// error if any node would gain access by it.

import { flowsKeptMs, type Proposal } from "../../api/flows.ts";
import type { Rule } from "../../api/rules.ts";
import { AppError } from "../../base/errors.ts";
import { countOf, formatTime } from "../../base/quantities.ts";
import { oneLine } from "../../base/unprintable.ts";
import { inSlices } from "../http/heavy-work.ts";
import { identityOf } from "../policy/node-classes.ts";
import { accessOf, intersect, isNothing } from "../policy/packets.ts";
import { runTests, type PolicyTest } from "../policy/policy-tests.ts";
import { makeReach } from "../policy/reach.ts";
import { readSnapshot, type Snapshot } from "../policy-files/read-snapshot.ts";
import { renderPolicy, readSideWriter, showRule, type SideWriter } from "../policy-files/render.ts";
import type { Reader } from "../store/database.ts";
import { queryAll } from "../store/table.ts";
import { events } from "../store/tables/events.ts";
import { firewallRules } from "../store/tables/policies.ts";
import { narrowRules, type Evidence, type RuleChange } from "./narrow-rules.ts";
import { readFlows, readReporters, requirePast, type Coverage, type Reporter } from "./read-flows.ts";
import { shownUse, usesOf, type Use } from "./rule-uses.ts";

const hourMs = 3_600_000;
const agePick = firewallRules.pick("id", "createdAt");
const editPick = events.pick("at", "subject", "before", "after");
/** Reports are complete even if the node did not see its flows for this share of the time. */
const unseenShare = 0.01;

/** Since when each rule permits what it does, ms, by its id: since it was created, or last edited after `from`. */
async function readAges(reader: Reader, orgId: number, from: number): Promise<Map<number, number>> {
  const sql = `SELECT ${agePick.select()} FROM firewall_rules WHERE org_id = $1`;
  const ages = new Map((await queryAll(reader, agePick, sql, [orgId])).map((row) => [row.id, row.createdAt]));
  const editsSql = `SELECT ${editPick.select()} FROM events
    WHERE org_id = $1 AND type = 'rule.updated' AND at >= $2 ORDER BY id DESC LIMIT 10000`;
  const edits = await queryAll(reader, editPick, editsSql, [orgId, from]);
  for (const { at, subject, before, after } of edits.toReversed())
    if (withoutDescription(before) !== withoutDescription(after)) {
      const id = Number(subject.slice("rule/".length));
      // A policy file that is applied deletes a rule and creates it again, with the same id: the later time counts.
      ages.set(id, Math.max(at, ages.get(id) ?? 0));
    }
  return ages;
}

const withoutDescription = (json: string | null) =>
  JSON.stringify({ ...Object(JSON.parse(json ?? "{}")), description: "" });

/** `since`: flows since this time count, ms; 0: all that are kept. */
export async function proposePolicy(
  reader: Reader,
  orgId: number,
  { since = 0 }: { since?: number | undefined },
  now: number,
): Promise<Proposal> {
  requirePast(since, now);
  const from = Math.max(since, now - flowsKeptMs);
  const snapshot = await readSnapshot(reader, orgId, now);
  const { evidence, coverage } = await readEvidence(reader, orgId, snapshot.rules, { from, now });
  const changes = await inSlices(narrowRules(snapshot.rules, evidence));
  await keepTests(changes, snapshot);
  const rules = changes.flatMap(({ into }) => into);
  await requireNarrower(snapshot, rules);
  const sides = snapshot.rules.flatMap(({ peer, target }) => [peer, target]);
  const side = await readSideWriter(reader, orgId, snapshot, sides);
  const shown = changes.map((each) => shownChange(each, evidence.uses.get(each.rule.id), side));
  const firstReportAt = Math.min(...[...coverage.values()].map(({ firstAt }) => firstAt));
  const count = (kind: RuleChange["what"]) => changes.filter(({ what }) => what === kind).length;
  const proposal = {
    since: formatTime(from),
    observed_since: firstReportAt === Infinity ? null : formatTime(Math.max(from, firstReportAt)),
    policy: await renderPolicy(reader, orgId, { ...snapshot, rules }),
    changes: shown,
    narrowed: count("narrowed"),
    removed: count("removed"),
    kept: count("kept"),
  };
  return { ...proposal, policy: headOf(proposal, formatTime(now)) + proposal.policy };
}

/** `from`: flows since then count. */
async function readEvidence(
  reader: Reader,
  orgId: number,
  rules: readonly Rule[],
  { from, now }: { from: number; now: number },
): Promise<{ evidence: Evidence; coverage: ReadonlyMap<number, Coverage> }> {
  const reporters = await readReporters(reader, orgId);
  const ids = [...reporters.keys()];
  const { observed, coverage, leftOut } = await readFlows(reader, orgId, ids, from);
  const nodes = [...reporters.values()];
  const ages = await readAges(reader, orgId, from);
  // How late reports may be: they come every five minutes, and later after an outage. At most a tenth of a short time.
  const lateMs = Math.min(hourMs, (now - from) / 10);
  const evidence: Evidence = {
    begin: from + lateMs,
    // What is not known counts as of now: a rule is not judged by it.
    madeAt: (id) => ages.get(id) ?? now,
    seenSince: (id) => coverage.get(id)?.firstAt ?? now,
    members: nodes.filter(({ state }) => state === "active"),
    uses: await inSlices(usesOf(rules, nodes, observed)),
    // Flows that were left out may be those of any node.
    whyIncomplete: (id) =>
      leftOut > 0
        ? "and others have too many kinds of flows"
        : whyIncomplete(reporters.get(id), coverage.get(id), { since: from, now, lateMs }),
  };
  return { evidence, coverage };
}

/** Why a node's reports do not prove that something was not used, as the words after its name. Undefined: they do. */
function whyIncomplete(
  node: Reporter | undefined,
  coverage: Coverage | undefined,
  { since, now, lateMs }: { since: number; now: number; lateMs: number },
): string | undefined {
  if (node === undefined) return undefined;
  if (node.phone !== null) return "is a phone, which reports no flows";
  if (coverage === undefined) return "reported no flows";
  const begin = Math.max(since, node.registeredAt ?? node.createdAt);
  if (coverage.firstAt > begin + lateMs) return `reports flows only since ${formatTime(coverage.firstAt)}`;
  if (coverage.lastAt < Math.min(now, node.lastCheckinAt ?? now) - lateMs)
    return `reported no flows after ${formatTime(coverage.lastAt)}`;
  const wasBlind = coverage.unseenS * 1000 > unseenShare * (now - begin);
  return wasBlind ? `did not see its flows for ${Math.round(coverage.unseenS / 60)} minutes` : undefined;
}

/** Keeps the rules that a test is about, if the changes would make the test fail. */
async function keepTests(changes: RuleChange[], { tests, rules, nodes: members }: Snapshot): Promise<void> {
  const failing = async (list: readonly Rule[]) =>
    new Set((await inSlices(runTests(tests, { rules: list, members }))).map(({ test }) => test));
  const before = await failing(rules);
  const after = await failing(changes.flatMap(({ into }) => into));
  const broken = tests.filter((_, index) => after.has(index) && !before.has(index));
  if (broken.length === 0) return;
  const isAbout = ({ protocol, ports }: Rule, test: PolicyTest) =>
    !isNothing(intersect(accessOf(protocol, ports), accessOf(test.protocol, test.ports)));
  // A rule that is there twice comes back once.
  const present = new Set(changes.flatMap(({ into }) => into.map(identityOf)));
  for (const [index, { rule, what }] of changes.entries())
    if (what !== "kept" && !present.has(identityOf(rule)) && broken.some((test) => isAbout(rule, test))) {
      changes[index] = { rule, what: "kept", reason: "a test of the policy needs it", into: [rule] };
      present.add(identityOf(rule));
    }
}

/** Throws internal if any node gains access. */
async function requireNarrower(
  { rules: before, nodes: members }: Snapshot,
  after: readonly Rule[],
): Promise<void> {
  const reach = await inSlices(makeReach({ rules: before, members }, { rules: after, members }));
  const changed = await inSlices(reach.changes());
  if (changed.every(({ gains }) => isNothing(gains))) return;
  throw new AppError("internal", "The proposed policy would permit what the present one does not");
}

type Shown = Proposal["changes"][number];

function shownChange(
  { rule, what, reason, into }: RuleChange,
  use: Use | undefined,
  side: SideWriter,
): Shown {
  return {
    rule: showRule(rule, side),
    id: rule.id,
    what,
    reason,
    ...shownUse(use),
    into: what === "kept" ? [] : into.map((each) => showRule(each, side)),
  };
}

/** The evidence, as comments of the file. A removed rule is there as it was. */
function headOf({ since, observed_since: observed, changes }: Omit<Proposal, "policy">, now: string): string {
  const ruleText = (rule: Shown["rule"]) =>
    JSON.stringify({ ...rule, description: rule.description || undefined });
  const lines = changes.flatMap((each) => {
    const use =
      each.last_at === null
        ? "not used"
        : `${countOf(each.flows, "flow")} of ${countOf(each.nodes, "node")}, last ${each.last_at}`;
    return [
      `${each.what} rule ${each.id}: ${each.reason} (${use})`,
      ...(each.what === "kept" ? [] : [`  was ${ruleText(each.rule)}`]),
      ...each.into.map((part) => `  now ${ruleText(part)}`),
    ];
  });
  return [
    observed === null
      ? `No node reported flows since ${since}.`
      : `Proposed from the flows that nodes reported between ${observed} and ${now}; asked about since ${since}.`,
    "It permits nothing that the present policy does not. A rule that is younger, or whose nodes were observed for a shorter time",
    "than was asked about, stays as it is.",
    "What these days cannot know: a job that runs once a year, a restore, a node that was away. Mark such a rule by a description",
    "that begins with `keep:` and the reason. Look at `policy plan` before you apply this.",
    ...lines,
    "",
  ]
    .map((line) => `# ${oneLine(line)}`.trimEnd())
    .join("\n")
    .concat("\n");
}
