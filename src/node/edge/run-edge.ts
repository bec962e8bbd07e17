// Runs the parts of one organization that are needed, and stops those that are not.

import { messageOf } from "../../base/errors.ts";
import type { EdgeContext, EdgePart, RunningPart } from "./part.ts";
import { watchFiles } from "./watch-files.ts";

type EdgeOptions = {
  parts: readonly EdgePart[];
  /** Whether the organization's engine runs or should run. */
  isUp(): boolean;
  /** True: stays, although no part is needed. */
  isLasting: boolean;
  signal: AbortSignal;
};

const lookEveryMs = 2000;
/** A part that could not start is tried again after this time. */
const againMs = 10_000;

type Running = { key: string; part: RunningPart };

/** Resolves when the signal aborts, or, unless it is lasting, when no part is needed. */
export async function runEdge(
  context: EdgeContext,
  { parts, isUp, isLasting, signal }: EdgeOptions,
): Promise<void> {
  const { slug, log, system } = context;
  const running = new Map<EdgePart, Running>();
  /** After a failed start: monotonic ms before which the part is not started again. */
  const notBefore = new Map<EdgePart, number>();
  const files = watchFiles(context);
  const start = async (part: EdgePart, key: string) => {
    if (system.monotonic() < (notBefore.get(part) ?? 0)) return files.retry();
    try {
      running.set(part, { key, part: await part.start(context) });
    } catch (error) {
      notBefore.set(part, system.monotonic() + againMs);
      files.retry();
      log.error(`Cannot start ${part.name}; trying again in ${againMs / 1000} s`, {
        team: slug,
        reason: messageOf(error),
      });
    }
  };
  const stop = async (part: EdgePart, how: { isOver: boolean }) => {
    const ended = running.get(part);
    running.delete(part);
    await ended?.part.stop(how);
  };
  while (!signal.aborted) {
    const organization = files.look(`${isUp()}`);
    // What runs goes on while the files are damaged.
    if (organization !== undefined) {
      const wanted = isUp() ? parts.filter((each) => each.needed(organization)) : [];
      for (const part of parts) {
        const key = part.key?.(organization) ?? "";
        const present = running.get(part);
        if (present !== undefined && (!wanted.includes(part) || present.key !== key))
          await stop(part, { isOver: true });
        if (wanted.includes(part) && !running.has(part)) await start(part, key);
      }
      if (!isLasting && wanted.length === 0) break;
    }
    await system.sleep(lookEveryMs, signal).catch(() => undefined);
  }
  for (const part of [...running.keys()].toReversed()) await stop(part, { isOver: false });
}
