// Runs the parts of one organization that are needed, and stops those that are not.

import { because } from "../../base/errors.ts";
import type { EdgeContext, EdgePart, RunningPart } from "./part.ts";
import { watchFiles } from "./watch-files.ts";

type EdgeOptions = {
  parts: readonly EdgePart[];
  /** Whether the organization's engine runs or should run. */
  isUp(): boolean;
  /** Go on although no part is needed. */
  isLasting: boolean;
  signal: AbortSignal;
};

const lookEveryMs = 2000;
/** A part that could not start is started again after this time. */
const retryAfterMs = 10_000;

/** `key`: the part's key (EdgePart) when it started. */
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
  /** `files.retry`: after a part that did not start, the next round looks again, although no file has changed. */
  const start = async (part: EdgePart, key: string) => {
    if (system.monotonic() < (notBefore.get(part) ?? 0)) return files.retry();
    try {
      running.set(part, { key, part: await part.start(context) });
    } catch (error) {
      notBefore.set(part, system.monotonic() + retryAfterMs);
      files.retry();
      log.error(`Cannot start ${part.name}; trying again in ${retryAfterMs / 1000} s`, because(slug, error));
    }
  };
  const stop = async (part: EdgePart, how: { isOver: boolean }) => {
    const stopped = running.get(part);
    running.delete(part);
    await stopped?.part.stop(how);
  };
  while (!signal.aborted) {
    const isEngineUp = isUp();
    const organization = files.openIfChanged(`up: ${isEngineUp}`);
    // Undefined: neither the files nor the text beside them (`up: …`) have changed since the last round, or the files are damaged. In
    // both cases what runs goes on.
    if (organization !== undefined) {
      const neededParts = isEngineUp ? parts.filter((part) => part.needed(organization)) : [];
      for (const part of parts) {
        const isNeeded = neededParts.includes(part);
        const key = part.key?.(organization) ?? "";
        const current = running.get(part);
        // A part with another key undoes what it did, and starts again.
        if (current !== undefined && (!isNeeded || current.key !== key)) await stop(part, { isOver: true });
        if (isNeeded && !running.has(part)) await start(part, key);
      }
      if (!isLasting && neededParts.length === 0) break;
    }
    await system.sleep(lookEveryMs, signal).catch(() => undefined);
  }
  // Only this process ends: what the parts did stays in force for the next one.
  for (const part of [...running.keys()].toReversed()) await stop(part, { isOver: false });
}
