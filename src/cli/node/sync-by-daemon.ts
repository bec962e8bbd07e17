// Only the daemon may reload the engines that it runs, so it synchronizes their organizations.

import { hasCode } from "../../base/errors.ts";
import type { Context } from "../command.ts";
import type { Step } from "../../base/plan/plan.ts";
import { daemonAddress, planRequestIfThere } from "./daemon-address.ts";

type Served = { slug: string; config: { mode: string } };

/** The daemon's answer to `sync`; undefined if no daemon runs, or if it does not run this organization. */
export async function syncThroughDaemon({ slug, config }: Served, { settings, system }: Context) {
  if (config.mode !== "desktop") return undefined;
  const { connectDaemon } = await import("../../daemon/ipc/client.ts");
  let daemon;
  try {
    daemon = await connectDaemon(daemonAddress(settings), system, { patient: false });
  } catch (error) {
    if (hasCode(error, "daemon_unreachable")) return undefined;
    throw error;
  }
  try {
    return await daemon.request({ action: "sync", team: slug });
  } catch (error) {
    if (hasCode(error, "unknown_team")) return undefined;
    throw error;
  } finally {
    daemon.close();
  }
}

/** The plan of syncThroughDaemon. */
export async function planSyncThroughDaemon(
  { slug, config }: Served,
  { settings, system }: Context,
): Promise<Step[]> {
  return config.mode === "desktop" ? planRequestIfThere(`sync ${slug}`, settings, system) : [];
}
