// Sends packets to the lighthouses after certificates or CAs of this node change. The engine then closes tunnels and
// reports to the lighthouses only after `lighthouse.interval` (10 s); until then no peer can find this node. Any packet
// triggers a handshake at once, from which the lighthouse learns the node's address.

import { join } from "node:path";
import type { System } from "../../system.ts";
import type { Target } from "../files/lighthouse-targets.ts";
import { currentGeneration, readSyncState } from "../files/generations.ts";
import { openOrganization, type Organization } from "../files/organizations.ts";

export type PacketEdge = { system: Pick<System, "now" | "sleep" | "sendDatagram"> };

export type LighthousePackets = {
  /** Call it when the configuration may have changed. Sends packets for a while if certificates changed. */
  look(): void;
  /** Continues for at most `ms`, then stops. Does not reject. */
  stop(ms: number): Promise<void>;
};

const everyMs = 500;
/** A rotation removes the previous CA from the last lighthouse within this time after removing it here. */
const unsettledMs = 180_000;
/** The discard port (RFC 863). */
const port = 9;

export function makeLighthousePackets(
  organization: Pick<Organization, "slug" | "directory">,
  { system }: PacketEdge,
): LighthousePackets {
  const over = new AbortController();
  let sending: Promise<void> | undefined;
  const send = async () => {
    // Other code reports damaged or removed files.
    await sendWhileUnsettled(organization, system, over.signal).catch(() => undefined);
    sending = undefined;
  };
  return {
    look: () => void (sending ??= send()),
    async stop(ms) {
      if (ms > 0 && sending !== undefined)
        await Promise.race([sending, system.sleep(ms, over.signal).catch(() => undefined)]);
      over.abort(new Error("Over"));
      await sending;
    },
  };
}

async function sendWhileUnsettled(
  { slug, directory }: Pick<Organization, "slug" | "directory">,
  system: PacketEdge["system"],
  signal: AbortSignal,
): Promise<void> {
  let generation: string | undefined;
  let [leftMs, targets]: [number, Target[]] = [0, []];
  while (!signal.aborted) {
    const present = currentGeneration(directory);
    if (present !== generation || leftMs <= 0) {
      generation = present;
      leftMs = unsettledFor(directory, system.now());
      targets = leftMs > 0 ? await targetsOf(openOrganization(join(directory, ".."), slug)) : [];
    }
    if (targets.length === 0) return;
    // Ignore failures: the engine is off, or a peer refuses the packet. The next one follows.
    await Promise.allSettled(targets.map(({ from, to }) => system.sendDatagram(from, to, port)));
    leftMs -= everyMs;
    await system.sleep(everyMs, signal);
  }
}

/** The remaining time in ms. If the clock was set back, the result does not exceed `unsettledMs`. */
function unsettledFor(directory: string, now: number): number {
  const changedAt = readSyncState(directory)?.certificates_changed_at;
  if (changedAt === undefined) return 0;
  return Math.min(unsettledMs, Date.parse(changedAt) + unsettledMs - now) || 0;
}

/** Loaded on demand: most check-ins need neither certificates nor YAML. */
async function targetsOf(organization: Organization): Promise<Target[]> {
  const { lighthouseTargets } = await import("../files/lighthouse-targets.ts");
  return lighthouseTargets(organization);
}
