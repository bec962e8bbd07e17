// Takes the paths that nodes report with their check-ins, and writes those of many nodes together within a second. They are rows in
// the database, because any replica may get the next report of a node.

import * as v from "valibot";
import { PathsReport, type PathState, maxPaths } from "../../protocol/path-report.ts";
import type { ServerOptions } from "../options.ts";
import type { Transaction } from "../store/database.ts";
import { makeRowWriter } from "../store/row-writer.ts";
import type { Addresses } from "./peer-addresses.ts";
import { makeBatches, makeWantsReports } from "./batches.ts";
import { makeHealings } from "./healings.ts";
import { pathFigures, type PathFigures } from "./path-figures.ts";
import { computed, integer, queryAll } from "../store/table.ts";
import { paths } from "../store/tables/paths.ts";

type Deps = Pick<ServerOptions, "db" | "log" | "system"> & { addresses: Pick<Addresses, "note"> };
type Waiting = { orgId: number; nodeId: number; at: number; report: PathsReport };

export type PathReports = {
  /** `unwanted`: the organization wants no reports, or it is not valid. `later`: it comes too early, or too many reports wait. */
  take(orgId: number, nodeId: number, report: unknown): Promise<"taken" | "later" | "unwanted">;
  /** For the metrics, at most a minute old. */
  figures(): Promise<PathFigures[]>;
  /** Writes the reports that are still in memory. */
  stop(): Promise<void>;
};

/**
 * Minimum time between reports of one node, ms. Nodes report every 30 s at most; one that repeats a lost request may
 * come earlier.
 */
const leastPauseMs = 10_000;
const maxNodes = 200_000;
/** How long figures are kept: computing them reads every row. */
const figuresMs = 60_000;

export function makePathReports({ db, log, system, addresses }: Deps): PathReports {
  const batches = makeBatches<Waiting>(
    { db, log },
    { warning: "Reported paths cannot be written now; retrying", rowsOf, store: storeReports },
  );
  const wantsReports = makeWantsReports(db, "pathReports");
  const healings = makeHealings({ db, log });
  const lastAt = new Map<number, number>();
  let latestFigures: { at: number; figures: PathFigures[] } | undefined;
  return {
    async take(orgId, nodeId, sent) {
      const parsed = v.safeParse(PathsReport, sent, { abortEarly: true });
      if (!parsed.success) return "unwanted";
      // Undefined: the database does not answer.
      const isWanted = await wantsReports(orgId).catch(() => undefined);
      if (isWanted === false) return "unwanted";
      if (isWanted === undefined) return "later";
      const report = parsed.output;
      const at = system.now();
      const isWithoutPaths = !report.whole && report.changed.length === 0 && report.gone.length === 0;
      if (isWithoutPaths && report.healings.length === 0) return "taken";
      if (Math.abs(at - (lastAt.get(nodeId) ?? -Infinity)) < leastPauseMs) return "later";
      // Then each node may come too early once.
      if (lastAt.size >= maxNodes) lastAt.clear();
      if (!isWithoutPaths) {
        if (!batches.add({ orgId, nodeId, at, report })) return "later";
        // Addresses are an aid: what is not noted now comes with the next report of the path.
        addresses.note(orgId, nodeId, report.changed).catch(() => undefined);
      }
      lastAt.set(nodeId, at);
      return (await healings.take(orgId, nodeId, report.healings, at)) ? "taken" : "later";
    },
    async figures() {
      const now = performance.now();
      if (latestFigures === undefined || now - latestFigures.at > figuresMs)
        latestFigures = { at: now, figures: await pathFigures(db) };
      return latestFigures.figures;
    },
    stop: batches.stop,
  };
}

const rowsOf = ({ report }: Waiting) => 1 + report.changed.length + report.gone.length;

async function storeReports(tx: Transaction, batch: readonly Waiting[]): Promise<void> {
  for (const { nodeId, report } of batch) {
    if (report.whole) await paths.delete(tx, { nodeId });
    else for (const peer of report.gone) await paths.delete(tx, { nodeId, peer });
  }
  const rows = batch.flatMap(({ orgId, nodeId, at, report }) =>
    // A report may name a peer twice: the last entry counts.
    [...new Map(report.changed.map((each) => [each.peer, each])).values()].map((each) => ({
      ...each,
      orgId,
      nodeId,
      at,
    })),
  );
  await writeRows(tx, rows.map(valuesOf));
}

const writeRows = makeRowWriter(
  paths,
  (columns) => `ON CONFLICT (node_id, peer) DO UPDATE SET
    ${columns
      // Without the two columns of the key.
      .slice(2)
      .map((each) => `${each} = excluded.${each}`)
      .join(", ")}`,
);

/** In the order of the table's columns. */
function valuesOf(row: PathState & { orgId: number; nodeId: number; at: number }) {
  const { nodeId, orgId, peer, path, remote, relays = [], probe, rtt_ms: rtt, loss, at } = row;
  const rttUs = rtt === undefined ? null : Math.round(rtt * 1000);
  const permille = loss === undefined ? null : Math.round(loss * 1000);
  return [nodeId, peer, orgId, path, remote ?? null, JSON.stringify(relays), probe, rttUs, permille, at];
}

const reporting = computed({ nodeId: integer() });
const ended = `SELECT DISTINCT x.node_id FROM paths x JOIN nodes n ON n.id = x.node_id WHERE n.state <> 'active'`;
const tooMany = `SELECT node_id FROM paths GROUP BY node_id HAVING count(*) > ${maxPaths}`;

/** Deletes the paths of nodes that are revoked, and what a node reported beyond its maximum. */
export async function deleteEndedPaths({ db }: Pick<ServerOptions, "db">): Promise<void> {
  for (const { nodeId } of await queryAll(db, reporting, ended))
    await db.writeFor("rows", (tx) => paths.delete(tx, { nodeId }));
  for (const { nodeId } of await queryAll(db, reporting, tooMany)) {
    await db.writeFor("rows", (tx) =>
      tx.run(
        `DELETE FROM paths WHERE node_id = $1 AND peer NOT IN
           (SELECT peer FROM paths WHERE node_id = $1 ORDER BY at DESC, peer LIMIT ${maxPaths})`,
        [nodeId],
      ),
    );
  }
}
