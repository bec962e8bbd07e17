// Packets to the lighthouses after this node's certificates or CAs have changed. The engine then tears tunnels down,
// and reports to a lighthouse again only after `lighthouse.interval` (10 s): until then no peer finds this node. Any
// packet makes it shake hands at once, and from the handshake the lighthouse learns the node's address.

import { join } from "node:path";
import type { System } from "../../system.ts";
import type { Target } from "../files/lighthouse-targets.ts";
import {
  currentGeneration,
  openOrganization,
  readSyncState,
  type Organization,
} from "../files/organizations.ts";

export type PacketEdge = { system: Pick<System, "now" | "sleep" | "sendDatagram"> };

export type LighthousePackets = {
  /** To be called when the configuration may have changed: sends for a while where there is a reason. */
  look(): void;
  /** Goes on for at most `ms` and then ends. Does not reject. */
  stop(ms: number): Promise<void>;
};

const everyMs = 500;
/** A rotation takes the former CA from the last lighthouse well within this time after it left this node. */
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
    // Files that are damaged, or removed meanwhile, are for others to report.
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
    // Nothing can be done about one that is not sent: the engine is off, or a peer refuses it. The next one follows.
    await Promise.allSettled(targets.map(({ from, to }) => system.sendDatagram(from, to, port)));
    leftMs -= everyMs;
    await system.sleep(everyMs, signal);
  }
}

/** How long packets are still needed, in ms; a clock that was set back makes it no longer than from the beginning. */
function unsettledFor(directory: string, now: number): number {
  const changedAt = readSyncState(directory)?.certificates_changed_at;
  if (changedAt === undefined) return 0;
  return Math.min(unsettledMs, Date.parse(changedAt) + unsettledMs - now) || 0;
}

/** Loaded when it is needed: most check-ins need no certificates and no YAML. */
async function targetsOf(organization: Organization): Promise<Target[]> {
  const { lighthouseTargets } = await import("../files/lighthouse-targets.ts");
  return lighthouseTargets(organization);
}
