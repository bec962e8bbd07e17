// Server mode: check-auth starts the unit that runs the parts of an organization where one is needed, and disables it where
// none is: it ends by itself then.

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
import { isStopped } from "../files/stopped.ts";
import { readTcpState, tcpWaysOf } from "../files/tcp-state.ts";
import { applyChanges } from "../health/apply-changes.ts";
import { needsEdge } from "./parts.ts";
import type { EdgeContext } from "./part.ts";
import { watchFiles } from "./watch-files.ts";

export type KeepContext = EdgeContext & { system: EdgeContext["system"] & Pick<System, "run"> };

/** How often it looks whether a part is needed. */
const lookEveryMs = 2000;

/** Until the signal. Does not reject. */
export async function keepEdge(context: KeepContext, signal: AbortSignal): Promise<void> {
  const { slug, log, system } = context;
  const failed = (reason: string) =>
    log.warn("Cannot start what this organization needs beside its engine", { team: slug, reason });
  const options = { everyMs: lookEveryMs, signal, system, failed };
  const { keepMapping } = await import("./mapping/keep-mapping.ts");
  await Promise.all([
    repeat(unitKeeper(context), options),
    repeat(noticer(context, signal), options),
    keepMapping(context, signal),
  ]);
}

function noticer(context: KeepContext, signal: AbortSignal): () => Promise<void> {
  const files = watchFiles(context);
  let hasWays = false;
  return async () => {
    const organization = files.look();
    if (organization !== undefined) hasWays = Object.keys(tcpWaysOf(organization)).length > 0;
    if (!hasWays) return;
    const { noticeBlockedUdp } = await import("./tcp-fallback.ts");
    await noticeBlockedUdp(context, signal);
  };
}

function unitKeeper(context: KeepContext): () => Promise<void> {
  const { directory } = context;
  const files = watchFiles(context);
  let last: boolean | undefined;
  return async () => {
    const organization = files.look();
    if (organization === undefined) return;
    try {
      const isNeeded = needsEdge(organization) && !isStopped(directory);
      if (isNeeded !== last) await bring(context, isNeeded);
      last = isNeeded;
      // Root, or the control plane, ended it while the unit did not run.
      const isOver = Object.keys(tcpWaysOf(organization)).length === 0;
      if (isOver && readTcpState(directory) !== undefined && !isEnabled(edgeUnit(context.slug)))
        await applyChanges(context, { tcp: { state: undefined } }, context);
    } catch (error) {
      files.again();
      throw error;
    }
  };
}

async function bring({ slug, system }: KeepContext, isNeeded: boolean): Promise<void> {
  const unit = edgeUnit(slug);
  if (!isNeeded && !isEnabled(unit)) return;
  if (unitPath(edgeTemplate) === undefined)
    throw new AppError("failed", `The unit ${edgeTemplate} is missing; \`install-systemd\` writes it`);
  const words = isNeeded ? ["enable", "--now", unit] : ["disable", unit];
  const { status, stderr } = await system.run(systemctlCommand(...words), { timeoutMs: 60_000 });
  if (status === 0) return;
  throw new AppError("failed", `systemd could not ${words.join(" ")}: ${stderr.trim().split("\n")[0] ?? ""}`);
}
