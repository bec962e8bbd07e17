// Takes the flows that nodes report with their check-ins, and writes those of many nodes together within a second, apart from
// the other reports. A report counts as taken only when it is written: a node sends it again until then, with the same id.

import * as v from "valibot";
import { messageOf } from "../../base/errors.ts";
import { canonicalAddress, hostOf, parseAddress, parseNetwork } from "../../base/ip.ts";
import { FlowsReport, maxFlowRows } from "../../protocol/traffic-reports.ts";
import { makeBacklog } from "../http/backlog.ts";
import type { ServerOptions } from "../options.ts";
import type { Budget } from "../retention/budget.ts";
import type { Reader, Transaction } from "../store/database.ts";
import { makeRowWriter } from "../store/row-writer.ts";
import { later, queryAll, queryOne } from "../store/table.ts";
import { addresses } from "../store/tables/nodes.ts";
import { organizations } from "../store/tables/organizations.ts";
import { flows, flowSides } from "../store/tables/paths.ts";

type Deps = Pick<ServerOptions, "db" | "log" | "system"> & { budget: Pick<Budget, "refusal"> };
type Outcome = "taken" | "later" | "unwanted";
type Org = { id: number; slug: string };
type Waiting = {
  org: Org;
  nodeId: number;
  from: number;
  to: number;
  report: FlowsReport;
  done(outcome: Outcome): void;
};

export type FlowReports = {
  /**
   * unwanted: the organization wants none or stores its maximum, or it is not valid. later: it cannot be written now. Resolves
   * when it is written.
   */
  take(org: Org, nodeId: number, report: unknown): Promise<Outcome>;
  /** Writes the reports that are still in memory. */
  stop(): Promise<void>;
};

const flushMs = 500;
const dayMs = 86_400_000;
/** Rows in one transaction, so that other writers wait only briefly. */
const batchRows = 512;
/** Maximum of rows that wait. One organization gets a quarter of it. */
const maxWaitingRows = 100_000;
const maxOrganizations = 10_000;

export function makeFlowReports({ db, log, system, budget }: Deps): FlowReports {
  const waiting = makeBacklog<Waiting>(maxWaitingRows, ({ report }) => 1 + report.rows.length);
  const wanted = new Map<number, boolean>();
  db.listen("organization", (payload) => void wanted.delete(Number(payload)));
  let isFailing = false;

  const wants = async (orgId: number): Promise<boolean> => {
    const known = wanted.get(orgId);
    if (known !== undefined) return known;
    const org = await queryOne(db, wantedPick, "SELECT flows FROM organizations WHERE id = $1", [orgId]);
    if (wanted.size >= maxOrganizations) wanted.clear();
    wanted.set(orgId, org?.flows === true);
    return org?.flows === true;
  };

  let timer: ReturnType<typeof setTimeout> | undefined;
  let running: Promise<void> | undefined;
  const flush = () => (running ??= write().finally(() => (running = undefined)));
  const schedule = () => void (timer ??= setTimeout(() => void flush(), flushMs).unref());
  const write = async () => {
    timer = undefined;
    for (let left = waiting.count; left > 0;) {
      const batch = waiting.next(batchRows, isOtherNode);
      let outcome: Outcome = "taken";
      try {
        await db.writeFor("rows", (tx) => storeReports(tx, batch));
        isFailing = false;
      } catch (error) {
        if (!isFailing)
          log.warn("Reported flows cannot be written now; nodes send them again", {
            reason: messageOf(error),
          });
        [isFailing, outcome] = [true, "later"];
      }
      left -= batch.length;
      waiting.remove(batch);
      for (const { done } of batch) done(outcome);
    }
    if (waiting.count > 0) schedule();
  };

  return {
    async take(org, nodeId, sent) {
      const parsed = v.safeParse(FlowsReport, sent, { abortEarly: true });
      if (!parsed.success) return "unwanted";
      const report = parsed.output;
      try {
        if (!(await wants(org.id))) return "unwanted";
        if ((await budget.refusal(org, report)) !== undefined) return "unwanted";
      } catch {
        return "later";
      }
      const now = system.now();
      const [to, from] = [now - report.to * 1000, now - Math.max(report.from, report.to) * 1000];
      const { promise, resolve } = Promise.withResolvers<Outcome>();
      if (!waiting.add(org.id, { org, nodeId, from, to, report, done: resolve })) return "later";
      schedule();
      return promise;
    },
    async stop() {
      await running;
      clearTimeout(timer);
      await flush();
    },
  };
}

const wantedPick = organizations.pick("flows");

/** A report of the same node must see what the one before it wrote. */
const isOtherNode = ({ nodeId }: Waiting, others: readonly Waiting[]) =>
  others.every((other) => other.nodeId !== nodeId);

