// Sends packets to lighthouses so that they know this node. A lighthouse that restarted, or closed the tunnel of a former
// certificate, does not know this node until it gets a packet from it, and the engine reports only after `lighthouse.interval`
// (10 s, twice that after a crash). Any packet makes the engine notice and handshake at once.
//
// For a while after certificates or CAs of this node change, all lighthouses get packets. Else only the lighthouse of an
// organization with a single one does, while this node has traffic: of several, another one still knows this node.

import { join } from "node:path";
import { discardPort, type System } from "../../../base/system.ts";
import type { HealthReporter } from "../checkin.ts";
import type { Target } from "../../files/granted/lighthouse-targets.ts";
import { currentGeneration, readSyncState } from "../../files/generations.ts";
import { openOrganization, type Organization } from "../../files/organizations.ts";

type PacketDeps = {
  system: Pick<System, "now" | "sleep" | "sendDatagram">;
  health?: Pick<HealthReporter, "isBusy">;
};

type LighthousePackets = {
  /** Call it when the configuration may have changed. Sends packets while they are needed. */
  refresh(): void;
  /** Continues for at most `ms`, then stops. Does not reject. */
  stop(ms: number): Promise<void>;
};

/** The pace while certificates change. */
const everyMs = 500;
/**
 * The pace while this node has traffic, in packets of 88 bytes. After a crash of its lighthouse one packet makes the engine
 * leave the tunnel, and the next one makes it handshake: the node is known again within 1.4 s. That is in time for a peer, whose
 * engine asks the lighthouse at the beginning and after 1.5 s, then not before its next attempt, 5 s later. An idle node sends
 * no packets, since these would be 12 MB a day: its probes (prober.ts) and the engine's reports have the same effect within some 10 s.
 * Engines before 1.12 do not tell whether a node is idle, so it counts as busy.
 */
const everyBusyMs = 700;
/** How often an idle node looks whether it has traffic. */
const lookEveryMs = 10_000;
/** How long certificates count as new: a rotation removes the previous CA from the last lighthouse within this time. */
const unsettledMs = 180_000;

/** `isLasting`: the process keeps running. A short one sends packets only after a change. */
export function makeLighthousePackets(
  organization: Pick<Organization, "slug" | "directory">,
  deps: PacketDeps,
  isLasting = true,
): LighthousePackets {
  const ended = new AbortController();
  const plan: Plan = { generation: null, targets: [], unsettledMs: 0, isLasting };
  let sending: Promise<void> | undefined;
  const send = async () => {
    // Other code reports damaged or removed files.
    await sendWhileNeeded(organization, plan, deps, ended.signal).catch(() => undefined);
    sending = undefined;
  };
  return {
    refresh: () => void (sending ??= send()),
    async stop(ms) {
      if (ms > 0 && sending !== undefined)
        await Promise.race([sending, deps.system.sleep(ms, ended.signal).catch(() => undefined)]);
      ended.abort(new Error("Over"));
      await sending;
    },
  };
}

/** What one generation of the configuration needs. */
type Plan = {
  /** Null: not read yet. Undefined: the organization has no generations. */
  generation: string | undefined | null;
  targets: readonly Target[];
  /** How long packets are needed although there are several lighthouses. */
  unsettledMs: number;
  isLasting: boolean;
};

async function sendWhileNeeded(
  { slug, directory }: Pick<Organization, "slug" | "directory">,
  plan: Plan,
  { system, health }: PacketDeps,
  signal: AbortSignal,
): Promise<void> {
  while (!signal.aborted) {
    const generation = currentGeneration(directory);
    if (generation !== plan.generation) {
      plan.unsettledMs = unsettledFor(directory, system.now());
      const isNeeded = plan.isLasting || plan.unsettledMs > 0;
      plan.targets = isNeeded ? await targetsOf(openOrganization(join(directory, ".."), slug)) : [];
      plan.generation = generation;
    }
    const { targets } = plan;
    const isSettled = plan.unsettledMs <= 0;
    if (targets.length === 0 || (isSettled && (targets.length > 1 || !plan.isLasting))) return;
    if (isSettled && health?.isBusy() !== true) {
      await system.sleep(lookEveryMs, signal);
      continue;
    }
    // Ignore failures: the engine is off, or a peer refuses the packet. The next one follows.
    await Promise.allSettled(targets.map(({ from, to }) => system.sendDatagram(from, to, discardPort)));
    const pauseMs = isSettled ? everyBusyMs : everyMs;
    plan.unsettledMs -= pauseMs;
    await system.sleep(pauseMs, signal);
  }
}

/** The remaining time in ms. If the clock was set back, the result does not exceed `unsettledMs`. 0 for a text that is no time. */
function unsettledFor(directory: string, now: number): number {
  const changedAt = readSyncState(directory)?.certificates_changed_at;
  if (changedAt === undefined) return 0;
  return Math.min(unsettledMs, Date.parse(changedAt) + unsettledMs - now) || 0;
}

/** Loaded on demand: most check-ins need neither certificates nor YAML. */
async function targetsOf(organization: Organization): Promise<Target[]> {
  const { lighthouseTargets } = await import("../../files/granted/lighthouse-targets.ts");
  return lighthouseTargets(organization);
}
