// Takes the control plane's orders of drills, and starts the program that carries them out. It needs no word of root: each
// drill ends by itself within minutes, and they take a tenth of the time at most, whatever the control plane says.

import { messageOf } from "../../../base/errors.ts";
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
  const present = readDrill(directory);
  const { order: last = 0, taken: before = { ms: 0, at: 0 } } = present ?? {};
  if (startDrill === undefined || order.order <= last) return;
  const now = system.now();
  const isAbort = present !== undefined && isAbortOf(present, order);
  const takesAway = order.dead === true || order.kind === "control-plane-away";
  const { waitMs, ...after } = withDrill(before, takesAway ? order.ends_in_ms : 0, now);
  const isRefused = waitMs > 0;
  const { ms, at } = isRefused ? withDrill(before, 0, now) : after;
  const facts = { team: slug, kind: order.kind, seconds: Math.round(order.ends_in_ms / 1000) };
  try {
    // The program that carries it out sees that. If it was killed, another one removes what is left.
    if (isAbort) writeDrill(directory, abortedDrill(present, now));
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
    log.warn("A drill that the control plane asks for cannot be begun", {
      team: slug,
      reason: messageOf(error),
    });
  }
}

/** After a start of this program: the one that carried a drill out may have been killed. It removes what is left. */
export async function resumeDrill(place: Place, { startDrill, log, system }: Deps): Promise<void> {
  const drill = readDrill(place.directory);
  if (drill === undefined || drill.isDone || startDrill === undefined) return;
  const isOver = drillLeftMs(drill, system.now()) === 0;
  if (isOver && !drill.isDead) return;
  await startDrill(place.slug).catch((error: unknown) =>
    log.warn("A drill that was not finished cannot go on", { team: place.slug, reason: messageOf(error) }),
  );
}