const key = "node_id, day, side, peer, address, protocol, port";
const writeRows = makeRowWriter(
  flows,
  () => `ON CONFLICT (${key}) DO UPDATE SET
    flows = flows.flows + excluded.flows, answered = flows.answered + excluded.answered,
    unseen_s = flows.unseen_s + excluded.unseen_s, report = excluded.report,
    last_at = ${later("flows.last_at", "excluded.last_at")}`,
);

async function storeReports(tx: Transaction, batch: readonly Waiting[]): Promise<void> {
  const owners = await ownersIn(tx, batch);
  for (const { org, nodeId, from, to, report } of batch) {
    if ((await lastReport(tx, nodeId)) === report.id) continue;
    const day = Math.floor(to / dayMs);
    const row = (side: number, peer: number, address: string, protocol: string, port: number) =>
      [nodeId, day, side, peer, address, protocol, port, org.id] as const;
    const summary = row(flowSides.summary, 0, "", "", 0);
    // Several rows of one kind are one: PostgreSQL refuses two with one key in a statement.
    const rows = new Map<string, (string | number)[]>();
    for (const each of report.rows) {
      const address = canonicalAddress(each.peer);
      const peer = owners(org.id, address, from);
      const side = each.incoming ? flowSides.in : flowSides.out;
      const place = row(side, peer, address, each.protocol, each.port);
      const [flowsBefore = 0, answeredBefore = 0] = (rows.get(place.join(" "))?.slice(8, 10) ?? []).map(
        Number,
      );
      const counts = [flowsBefore + each.flows, answeredBefore + each.answered];
      rows.set(place.join(" "), [...place, ...counts, from, to, 0, ""]);
    }
    await writeRows(tx, [
      [...summary, report.rest, 0, from, to, Math.round(report.unseen_s), report.id],
      ...rows.values(),
    ]);
  }
}

const reportPick = flows.pick("report");
const lastReport = async (tx: Pick<Transaction, "get">, nodeId: number) =>
  (
    await queryOne(
      tx,
      reportPick,
      `SELECT report FROM flows WHERE node_id = $1 AND side = ${flowSides.summary} ORDER BY day DESC LIMIT 1`,
      [nodeId],
    )
  )?.report;

const ownerPick = addresses.pick("orgId", "host", "nodeId", "takenAt");
const networkPick = organizations.pick("id", "network", "network6");

/** Whose node had an address since a time; 0: none, or not for so long. */
async function ownersIn(
  reader: Pick<Reader, "all">,
  batch: readonly Waiting[],
): Promise<(orgId: number, address: string, since: number) => number> {
  const found = new Map<string, { nodeId: number | null; takenAt: number }>();
  const hostIn = new Map<string, number>();
  for (const orgId of new Set(batch.map(({ org }) => org.id))) {
    const sql = `SELECT ${networkPick.select()} FROM organizations WHERE id = $1`;
    const [org] = await queryAll(reader, networkPick, sql, [orgId]);
    const networks = [org?.network, org?.network6].map((each) => parseNetwork(each ?? ""));
    const peers = batch.flatMap((each) => (each.org.id === orgId ? each.report.rows : []));
    for (const text of new Set(peers.map(({ peer }) => canonicalAddress(peer)))) {
      const address = parseAddress(text);
      const hosts = networks.map((each) => each && address && hostOf(each, address));
      const host = hosts.find((each) => each !== undefined);
      if (host !== undefined) hostIn.set(`${orgId} ${text}`, host);
    }
    const hosts = [...hostIn].flatMap(([place, host]) => (place.startsWith(`${orgId} `) ? [host] : []));
    for (let first = 0; first < hosts.length; first += 500) {
      const part = [...new Set(hosts.slice(first, first + 500))].join(", ");
      const rows = await queryAll(
        reader,
        ownerPick,
        `SELECT ${ownerPick.select()} FROM addresses WHERE org_id = $1 AND host IN (${part})`,
        [orgId],
      );
      for (const { host, ...row } of rows) found.set(`${orgId} ${host}`, row);
    }
  }
  return (orgId, address, since) => {
    const owner = found.get(`${orgId} ${hostIn.get(`${orgId} ${address}`) ?? ""}`);
    return owner?.nodeId == null || owner.takenAt > since ? 0 : owner.nodeId;
  };
}

/** Deletes the flows of organizations that want none any more. In short transactions. */
export async function deleteUnwantedFlows({ db }: Pick<ServerOptions, "db">): Promise<void> {
  const unwanted = `SELECT ${key} FROM flows WHERE org_id IN (SELECT id FROM organizations WHERE flows = 0) LIMIT`;
  while ((await db.get(`${unwanted} 1`)) !== undefined)
    await db.writeFor("rows", (tx) =>
      tx.run(`DELETE FROM flows WHERE (${key}) IN (${unwanted} ${2 * maxFlowRows})`),
    );
}
