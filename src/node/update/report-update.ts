// What an update in rings needs of its machine (carry-out.ts, watch-update.ts), and how it reports to the control plane.

import { AppError, messageOf } from "../../base/errors.ts";
import { given } from "../../base/given.ts";
import type { Log } from "../../base/log.ts";
import type { System } from "../../base/system.ts";
import type { OpenEcho } from "../../platform/network/echo-socket.ts";
import type { UpdateReport } from "../../protocol/updates/order.ts";
import type { Tunnel } from "./compare-before.ts";

/** What runs on this machine. Each change rejects with the reason if the former version is in its place again. */
type Updater = {
  /** Why the agent cannot be replaced by a release here; undefined if it can. */
  whyAgentStays(): Promise<string | undefined>;
  /** How often systemd has started the daemon again by itself; undefined if it does not run it. */
  agentRestarts(): Promise<number | undefined>;
  /** Null: none is installed, or it does not run. */
  engineVersion(): Promise<string | null>;
  /** Whether no engine is installed. */
  lacksEngine(): boolean;
  agentVersion(): Promise<string | null>;
  updateEngine(version: string): Promise<void>;
  updateAgent(version: string): Promise<void>;
  rollBackEngine(): Promise<void>;
  rollBackAgent(): Promise<void>;
  /** Puts the settings of the order into force, or the former ones, as `settings` of the state file says. */
  switchSettings(order: number): Promise<void>;
};

export type CarryOutDeps = {
  slug: string;
  /** The organization's directory. */
  directory: string;
  updater: Updater;
  /** Nodes that this one has a tunnel with. */
  tunnels(): Promise<readonly Tunnel[]>;
  /** The last lines of the engine's log. */
  engineLines(): Promise<readonly string[]>;
  /** The line that says most, in the log of what failed. */
  logLine(of: "agent" | "engine"): Promise<string | undefined>;
  report(report: UpdateReport): Promise<void>;
  openEcho: OpenEcho;
  system: Pick<System, "now" | "sleep" | "random" | "monotonic">;
  log: Log;
};

/** A report, to which its sender adds the order and the versions that run. */
export type Outcome = Omit<UpdateReport, "order">;

const reportEveryMs = 5000;
/** Error codes of a control plane that knows no such order, or will never take the report: another try is useless. */
const finalRefusals: readonly string[] = ["conflict", "not_found", "bad_request", "validation_failed"];

/**
 * Returns what sends the report, at each call: whether the control plane has taken it, or never will. The versions that run are
 * read at the first call.
 */
export function makeReport(
  { updater, report, log }: CarryOutDeps,
  order: number,
  outcome: Outcome,
): () => Promise<boolean> {
  let versions: Pick<UpdateReport, "agent" | "engine"> | undefined;
  const readVersions = async () => {
    const [agent, engine] = await Promise.all([updater.agentVersion(), updater.engineVersion()]);
    return given({ agent: agent ?? undefined, engine: engine ?? undefined });
  };
  return async () => {
    versions ??= await readVersions();
    try {
      await report({ order, ...outcome, ...versions });
      return true;
    } catch (error) {
      log.debug(`The control plane does not take the report: ${messageOf(error)}`);
      return error instanceof AppError && finalRefusals.includes(error.code);
    }
  };
}

/** Whether the control plane has taken the report, or never will. With more than one try, 5 s apart. */
export async function sendReport(
  deps: CarryOutDeps,
  order: number,
  outcome: Outcome,
  { tries }: { tries: number },
): Promise<boolean> {
  const send = makeReport(deps, order, outcome);
  for (let left = tries; left > 0; left--) {
    if (await send()) return true;
    if (left > 1) await deps.system.sleep(reportEveryMs);
  }
  return false;
}

/**
 * Returns what a loop calls in each of its turns: it sends again, 5 s after each failure, until the control plane has taken the
 * report. It never waits, so the loop goes on while the control plane is away.
 */
export function makeRepeatedReport(
  send: () => Promise<boolean>,
  { monotonic }: Pick<System, "monotonic">,
): () => void {
  // Infinity while a try is under way, and after the report was taken.
  let nextAt = 0;
  return () => {
    if (monotonic() < nextAt) return;
    nextAt = Number.POSITIVE_INFINITY;
    const retryLater = () => void (nextAt = monotonic() + reportEveryMs);
    void send().then((isTaken) => (isTaken ? undefined : retryLater()), retryLater);
  };
}
