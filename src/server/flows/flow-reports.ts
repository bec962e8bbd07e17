// Takes the flows that nodes report with their check-ins, and writes those of many nodes together within a second. A report counts
// as taken only once it is written: until then the node sends it again, with the same id.

import * as v from "valibot";
import { canonicalAddress, hostOf, parseAddress, parseNetwork } from "../../base/ip.ts";
import { FlowsReport, type FlowRow } from "../../protocol/traffic-reports.ts";
import type { ServerOptions } from "../options.ts";
import { makeBatches, makeWantsReports } from "../paths/batches.ts";
import type { Budget } from "../retention/budget.ts";
import type { Reader, Transaction } from "../store/database.ts";
import { makeRowWriter } from "../store/row-writer.ts";
import { inParts, later, places, queryAll, queryOne, type TableRow } from "../store/table.ts";
import { addresses } from "../store/tables/nodes.ts";
import { organizations } from "../store/tables/organizations.ts";
import { flowBlockOf, flows, flowsKey, flowSides } from "../store/tables/paths.ts";
import type { Org } from "../http/route.ts";

type Deps = Pick<ServerOptions, "db" | "log" | "system"> & { budget: Pick<Budget, "refusal"> };
type Outcome = "taken" | "later" | "unwanted";
type Waiting = {
  orgId: number;
  nodeId: number;
  /** The interval of the report, ms. */
  from: number;
  to: number;
  report: FlowsReport;
  done(outcome: Outcome): void;
};

export type FlowReports = {
  /**
   * `unwanted`: the organization wants no flows or stores its maximum, or the report is not valid. `later`: it cannot be written
   * now. Resolves when it is written.
   */
  take(org: Org, nodeId: number, report: unknown): Promise<Outcome>;
  /** Writes the reports that are still in memory. */
  stop(): Promise<void>;
};

const dayMs = 86_400_000;

export function makeFlowReports({ db, log, system, budget }: Deps): FlowReports {
  const wantsReports = makeWantsReports(db, "flows");
  const batches = makeBatches<Waiting>(
    { db, log },
    {
      warning: "Reported flows cannot be written now; nodes send them again",
      // One for the summary.
      rowsOf: ({ report }) => 1 + report.rows.length,
      store: storeReports,
      settle: ({ done }, isStored) => done(isStored ? "taken" : "later"),
    },
  );
  return {
    async take(org, nodeId, sent) {
      const parsed = v.safeParse(FlowsReport, sent, { abortEarly: true });
      if (!parsed.success) return "unwanted";
      const report = parsed.output;
      try {
        if (!(await wantsReports(org.id))) return "unwanted";
        if ((await budget.refusal(org, report)) !== undefined) return "unwanted";
      } catch {
        return "later";
      }
      const now = system.now();
      // A report has seconds before its arrival, since the clock of the node may be wrong.
      const to = now - report.to * 1000;
      const from = now - Math.max(report.from, report.to) * 1000;
      const { promise, resolve } = Promise.withResolvers<Outcome>();
      const isAdded = batches.add({ orgId: org.id, nodeId, from, to, report, done: resolve });
      return isAdded ? promise : "later";
    },
    stop: batches.stop,
  };
}

/** Adds to the row of the same kind and day. `first_at` stays: it is that of the first report. */
const writeRows = makeRowWriter(
  flows,
  () => `ON CONFLICT (${flowsKey}) DO UPDATE SET
    flows = flows.flows + excluded.flows, answered = flows.answered + excluded.answered,
    unseen_s = flows.unseen_s + excluded.unseen_s, report = excluded.report,
    last_at = ${later("flows.last_at", "excluded.last_at")}`,
);

