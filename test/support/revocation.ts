// Measures a revocation at the peers: the revoked node's daemon is killed first, so that only the peers enforce it.

import { paths } from "./paths.ts";
import { startDaemon, untilStatus } from "./daemon.ts";
import { engineLog, until, type Member } from "./members.ts";
import { startPing, type Pinger } from "./namespaces.ts";
import type { Organization } from "./overlay.ts";
import { inFull } from "./soak.ts";

/** The bars of an idle machine. Beside other tests it may be slower. */
export const revocationBars = inFull
  ? { reloadMs: 1000, lastPingMs: 3500 }
  : { reloadMs: 10_000, lastPingMs: 20_000 };

export type Trial = {
  /** From the API's answer to the reload in the log of the slowest peer. */
  reloadMs: number;
  /** From the API's answer to the last reply that any peer had from the revoked node. */
  lastPingMs: number;
};

const reloads = (member: Member) =>
  engineLog(member).match(/Client cert(ificate\(s\))? refreshed from disk/g)?.length ?? 0;

/** After this time without any reply, the last reply counts as the end. */
const silenceMs = 5000;

/**
 * Revokes the victim, measures, restores it, and resolves when all nodes ping each other again. `between` runs
 * before it is restored, and returns with which access.
 */
export async function revokeOnce(
  organization: Organization,
  victim: Member,
  peers: readonly Member[],
  between: () => Promise<Organization> = async () => organization,
): Promise<Trial> {
  const { api, slug } = organization;
  const pings = peers.map((peer) => startPing(peer.host, victim.ip, 50));
  try {
    await Promise.all(pings.map((ping) => ping.reply(30_000)));
    victim.daemon.signal("SIGKILL");
    await victim.daemon.exited;
    await Promise.all(pings.map((ping) => ping.reply(2000)));
    const before = peers.map(reloads);
    const answer = await api("DELETE", paths.node(slug, victim.id));
    const from = performance.now();
    if (answer.status !== 204) throw new Error(`DELETE: ${answer.status} ${await answer.text()}`);
    await until(
      "a reload of every peer",
      () => peers.every((peer, at) => reloads(peer) > (before[at] ?? 0)),
      30_000,
    );
    const reloadMs = performance.now() - from;
    await silence(pings);
    const last = Math.max(...pings.flatMap(({ replies }) => replies.map(({ at }) => at)));
    await bringBack(await between(), victim);
    await Promise.all(pings.map((ping) => ping.reply(40_000)));
    return { reloadMs, lastPingMs: Math.max(0, last - from) };
  } finally {
    await Promise.all(pings.map((ping) => ping.stop()));
  }
}

export async function silence(pings: readonly Pinger[]): Promise<void> {
  await until("silence", () => {
    const last = Math.max(...pings.flatMap(({ replies }) => replies.map(({ at }) => at)));
    return performance.now() - last > silenceMs;
  });
}

async function bringBack({ api, slug }: Organization, victim: Member): Promise<void> {
  const restored = await api("POST", paths.restore(slug, victim.id), {});
  if (restored.status !== 200) throw new Error(`restore: ${restored.status} ${await restored.text()}`);
  victim.daemon = await startDaemon(victim.host, victim.places);
  await untilStatus(victim.places, slug, ({ state }) => state === "running", 30_000);
}

/** A summary: "reload 120 … 310 ms, last ping 0.4 … 2.1 s". */
export function figures(trials: readonly Trial[]): string {
  const range = (values: number[], digits: number, unit: number) =>
    [Math.min(...values), Math.max(...values)].map((each) => (each / unit).toFixed(digits)).join(" … ");
  const reload = range(
    trials.map(({ reloadMs }) => reloadMs),
    0,
    1,
  );
  const last = range(
    trials.map(({ lastPingMs }) => lastPingMs),
    1,
    1000,
  );
  return `${trials.length} revocations: reload ${reload} ms, last ping ${last} s`;
}
