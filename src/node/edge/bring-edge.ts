// Server mode: check-auth starts the unit that runs the parts of an organization where one is needed, and disables it where
// none is: it ends by itself then.

import { AppError, messageOf } from "../../base/errors.ts";
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

export type KeepContext = EdgeContext & { system: EdgeContext["system"] & Pick<System, "run"> };

/** How often it looks whether a part is needed. */
const lookEveryMs = 2000;

/** Until the signal. Does not reject. */
export async function keepEdge(context: KeepContext, signal: AbortSignal): Promise<void> {
  await Promise.all([keepUnit(context, signal), keepNoticing(context, signal)]);
}

async function keepNoticing(context: KeepContext, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    await notice(context, signal).catch(warning(context));
    await context.system.sleep(lookEveryMs, signal).catch(() => undefined);
  }
}

async function notice(context: KeepContext, signal: AbortSignal): Promise<void> {
  if (Object.keys(tcpWaysOf(context.open())).length === 0) return;
  const { noticeBlockedUdp } = await import("./tcp-fallback.ts");
  await noticeBlockedUdp(context, signal);
}

async function keepUnit(context: KeepContext, signal: AbortSignal): Promise<void> {
  const { directory, open, system } = context;
  let last: boolean | undefined;
  while (!signal.aborted) {
    try {
      const organization = open();
      const isNeeded = needsEdge(organization) && !isStopped(directory);
      if (isNeeded !== last) await bring(context, isNeeded);
      last = isNeeded;
      // Root, or the control plane, ended it while the unit did not run.
      const isOver = Object.keys(tcpWaysOf(organization)).length === 0;
      if (isOver && readTcpState(directory) !== undefined && !isEnabled(edgeUnit(context.slug)))
        await applyChanges(context, { tcp: { state: undefined } }, context);
    } catch (error) {
      warning(context)(error);
    }
    await system.sleep(lookEveryMs, signal).catch(() => undefined);
  }
}

const warning =
  ({ slug, log }: KeepContext) =>
  (error: unknown) =>
    log.warn("Cannot start what this organization needs beside its engine", {
      team: slug,
      reason: messageOf(error),
    });

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
