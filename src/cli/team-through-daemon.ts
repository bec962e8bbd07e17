// A team that the daemon of this machine holds is synchronized by the daemon, which alone may reload its engine.

import { AppError } from "../errors.ts";
import type { Context } from "./command.ts";
import { daemonAddress } from "./daemon-address.ts";

/** The daemon's answer to `sync`; undefined where no daemon runs, or where it does not hold the team. */
export async function syncThroughDaemon(
  { slug, config }: { slug: string; config: { mode: string } },
  { settings, system }: Context,
) {
  if (config.mode !== "desktop") return undefined;
  const { connectDaemon } = await import("../daemon/ipc/client.ts");
  let daemon;
  try {
    daemon = await connectDaemon(daemonAddress(settings), system, { patient: false });
  } catch (error) {
    if (error instanceof AppError && error.code === "daemon_unreachable") return undefined;
    throw error;
  }
  try {
    return await daemon.request({ action: "sync", team: slug });
  } catch (error) {
    if (error instanceof AppError && error.code === "unknown_team") return undefined;
    throw error;
  } finally {
    daemon.close();
  }
}
