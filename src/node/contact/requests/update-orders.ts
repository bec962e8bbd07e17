// Takes the control plane's orders of updates, if root permits them, and starts the program that carries them out. That is
// another process: an update restarts the daemon, and a check-in of server mode lasts a minute.

import { because } from "../../../base/errors.ts";
import type { Log } from "../../../base/log.ts";
import { brand } from "../../../brand.ts";
import { buildInfo } from "../../../build-info.ts";
import { startApart } from "../../../platform/systemd/start-apart.ts";
import type { System } from "../../../base/system.ts";
import type { UpdateOrder } from "../../../protocol/updates/order.ts";
import type { EngineSettings } from "../../engine/find-engine.ts";
import type { Organization } from "../../files/organizations.ts";
import {
  noteSeen,
  permittedUpdates,
  readUpdateState,
  writeUpdateState,
  type UpdateState,
} from "../../files/update-order.ts";

export type UpdateSettings = EngineSettings & { configRoot: string; stateDb: string; socketPath: string };

type Place = Pick<Organization, "slug" | "directory">;
/** `startUpdate`: undefined in a process that takes no orders of updates. */
type Deps = { startUpdate?(slug: string): Promise<void>; log: Log };

/** Called after each answer. A failure must not keep anything else from the node. */
export async function takeUpdateOrder(
  order: UpdateOrder | undefined,
  { slug, directory }: Place,
  { startUpdate, log }: Deps,
): Promise<void> {
  try {
    noteSeen(directory, buildInfo.version);
    if (startUpdate === undefined) return;
    // `unsaid`: the last report of an update, which the control plane has not got yet.
    const { unsaid, ...lastUpdate }: Partial<UpdateState> = readUpdateState(directory) ?? {};
    const isNew = order !== undefined && order.order > (lastUpdate.order?.order ?? 0);
    // Settings of a rollout need no permission: the control plane may write these settings of the engine in any case.
    const mayTake = order?.settings === true || permittedUpdates(directory).length > 0;
    if (!isNew || !mayTake) {
      // The control plane answers again, so the report can be sent.
      if (unsaid !== undefined) await startUpdate(slug);
      return;
    }
    // An order to go back has the number after that of the update which it takes back. What was before that update stays known.
    const isBack = order.back === true && lastUpdate.order?.order === order.order - 1;
    writeUpdateState(directory, { ...(isBack ? lastUpdate : {}), order, step: "taken" });
    await startUpdate(slug);
  } catch (error) {
    log.warn("An update that the control plane asks for cannot be begun", because(slug, error));
  }
}

/** After a start of this program: an update that was not finished goes on. */
export async function resumeUpdate({ slug, directory }: Place, { startUpdate, log }: Deps): Promise<void> {
  const step = readUpdateState(directory)?.step ?? "done";
  if (step === "done" || startUpdate === undefined) return;
  await startUpdate(slug).catch((error: unknown) =>
    log.warn("An update that was not finished cannot go on", because(slug, error)),
  );
}

type StartSystem = Pick<System, "run" | "env" | "platform" | "executable" | "isRoot">;

/** Starts `agent update-run` with the program that runs now, which later judges the new one. Only root can update. */
export const makeStartUpdate = (settings: UpdateSettings, system: StartSystem) => async (slug: string) => {
  if (system.isRoot) await startRun("update-run", slug, settings, system);
};

/** Starts `agent drill-run`, as its own process: the end of this one must not end the report of a drill. */
export const makeStartDrill =
  (settings: UpdateSettings, system: StartSystem) =>
  (slug: string): Promise<void> =>
    startRun("drill-run", slug, settings, system);

/** At most one process of each command for an organization: the name of the unit is taken while it runs. */
async function startRun(
  command: "update-run" | "drill-run",
  slug: string,
  settings: UpdateSettings,
  system: StartSystem,
): Promise<void> {
  const { configRoot, stateDb, socketPath, overlayBinary, overlayBinaryGiven } = settings;
  const engine = overlayBinaryGiven ? ["--overlay-binary", overlayBinary] : [];
  const places = ["--config-root", configRoot, "--state-db-path", stateDb, "--socket-path", socketPath];
  const argv = [system.executable, command, slug, ...places, ...engine];
  await startApart(`${brand.id}-${command}-${slug}`, argv, system);
}
