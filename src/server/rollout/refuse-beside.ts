// An organization has one rollout or one drill at a time. In a rollout, nodes that changed go back when they lose peers or the
// control plane, which is what a drill takes away.

import { AppError } from "../../base/errors.ts";
import { quoteWord } from "../../base/quote.ts";
import { formatTime } from "../../base/quantities.ts";
import { brand } from "../../brand.ts";
import { afterDrillMs } from "../../protocol/updates/drill.ts";
import type { Transaction } from "../store/database.ts";
import { drills, type DrillRow } from "../store/tables/drills.ts";
import { rollouts } from "../store/tables/rollouts.ts";
import type { Org } from "../http/route.ts";

/** After the end of a drill, nodes wait `afterDrillMs` for their peers. Then they report within seconds. */
const reportsWithinMs = afterDrillMs + 30_000;

/** Whether the time for reports about the drill is over. */
export const isOverdue = ({ endsAt }: DrillRow, now: number): boolean => now >= endsAt + reportsWithinMs;

/** Throws conflict. */
export async function refuseBesideDrill(tx: Transaction, { id: orgId }: Org, now: number): Promise<void> {
  const open = await drills.find(tx, { orgId, endedAt: null });
  if (open === undefined || isOverdue(open, now)) return;
  throw new AppError("conflict", `Drill ${open.id} is under way until ${formatTime(open.endsAt)}.`, {
    hint: "It ends by itself. Then nodes have a minute to report.",
  });
}

/** Throws conflict. */
export async function refuseBesideRollout(tx: Transaction, { id: orgId, slug }: Org): Promise<void> {
  const open = await rollouts.find(tx, { orgId, endedAt: null });
  if (open === undefined) return;
  throw new AppError("conflict", `Rollout ${open.id} is under way.`, {
    hint: `Wait until it has ended, or end it: \`${brand.executable} admin rollout abort ${quoteWord(slug)}\`.`,
  });
}
