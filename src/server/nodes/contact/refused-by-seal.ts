// What nodes report that their seal refuses: an event for each refusal, not for each check-in. While a change waits for its
// signature, all nodes of an organization refuse it. So the same refusal is recorded once an hour, for the first node that reports it.

import * as v from "valibot";
import type { System } from "../../../base/system.ts";
import type { CheckinRequest } from "../../../protocol/checkin.ts";
import { SealRefused } from "../../../protocol/seals/refused.ts";
import { record } from "../../audit/record.ts";
import { makeThrottle } from "../../http/throttle.ts";
import type { Database } from "../../store/database.ts";
import { nodes } from "../../store/tables/nodes.ts";
import { notifyNode } from "../../store/versions.ts";
import type { LiveNode } from "./live-nodes.ts";
import { jsonTextOf } from "../../../protocol/values.ts";

type Refused = SealRefused["what"][number];

/** A node that reports another refusal each time must not fill the audit log. */
const eventsOfNode = {
  windows: [{ times: 20, withinMs: 86_400_000 }],
  reason: "Too many refusals.",
} as const;
/** The same refusal is recorded again after this time. */
const againMs = 3_600_000;
const maxNoted = 10_000;

export type SealNotes = {
  /** Those of the refusals that no node of the organization reported within the last hour. Notes them as reported. */
  takeNew(orgId: number, isEnforced: boolean, refused: readonly Refused[]): Refused[];
  /** Counts an event. False, and not counted, if this node had too many. */
  admits(nodeId: number): boolean;
};

export function makeSealNotes({ monotonic }: Pick<System, "monotonic">): SealNotes {
  const noted = new Map<string, number>();
  const throttle = makeThrottle(monotonic, { node: eventsOfNode });
  return {
    takeNew(orgId, isEnforced, refused) {
      if (noted.size >= maxNoted) noted.clear();
      return refused.filter((refusal) => {
        const text = JSON.stringify([orgId, isEnforced, refusal.key, refusal.reason]);
        const key = new Bun.CryptoHasher("sha256").update(text).digest("base64");
        const isKnown = monotonic() - (noted.get(key) ?? -Infinity) < againMs;
        if (!isKnown) noted.set(key, monotonic());
        return !isKnown;
      });
    },
    admits(nodeId) {
      const { times } = eventsOfNode.windows[0];
      if (throttle.counted("node", String(nodeId)) >= times) return false;
      throttle.count("node", String(nodeId));
      return true;
    },
  };
}

/**
 * The refusals in a check-in as the column `seal_refused` holds them: JSON, or null if the seal refuses nothing. Undefined: the
 * same as before, or not known: a node with a damaged directory reports no version, and may not have read its seal either.
 */
export function changedRefusal(
  { sealRefused }: Pick<LiveNode, "sealRefused">,
  { seal_refused: refused, config_version: version }: CheckinRequest,
): string | null | undefined {
  if (refused === undefined && version === undefined) return undefined;
  const reported = refused === undefined ? null : JSON.stringify(refused);
  return reported === sealRefused ? undefined : reported;
}

const Stored = jsonTextOf(SealRefused);
function readRefused(text: string | null): Partial<SealRefused> {
  const parsed = v.safeParse(Stored, text);
  return parsed.success ? parsed.output : {};
}

/** Stores what `changedRefusal` returned, with an event for the refusals that are new. */
export async function takeRefusal(
  { db, system, notes }: { db: Database; system: Pick<System, "now">; notes: SealNotes },
  { id, orgId }: Pick<LiveNode, "id" | "orgId">,
  reported: string | null,
): Promise<void> {
  await db.writeFor({ org: orgId }, async (tx) => {
    const before = await nodes.find(tx, { orgId, id });
    if (before === undefined || before.sealRefused === reported) return;
    await nodes.update(tx, { id }, { sealRefused: reported });
    await notifyNode(tx, orgId, id);
    const { enforced, what = [] } = readRefused(reported);
    const stored = readRefused(before.sealRefused);
    const isStored = (refusal: Refused) =>
      stored.enforced === enforced &&
      stored.what?.some(({ key, reason }) => key === refusal.key && reason === refusal.reason) === true;
    const added = what.filter((refusal) => !isStored(refusal));
    const isEnforced = enforced === true;
    if (added.length === 0) return;
    const recorded = notes.takeNew(orgId, isEnforced, added);
    if (recorded.length === 0 || !notes.admits(id)) return;
    await record(tx, {
      orgId,
      at: system.now(),
      type: "node.seal_refused",
      actor: { kind: "node", id, ip: null },
      subject: `node/${id}`,
      after: { is_enforced: isEnforced, refused: recorded },
    });
  });
}
