// This node's part in a drill. For its time, the UDP ports of chosen engines are dead, or nodes do not contact the control plane, to
// show what would break. If this node was chosen (`isDead`), its engine's port is dead. Its peers are watched, and both are reported.

import { because } from "../../base/errors.ts";
import type { Log } from "../../base/log.ts";
import type { System } from "../../base/system.ts";
import type { OpenEcho } from "../../platform/network/echo-socket.ts";
import type { DrillReport } from "../../protocol/updates/drill.ts";
import { drillLeftMs, endOf, isLate, readDrill, writeDrill, type DrillState } from "../files/drill-state.ts";
import { readFacts } from "../health/configured-facts.ts";
import { makePortDead, removeDeadPort } from "./dead-port.ts";
import { watchPeers } from "./lost-peers.ts";

const mostPeers = 64;
/** Reports are spread over this time: all nodes would send them at the same moment. */
const spreadMs = 3000;
/** Attempts to send the report. */
const reportTries = 6;
const reportAgainMs = 5000;
/** How often a program that keeps a port dead looks whether the drill was aborted. */
const lookEveryMs = 1000;

export type DrillDeps = {
  slug: string;
  directory: string;
  /** Overlay addresses of peers with a tunnel. */
  tunnels(): Promise<string[]>;
  report(report: DrillReport): Promise<void>;
  openEcho: OpenEcho;
  system: Pick<System, "run" | "platform" | "now" | "monotonic" | "sleep" | "random">;
  log: Log;
};

/** Takes part in the drill of the file, and in those that a check-in writes there meanwhile, until none is left. */
export async function runDrill(deps: DrillDeps): Promise<void> {
  const { directory } = deps;
  for (let drill = readDrill(directory); drill?.isDone === false; drill = readDrill(directory)) {
    await takePart(drill, deps);
    // The file may have the next drill by now.
    const stored = readDrill(directory);
    if (stored?.order === drill.order) writeDrill(directory, { ...stored, isDone: true });
  }
}

/** After a kill of this program, the drill may be over: then only its table is removed. */
async function takePart(drill: DrillState, deps: DrillDeps): Promise<void> {
  const { slug, system } = deps;
  if (drillLeftMs(drill, system.now()) > 0) {
    const [refusal, watched] = await Promise.all([takeAway(drill, deps), watch(drill, deps)]);
    if (refusal !== undefined) await tell({ order: drill.order, state: "refused", reason: refusal }, deps);
    const [byte = 0] = system.random(1);
    await system.sleep((spreadMs * byte) / 256);
    if (!isLate(drill, system.now())) await tell({ order: drill.order, state: "ended", ...watched }, deps);
  }
  if (drill.isDead) await removeDeadPort(slug, system);
}

/** How long the drill goes on, ms: an order may have aborted it. */
const leftOf = (drill: DrillState, { directory, system }: DrillDeps): number =>
  drillLeftMs({ ...drill, endsAt: endOf(drill, directory) }, system.now());

/**
 * Makes the engine's port dead for the time of the drill, if this node was chosen, and resolves afterwards. Returns why the node
 * did not take part; undefined if it did, or was not chosen.
 */
async function takeAway(drill: DrillState, deps: DrillDeps): Promise<string | undefined> {
  const { slug, system } = deps;
  const isChosen = drill.isDead || drill.kind === "control-plane-away";
  if (drill.isRefused && isChosen)
    return "drills took too much of its time: 10 minutes at once, then a tenth of the time";
  // Not chosen, or the control plane is away: then check-ins pause by themselves (planeAwayMs), and nothing is to be done here.
  if (!drill.isDead) return undefined;
  await system.sleep(Math.max(0, drill.beginsAt - system.now()));
  const leftMs = leftOf(drill, deps);
  if (leftMs === 0) return "the order came too late, or the drill was aborted";
  const refused = await makePortDead(deps, leftMs, system);
  if (refused !== undefined) return refused;
  void tell({ order: drill.order, state: "began" }, deps);
  while (leftOf(drill, deps) > 0) await system.sleep(lookEveryMs);
  await removeDeadPort(slug, system);
  return undefined;
}

async function watch(drill: DrillState, deps: DrillDeps) {
  const { slug, directory, tunnels, system } = deps;
  const { own, lighthouses, relays } = readFacts({ slug, directory });
  const all = new Set([...lighthouses, ...relays, ...(await tunnels().catch(() => []))]);
  const peers = [...all].filter((each) => !own.includes(each)).slice(0, mostPeers);
  const beginsInMs = drill.beginsAt - system.now();
  return watchPeers(peers, own, { beginsInMs, leftMs: () => endOf(drill, directory) - system.now() }, deps);
}

/** Does not reject: without its report, the control plane names the node as silent. */
async function tell(report: DrillReport, { slug, report: send, system, log }: DrillDeps): Promise<void> {
  for (let left = reportTries; left > 0; left--) {
    try {
      return await send(report);
    } catch (error) {
      log.debug("The drill could not be reported", because(slug, error));
      if (left > 1) await system.sleep(reportAgainMs);
    }
  }
}
