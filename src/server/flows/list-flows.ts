// Lists the flows of an organization as the API shows them.

import { maxFirst } from "../../api/paths/attention.ts";
import type { Flow, FlowQuery, Flows } from "../../api/flows.ts";
import { formatTime } from "../../base/quantities.ts";
import { flowProtocols } from "../../protocol/traffic-reports.ts";
import { inSlices } from "../http/heavy-work.ts";
import { listRules } from "../policy/stored-rules.ts";
import type { Reader } from "../store/database.ts";
import { flowSides } from "../store/tables/paths.ts";
import { flowsIn, shownUse, usesOf } from "./rule-uses.ts";
import { readFlows, readReporters, requirePast, type Observed, type Reporter } from "./read-flows.ts";

const hourMs = 3_600_000;
/** How far a list goes back, unless the request says otherwise. */
const usualMs = 7 * 24 * hourMs;

/** `ownerId`: a member, who sees what their own nodes report; undefined: all is seen. `now`: ms. */
type Viewer = { ownerId: number | undefined; now: number };

export async function listFlows(
  reader: Reader,
  orgId: number,
  query: FlowQuery,
  { ownerId, now }: Viewer,
): Promise<Flows> {
  const since = query.since ?? now - usualMs;
  requirePast(since, now);
  const isAboutNode = query.from !== undefined || query.to !== undefined;
  const all = await readReporters(reader, orgId);
  const own = [...all.values()].filter((each) => ownerId === undefined || each.ownerId === ownerId);
  const idsOf = (reporters: readonly Reporter[]) => reporters.map(({ id }) => id);
  const wanted = own.filter(({ id }) => !isAboutNode || id === query.from || id === query.to);
  const { isWanted, observed, coverage, leftOut } = await readFlows(reader, orgId, idsOf(wanted), since);
  const active = own.filter(({ state, phone }) => state === "active" && phone === null);
  // Only the summaries of their reports, to know which nodes reported within the last hour.
  // `from`: rows of this side and higher ones.
  const summaries = { from: flowSides.summary };
  const reportedLately = (await readFlows(reader, orgId, idsOf(active), now - hourMs, summaries)).coverage;
  const silent = active.filter(({ id }) => !reportedLately.has(id)).map(({ name }) => name);
  const found = observed
    .filter(
      (each) =>
        (query.from === undefined || each.from === query.from) &&
        (query.to === undefined || each.to === query.to) &&
        (query.unanswered === "false" || unansweredIn(each) > 0),
    )
    .sort((a, b) => b.lastAt - a.lastAt || flowsIn(b) - flowsIn(a) || b.port - a.port);
  return {
    wanted: isWanted,
    since: formatTime(since),
    flows: found.slice(0, query.limit).map((each) => shownFlow(each, all)),
    left_out: Math.max(0, found.length - query.limit) + leftOut,
    uncounted: [...coverage.values()].reduce((sum, { uncounted }) => sum + uncounted, 0),
    nodes: active.length,
    silent: { count: silent.length, first: silent.sort().slice(0, maxFirst) },
    rules:
      isWanted && !isAboutNode && ownerId === undefined
        ? await ruleUses(reader, orgId, [...all.values()], observed)
        : [],
  };
}

async function ruleUses(
  reader: Reader,
  orgId: number,
  members: readonly Reporter[],
  observed: readonly Observed[],
): Promise<Flows["rules"]> {
  const rules = (await listRules(reader, { id: orgId })).filter(({ direction }) => direction === "inbound");
  const uses = await inSlices(usesOf(rules, members, observed));
  return rules.map(({ id }) => {
    const { last_at, ...counts } = shownUse(uses.get(id));
    return { id, last_at, ...counts };
  });
}

const answeredIn = ({ sent, received }: Observed) => Math.max(sent?.answered ?? 0, received?.answered ?? 0);
const unansweredIn = (each: Observed) => Math.max(0, flowsIn(each) - answeredIn(each));

function seenBy({ sent, received }: Observed): Flow["seen_by"] {
  if (sent === undefined) return "receiver";
  return received === undefined ? "sender" : "both";
}

function shownFlow(flow: Observed, names: ReadonlyMap<number, Reporter>): Flow {
  const { from, to, address, protocol, port, firstAt, lastAt } = flow;
  return {
    // 0: no node had the address, or the protocol has no ports (read-flows.ts).
    from: from === 0 ? null : from,
    from_name: names.get(from)?.name ?? null,
    to: to === 0 ? null : to,
    to_name: names.get(to)?.name ?? null,
    address,
    protocol: flowProtocols.find((word) => word === protocol) ?? "other",
    port: port === 0 ? null : port,
    flows: flowsIn(flow),
    unanswered: unansweredIn(flow),
    seen_by: seenBy(flow),
    first_at: formatTime(firstAt),
    last_at: formatTime(lastAt),
  };
}
