// What `check-auth` does in server mode for the parts beside an engine (parts.ts). While a part is needed, the organization's edge
// unit is enabled, which runs the parts; otherwise it is disabled, and its process ends by itself (run-edge.ts). Two things need no
// process of their own and are done here: to notice that UDP is blocked, and to keep the port mapping of the router.

import { AppError } from "../../base/errors.ts";
import { repeat } from "../../base/within.ts";
import type { System } from "../../base/system.ts";
import {
  edgeUnit,
  isEnabled,
  systemctlCommand,
  unitPath,
  edgeTemplate,
} from "../../platform/systemd/systemd.ts";
import { isStopped } from "../files/stopped-by-user.ts";
import { readTcpState, tcpWaysOf } from "../files/tcp-state.ts";
import { applyChanges } from "../health/apply-changes.ts";
import { needsEdge } from "./parts.ts";
import type { EdgeContext } from "./part.ts";
import { watchFiles } from "./watch-files.ts";

export type KeepContext = EdgeContext & { system: EdgeContext["system"] & Pick<System, "run"> };

/** How often the files are examined for whether a part is needed, in ms. */
const lookEveryMs = 2000;

/** Runs until the signal. Does not reject. */
export async function keepEdge(context: KeepContext, signal: AbortSignal): Promise<void> {
  const { slug, log, system } = context;
  const logFailure = (reason: string) =>
    log.warn("Cannot start what this organization needs beside its engine", { team: slug, reason });
  const options = { everyMs: lookEveryMs, signal, system, failed: logFailure };
  const { keepMapping } = await import("./port-mapping/keep-mapping.ts");
  await Promise.all([
    repeat(unitKeeper(context), options),
    repeat(udpWatcher(context, signal), options),
    keepMapping(context, signal),
  ]);
}

/** If UDP is blocked, its note (tcp.json) makes TCP fallback a part that is needed. */
function udpWatcher(context: KeepContext, signal: AbortSignal): () => Promise<void> {
  const files = watchFiles(context);
  let hasWays = false;
  return async () => {
    const organization = files.openIfChanged();
    if (organization !== undefined) hasWays = Object.keys(tcpWaysOf(organization)).length > 0;
    if (!hasWays) return;
    const { noticeBlockedUdp } = await import("./notice-blocked-udp.ts");
    await noticeBlockedUdp(context, signal);
  };
}

function unitKeeper(context: KeepContext): () => Promise<void> {
  const { directory } = context;
  const files = watchFiles(context);
  /** Undefined: this process has not enabled or disabled the unit yet. */
  let wasNeeded: boolean | undefined;
  return async () => {
    const organization = files.openIfChanged();
    if (organization === undefined) return;
    try {
      const isNeeded = needsEdge(organization) && !isStopped(directory);
      if (isNeeded !== wasNeeded) await switchUnit(context, isNeeded);
      wasNeeded = isNeeded;
      // The control plane or root took TCP fallback away while the unit was off: nothing else clears its state.
      const hasNoWays = Object.keys(tcpWaysOf(organization)).length === 0;
      if (hasNoWays && readTcpState(directory) !== undefined && !isEnabled(edgeUnit(context.slug)))
        await applyChanges(context, { tcp: { state: undefined } }, context);
    } catch (error) {
      files.retry();
      throw error;
    }
  };
}

async function switchUnit({ slug, system }: KeepContext, isNeeded: boolean): Promise<void> {
  const unit = edgeUnit(slug);
  if (!isNeeded && !isEnabled(unit)) return;
  if (unitPath(edgeTemplate) === undefined)
    throw new AppError("failed", `The unit ${edgeTemplate} is missing; \`install-systemd\` writes it`);
  const words = isNeeded ? ["enable", "--now", unit] : ["disable", unit];
  const { status, stderr } = await system.run(systemctlCommand(...words), { timeoutMs: 60_000 });
  if (status === 0) return;
  throw new AppError("failed", `systemd could not ${words.join(" ")}: ${stderr.trim().split("\n")[0] ?? ""}`);
}
