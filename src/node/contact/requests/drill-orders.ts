// Takes the control plane's orders of drills, and starts the program that carries them out. Root need not permit drills: each
// one ends by itself within minutes, and together they take at most a tenth of the time, whatever the control plane says.

import { because } from "../../../base/errors.ts";
import type { Log } from "../../../base/log.ts";
import type { System } from "../../../base/system.ts";
import { withDrill, type DrillOrder } from "../../../protocol/updates/drill.ts";
import { abortedDrill, drillLeftMs, isAbortOf, readDrill, writeDrill } from "../../files/drill-state.ts";
import type { Organization } from "../../files/organizations.ts";

type Place = Pick<Organization, "slug" | "directory">;
type Deps = { startDrill?(slug: string): Promise<void>; log: Log; system: Pick<System, "now"> };

/** Called after each answer. A failure must not keep anything else from the node. */
export async function takeDrill(order: DrillOrder, place: Place, deps: Deps): Promise<void> {
  const { slug, directory } = place;
  const { startDrill, log, system } = deps;
  const lastDrill = readDrill(directory);
  if (startDrill === undefined || order.order <= (lastDrill?.order ?? 0)) return;
  const now = system.now();
  const isAbort = lastDrill !== undefined && isAbortOf(lastDrill, order);
  const takesAway = order.dead === true || order.kind === "control-plane-away";
  const takenBefore = lastDrill?.taken ?? { ms: 0, at: 0 };
  const takenWithThis = withDrill(takenBefore, takesAway ? order.ends_in_ms : 0, now);
  // `waitMs` above 0: with this drill, drills would take too much of the time. A refused drill takes nothing away, and so no time. It
  // still runs, so that the node watches its peers.
  const isRefused = takenWithThis.waitMs > 0;
  const { ms, at } = isRefused ? withDrill(takenBefore, 0, now) : takenWithThis;
  const facts = { team: slug, kind: order.kind, seconds: Math.round(order.ends_in_ms / 1000) };
  try {
    // The program that carries the drill out reads this file. If it was killed, `startDrill` starts another one, which restores
    // what the drill took away.
    if (isAbort) writeDrill(directory, abortedDrill(lastDrill, now));
    else
      writeDrill(directory, {
        order: order.order,
        kind: order.kind,
        isDead: order.dead === true,
        beginsAt: now + order.begins_in_ms,
        endsAt: now + order.ends_in_ms,
        isRefused,
        taken: { ms, at },
        isDone: false,
      });
    if (isRefused)
      log.warn("A drill takes nothing away here: drills took too much of the time already", facts);
    else log.info(isAbort ? "A drill is aborted" : "A drill begins", facts);
    await startDrill(slug);
  } catch (error) {
    log.warn("A drill that the control plane asks for cannot be begun", because(slug, error));
  }
}

/**
 * After a start of this program: the one that carried a drill out may have been killed. Another one goes on with it or, if the
 * drill is over, restores what it took away.
 */
export async function resumeDrill(place: Place, { startDrill, log, system }: Deps): Promise<void> {
  const drill = readDrill(place.directory);
  if (drill === undefined || drill.isDone || startDrill === undefined) return;
  const isOver = drillLeftMs(drill, system.now()) === 0;
  // Without the control plane, a node contacts it again by the clock alone. A dead port has a table of the kernel to remove.
  if (isOver && !drill.isDead) return;
  await startDrill(place.slug).catch((error: unknown) =>
    log.warn("A drill that was not finished cannot go on", because(place.slug, error)),
  );
}
