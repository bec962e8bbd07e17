// Takes the control plane's orders of drills, and starts the program that carries them out. It needs no word of root: the control
// plane configures the engine anyway, and each drill ends by itself within minutes.

import { messageOf } from "../../../base/errors.ts";
import type { Log } from "../../../base/log.ts";
import type { System } from "../../../base/system.ts";
import type { DrillOrder } from "../../../protocol/updates/drill.ts";
import { drillLeftMs, readDrill, writeDrill } from "../../files/drill-state.ts";
import type { Organization } from "../../files/organizations.ts";

type Place = Pick<Organization, "slug" | "directory">;
type Edge = { startDrill?(slug: string): Promise<void>; log: Log; system: Pick<System, "now"> };

/** Called after each answer. A failure must not keep anything else from the node. */
export async function takeDrill(order: DrillOrder, place: Place, edge: Edge): Promise<void> {
  const { slug, directory } = place;
  const { startDrill, log, system } = edge;
  if (startDrill === undefined || order.order <= (readDrill(directory)?.order ?? 0)) return;
  const now = system.now();
  try {
    writeDrill(directory, {
      order: order.order,
      kind: order.kind,
      isDead: order.dead === true,
      beginsAt: now + order.begins_in_ms,
      endsAt: now + order.ends_in_ms,
      isDone: false,
    });
    log.info("A drill begins", {
      team: slug,
      kind: order.kind,
      seconds: Math.round(order.ends_in_ms / 1000),
    });
    await startDrill(slug);
  } catch (error) {
    log.warn("A drill that the control plane asks for cannot be begun", {
      team: slug,
      reason: messageOf(error),
    });
  }
}

/** After a start of this program: the one that carried a drill out may have been killed. It removes what is left. */
export async function resumeDrill(place: Place, { startDrill, log, system }: Edge): Promise<void> {
  const drill = readDrill(place.directory);
  if (drill === undefined || drill.isDone || startDrill === undefined) return;
  const isOver = drillLeftMs(drill, system.now()) === 0;
  if (isOver && !drill.isDead) return;
  await startDrill(place.slug).catch((error: unknown) =>
    log.warn("A drill that was not finished cannot go on", { team: place.slug, reason: messageOf(error) }),
  );
}
