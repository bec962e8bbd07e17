// Records as events how nodes healed dead tunnels, with their evidence. Each node can record only a few an hour, so that a faulty
// node cannot fill the audit log.

import { given } from "../../base/given.ts";
import { messageOf } from "../../base/errors.ts";
import type { Healing } from "../../protocol/path-report.ts";
import { record } from "../audit/record.ts";
import type { ServerOptions } from "../options.ts";
import type { Transaction } from "../store/database.ts";
import { nodes } from "../store/tables/nodes.ts";

const hourMs = 3_600_000;
const maxPerHour = 20;
/** Nodes whose count is kept. */
const maxNodes = 200_000;

export type Healings = {
  /** False: they cannot be written now. */
  take(orgId: number, nodeId: number, healings: readonly Healing[], at: number): Promise<boolean>;
};

export function makeHealings({ db, log }: Pick<ServerOptions, "db" | "log">): Healings {
  /** How many each node recorded in the hour that began at `since`, ms. */
  const recorded = new Map<number, { since: number; count: number }>();
  return {
    async take(orgId, nodeId, healings, at) {
      const known = recorded.get(nodeId);
      const isThisHour = known !== undefined && Math.abs(at - known.since) < hourMs;
      const { since, count } = isThisHour ? known : { since: at, count: 0 };
      const taken = healings.slice(0, maxPerHour - count);
      if (taken.length === 0) return true;
      try {
        await db.writeFor({ org: orgId }, (tx) => write(tx, orgId, nodeId, taken, at));
      } catch (error) {
        log.warn("Reported healings cannot be recorded now", { reason: messageOf(error) });
        return false;
      }
      if (recorded.size >= maxNodes) recorded.clear();
      recorded.set(nodeId, { since, count: count + taken.length });
      return true;
    },
  };
}

async function write(
  tx: Transaction,
  orgId: number,
  nodeId: number,
  healings: readonly Healing[],
  at: number,
): Promise<void> {
  const event = {
    orgId,
    at,
    type: "node.healing",
    actor: { kind: "node", id: nodeId, ip: null },
    subject: `node/${nodeId}`,
  } as const;
  const nameOf = async (ip: string) => (await nodes.find(tx, { orgId, ip, state: "active" }))?.name;
  for (const { peer, ...evidence } of healings) {
    const { witness } = evidence;
    const [peerName, witnessName] = [
      await nameOf(peer),
      witness === undefined ? undefined : await nameOf(witness),
    ];
    const named = given({ peer_name: peerName, witness_name: witnessName });
    await record(tx, { ...event, after: { peer, ...named, ...evidence } });
  }
}
