// The drills that run now, in memory, so that no check-in reads them, and the orders that nodes get with their check-ins.

import type { DrillOrder } from "../../protocol/updates/drill.ts";
import type { HeldPolls } from "../config/held-polls.ts";
import type { Store } from "../options.ts";
import { queryAll } from "../store/table.ts";
import { drills, type DrillRow } from "../store/tables/drills.ts";

export type LiveDrills = {
  /**
   * The order for a node, which the answer to its check-in holds; undefined: none. `taken`: the number of the last order that it took, 0
   * before the first (abortOf says what the numbers are); undefined: its agent knows no drills.
   */
  orderFor(orgId: number, nodeId: number, taken: number | undefined): DrillOrder | undefined;
};

/** Reads the running drills now, and whenever one begins or is aborted. */
export function makeLiveDrills(
  { db, system }: Store,
  changes: Pick<HeldPolls, "wakeOrganization">,
): LiveDrills {
  let running = new Map<number, DrillRow>();
  const load = async () => {
    const sql = `SELECT ${drills.select()} FROM drills
      WHERE ended_at IS NULL AND (ends_at > $1 OR aborted_at IS NOT NULL)`;
    const rows = await queryAll(db, drills, sql, [system.now()]);
    running = new Map(rows.map((row) => [row.orgId, row]));
  };
  let loaded = load();
  db.listen("drill", (payload) => {
    // One reading after the other: an earlier one must not replace what a later one has found.
    loaded = loaded.catch(() => undefined).then(load);
    // If the database cannot be read, nodes get no order, and the drill ends without them.
    void loaded.then(
      () => changes.wakeOrganization(Number(payload)),
      () => undefined,
    );
  });
  void loaded.catch(() => undefined);
  return {
    orderFor(orgId, nodeId, taken) {
      const row = running.get(orgId);
      if (row === undefined || taken === undefined) return undefined;
      // Only nodes that have taken the drill are told that it is aborted.
      if (row.abortedAt !== null) return taken === row.beginsAt ? abortOf(row) : undefined;
      if (taken >= row.beginsAt) return undefined;
      const now = system.now();
      if (row.endsAt <= now) return undefined;
      return {
        order: row.beginsAt,
        kind: row.kind,
        ...(row.targets.includes(nodeId) ? { dead: true } : {}),
        begins_in_ms: row.beginsAt - now,
        ends_in_ms: row.endsAt - now,
      };
    },
  };
}

/** The order that ends the drill now. The number of a drill is its begin in ms since 1970, that of its abort is one more. */
const abortOf = ({ beginsAt, kind }: DrillRow): DrillOrder => ({
  order: beginsAt + 1,
  kind,
  begins_in_ms: 0,
  ends_in_ms: 0,
});
