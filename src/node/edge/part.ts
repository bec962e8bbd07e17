// A part is what an organization needs all the time in addition to its engine, such as an exit or TCP fallback. In server mode the unit
// `…-edge@SLUG.service` runs the parts that are needed, in desktop mode the daemon does.

import type { Log } from "../../base/log.ts";
import type { System } from "../../base/system.ts";
import type { EngineControl } from "../engine/control-engine.ts";
import type { Organization } from "../files/organizations.ts";

export type EdgeContext = {
  slug: string;
  directory: string;
  /** The organization's files as they are now. Throws if they are damaged or gone. */
  open(): Organization;
  control: Pick<EngineControl, "process" | "reload" | "restart">;
  /** Names the lock's holder in messages of other runs. */
  command: string;
  log: Log;
  /** When the health of this process last heard one of these overlay addresses, monotonic ms. Unset: it watches no health. */
  heardAt?(peers: readonly string[]): number | undefined;
  system: Pick<
    System,
    | "now"
    | "monotonic"
    | "sleep"
    | "lookup"
    | "machineState"
    | "env"
    | "run"
    | "platform"
    | "isRoot"
    | "bootTime"
    | "random"
  >;
};

export type EdgePart = {
  name: string;
  /** Only from the organization's files: it is asked every two seconds, and by programs that do not run the part. */
  needed(organization: Organization): boolean;
  /** The part is started again when this changes. */
  key?(organization: Organization): string;
  start(context: EdgeContext): RunningPart | Promise<RunningPart>;
};

export type RunningPart = {
  /**
   * `isOver`: the part is not needed any more, and undoes what it did. Otherwise only this process ends, and the next one continues, so
   * what is in force stays. Does not reject.
   */
  stop(how: { isOver: boolean }): Promise<void>;
};

/**
 * A part whose work is `run`, until the signal. `isOver` tells it then why it ends, and `undo` is called afterwards if it is over: as
 * in RunningPart.
 */
export function runPart(
  run: (signal: AbortSignal, isOver: () => boolean) => Promise<void>,
  undo?: () => Promise<unknown>,
): RunningPart {
  const end = new AbortController();
  let isEnded = false;
  const running = run(end.signal, () => isEnded);
  return {
    async stop({ isOver }) {
      isEnded = isOver;
      end.abort(new Error("Stopped"));
      await running;
      if (isOver) await undo?.();
    },
  };
}