async function storeReports(tx: Transaction, batch: readonly Waiting[]): Promise<void> {
  // In one transaction: if it fails, all nodes send their reports again.
  const byOrg = Map.groupBy(batch, ({ orgId }) => orgId);
  for (const [orgId, ofOrg] of byOrg) {
    const nodeAt = await nodesByAddress(tx, orgId, ofOrg);
    for (const { nodeId, from, to, report } of ofOrg) {
      // The node sends a report again if it got no answer.
      if ((await lastReport(tx, nodeId)) === report.id) continue;
      const day = Math.floor(to / dayMs);
      const ofReport = { nodeId, day, block: flowBlockOf(day), orgId, firstAt: from, lastAt: to };
      // One row a day says what the rows lack: `rest`, the flows that are in no row, and for how long flows may have passed unseen.
      const summary: FlowTableRow = {
        ...ofReport,
        ...ofNoKind,
        side: flowSides.summary,
        flows: possible(report.rest),
        unseenS: Math.round(report.unseen_s),
        report: report.id,
      };
      const rows = kindsOf(report).map(
        ({ peer, incoming, protocol, port, flows: count, answered }): FlowTableRow => ({
          ...ofReport,
          side: incoming ? flowSides.in : flowSides.out,
          peer: nodeAt(peer, from),
          address: peer,
          protocol,
          port,
          flows: possible(count),
          answered: possible(answered),
          unseenS: 0,
          report: "",
        }),
      );
      await writeRows(tx, [summary, ...rows].map(valuesOf));
    }
  }
}

type FlowTableRow = TableRow<typeof flows>;

/** In a summary, the columns that tell kinds of flows apart. */
const ofNoKind = { peer: 0, address: "", protocol: "", port: 0, answered: 0 };

/** In the order of the table's columns. */
function valuesOf(row: FlowTableRow) {
  const { nodeId, day, side, peer, address, protocol, port, orgId } = row;
  const { flows: count, answered, firstAt, lastAt, unseenS, report, block } = row;
  const kind = [nodeId, day, side, peer, address, protocol, port];
  return [...kind, orgId, count, answered, firstAt, lastAt, unseenS, report, block];
}

/**
 * The most that a kernel can see in an interval. Larger claims of a node could exceed the integers of the database, and the whole
 * transaction, with reports of other nodes, would fail.
 */
const possible = (count: number) => Math.min(count, 1_000_000_000);

/** Merges rows of one kind: PostgreSQL refuses two rows with one key in a statement. */
function kindsOf({ rows }: FlowsReport): FlowRow[] {
  const kinds = new Map<string, FlowRow>();
  for (const row of rows) {
    const peer = canonicalAddress(row.peer);
    const kind = [peer, row.incoming, row.protocol, row.port].join(" ");
    const counted = kinds.get(kind) ?? { flows: 0, answered: 0 };
    const sum = { flows: counted.flows + row.flows, answered: counted.answered + row.answered };
    kinds.set(kind, { ...row, peer, ...sum });
  }
  return [...kinds.values()];
}

const reportPick = flows.pick("report");
const lastSummary = `SELECT report FROM flows WHERE node_id = $1 AND side = ${flowSides.summary}
  ORDER BY block DESC, day DESC LIMIT 1`;

/** The id of the last report of a node that was stored; undefined: none was. */
const lastReport = async (tx: Reader, nodeId: number) =>
  (await queryOne(tx, reportPick, lastSummary, [nodeId]))?.report;

const ownerPick = addresses.pick("host", "nodeId", "takenAt");
const networkPick = organizations.pick("network", "network6");
const networkSql = `SELECT ${networkPick.select()} FROM organizations WHERE id = $1`;

/** Returns a function that tells which node has had an overlay address since a time, ms. 0: none, or not for so long. */
async function nodesByAddress(
  reader: Reader,
  orgId: number,
  reports: readonly Pick<Waiting, "report">[],
): Promise<(address: string, since: number) => number> {
  const org = await queryOne(reader, networkPick, networkSql, [orgId]);
  const networks = [org?.network, org?.network6].map((each) => parseNetwork(each ?? ""));
  const hostIn = (text: string) => {
    const address = parseAddress(text);
    const hosts = networks.map((network) => network && address && hostOf(network, address));
    return hosts.find((host) => host !== undefined);
  };
  const hosts = new Set(
    reports.flatMap(({ report }) => report.rows.flatMap(({ peer }) => hostIn(peer) ?? [])),
  );
  const byHost = new Map<number, ReturnType<typeof ownerPick.parse>>();
  await inParts([...hosts], async (some) => {
    const sql = `SELECT ${ownerPick.select()} FROM addresses WHERE org_id = $1 AND host IN (${places(some, 2)})`;
    for (const owner of await queryAll(reader, ownerPick, sql, [orgId, ...some]))
      byHost.set(owner.host, owner);
  });
  return (address, since) => {
    const owner = byHost.get(hostIn(address) ?? -1);
    return owner === undefined || owner.nodeId === null || owner.takenAt > since ? 0 : owner.nodeId;
  };
}
