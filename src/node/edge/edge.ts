// Runs the parts of one organization that are needed, and stops those that are not.

import { readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { messageOf } from "../../base/errors.ts";
import type { Organization } from "../files/organizations.ts";
import type { EdgeContext, EdgePart, RunningPart } from "./part.ts";

export type EdgeOptions = {
  parts: readonly EdgePart[];
  /** Whether the organization's engine runs or should run. */
  isUp(): boolean;
  /** True: stays, although no part is needed. */
  isLasting: boolean;
  signal: AbortSignal;
};

const lookEveryMs = 2000;
/** So often it looks although no file has changed. */
const wholeEveryMs = 60_000;
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
  const notBefore = new Map<EdgePart, number>();
  /** What it looked at last, and when. Empty: it looks again. */
  let [looked, lookedAt] = ["", 0];
  const start = async (part: EdgePart, key: string) => {
    if (system.monotonic() < (notBefore.get(part) ?? 0)) return void (looked = "");
    try {
      running.set(part, { key, part: await part.start(context) });
    } catch (error) {
      notBefore.set(part, system.monotonic() + againMs);
      looked = "";
      log.error(`Cannot start ${part.name}; trying again in ${againMs / 1000} s`, {
        team: slug,
        reason: messageOf(error),
      });
    }
  };
  const stop = async (part: EdgePart, isOver: boolean) => {
    const own = running.get(part);
    running.delete(part);
    await own?.part.stop(isOver);
  };
  while (!signal.aborted) {
    const now = `${isUp()} ${stampOf(context.directory)}`;
    const isDue = now !== looked || system.monotonic() - lookedAt >= wholeEveryMs;
    const organization = isDue ? openOrNone(context) : undefined;
    // Damaged, or being replaced: what runs goes on.
    if (organization !== undefined) {
      [looked, lookedAt] = [now, system.monotonic()];
      const wanted = isUp() ? parts.filter((each) => each.needed(organization)) : [];
      for (const part of parts) {
        const key = part.key?.(organization) ?? "";
        const present = running.get(part);
        if (present !== undefined && (!wanted.includes(part) || present.key !== key)) await stop(part, true);
        if (wanted.includes(part) && !running.has(part)) await start(part, key);
      }
      if (!isLasting && wanted.length === 0) break;
    }
    await system.sleep(lookEveryMs, signal).catch(() => undefined);
  }
  for (const part of [...running.keys()].toReversed()) await stop(part, false);
}

function openOrNone({ open }: EdgeContext): Organization | undefined {
  try {
    return open();
  } catch {
    return undefined;
  }
}

/** Differs once a file of the directory has changed. Reading and parsing all of them every two seconds would cost more. */
function stampOf(directory: string): string {
  try {
    return readdirSync(directory)
      .map((name) => {
        const {
          ino = 0,
          mtimeMs = 0,
          size = 0,
        } = statSync(join(directory, name), { throwIfNoEntry: false }) ?? {};
        return `${name} ${ino} ${mtimeMs} ${size}`;
      })
      .join("\n");
  } catch {
    return "";
  }
}
