// The list of everything that runs besides requests. Each part has a name, a start and a stop.

import { messageOf } from "../errors.ts";
import { settle, announceExpiring } from "./nodes/upkeep.ts";
import { advanceRollingUpdates } from "./rollout/rolling-update.ts";
import { makeRotations } from "./rollout/rotation-schedule.ts";
import { retain } from "./retention/retention.ts";
import type { Services } from "./services.ts";
import { makeDeliveries } from "./webhooks/deliveries.ts";

type Part = { name: string; start(): void; stop(): Promise<void> };

const upkeepMs = 5000;
/** No phase of a CA rotation is shorter. */
const rotationMs = 1000;
/** How often a server asks whether retention is due: once an hour, one server does it. */
const retentionMs = 300_000;

/** Starts all parts. Returns a function that stops them in reverse order; call it before the database closes. */
export function startBackground(services: Services): () => Promise<void> {
  const parts = partsOf(services);
  for (const part of parts) part.start();
  return async () => {
    for (const part of parts.toReversed()) await part.stop();
  };
}

function partsOf(services: Services): Part[] {
  const upkeep = async () => {
    await settle(services);
    await advanceRollingUpdates(services);
    await announceExpiring(services);
  };
  return [
    { name: "check-in reports", start: () => undefined, stop: services.reports.stop },
    { name: "webhook deliveries", ...makeDeliveries(services) },
    preloadX509(services),
    repeated("upkeep of nodes", upkeepMs, upkeep, services),
    repeated("CA rotations", rotationMs, makeRotations(services), services),
    repeated("retention", retentionMs, (signal) => retain(services, signal), services),
  ];
}

/** A new token or organization announces registrations: load the X.509 library before the first one. */
function preloadX509({ db }: Services): Part {
  let stop: () => void = () => undefined;
  return {
    name: "preloading of the X.509 library",
    start() {
      stop = db.listen("auth", () => {
        stop();
        void import("../pki/x509.ts");
      });
    },
    stop: async () => stop(),
  };
}

/** Runs `work` every `everyMs` until the stop. Logs failures; the next turn retries. */
function repeated(
  name: string,
  everyMs: number,
  work: (closing: AbortSignal) => Promise<void>,
  { system, log }: Pick<Services, "system" | "log">,
): Part {
  const closing = new AbortController();
  let running: Promise<void> | undefined;
  const run = async () => {
    for (;;) {
      // The stop rejects the sleep.
      await system.sleep(everyMs, closing.signal).catch(() => undefined);
      if (closing.signal.aborted) return;
      await work(closing.signal).catch((error: unknown) => {
        log.warn(`${name} failed; retrying`, { reason: messageOf(error) });
      });
    }
  };
  return {
    name,
    start: () => void (running = run()),
    async stop() {
      closing.abort();
      await running;
    },
  };
}
