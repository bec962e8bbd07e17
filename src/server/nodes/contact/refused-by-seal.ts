// What nodes report that their seal refuses: an event for each refusal, not for each check-in. A change that waits for its
// signature is refused on all nodes at once: of the same refusal the first node of an organization is named, for an hour.

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

type Refused = SealRefused["what"][number];

/** A node that tells another refusal each time must not fill the audit log. */
const ofNode = { limits: [{ times: 20, withinMs: 86_400_000 }], reason: "Too many refusals." } as const;
const againMs = 3_600_000;
const maxNoted = 10_000;

export type SealNotes = {
  /** The refusals that no node of the organization told within the last hour. Notes them as told. */
  unknown(orgId: number, isEnforced: boolean, refused: readonly Refused[]): Refused[];
  /** Counts an event; false: this node had too many. */
  admits(nodeId: number): boolean;
};

export function makeSealNotes({ monotonic }: Pick<System, "monotonic">): SealNotes {
  const noted = new Map<string, number>();
  const throttle = makeThrottle(monotonic, { node: ofNode });
  return {
    unknown(orgId, isEnforced, refused) {
      if (noted.size >= maxNoted) noted.clear();
      return refused.filter((each) => {
        const text = JSON.stringify([orgId, isEnforced, each.key, each.reason]);
        const key = new Bun.CryptoHasher("sha256").update(text).digest("base64");
        const isKnown = monotonic() - (noted.get(key) ?? -Infinity) < againMs;
        if (!isKnown) noted.set(key, monotonic());
        return !isKnown;
      });
    },
    admits(nodeId) {
      const { times } = ofNode.limits[0];
      if (throttle.counted("node", String(nodeId)) >= times) return false;
      throttle.count("node", String(nodeId));
      return true;
    },
  };
}

/**
 * As the column has it; undefined: the same as before. A node with a damaged directory reports no version, and proves
 * nothing of its seal either.
 */
export function otherRefusal(
  { sealRefused }: Pick<LiveNode, "sealRefused">,
  { seal_refused: refused, config_version: version }: CheckinRequest,
): string | null | undefined {
  if (refused === undefined && version === undefined) return undefined;
  const said = refused === undefined ? null : JSON.stringify(refused);
  return said === sealRefused ? undefined : said;
}

const Stored = v.pipe(v.string(), v.parseJson(), SealRefused);
function readRefused(text: string | null): Partial<SealRefused> {
  const parsed = v.safeParse(Stored, text);
  return parsed.success ? parsed.output : {};
}

export async function takeRefusal(
  { db, system, notes }: { db: Database; system: Pick<System, "now">; notes: SealNotes },
  { id, orgId }: Pick<LiveNode, "id" | "orgId">,
  said: string | null,
): Promise<void> {
  await db.writeFor({ org: orgId }, async (tx) => {
    const before = await nodes.find(tx, { orgId, id });
    if (before === undefined || before.sealRefused === said) return;
    await nodes.update(tx, { id }, { sealRefused: said });
    await notifyNode(tx, orgId, id);
    const { enforced, what = [] } = readRefused(said);
    const known = readRefused(before.sealRefused);
    const isTold = (each: Refused) =>
      known.enforced === enforced &&
      known.what?.some(({ key, reason }) => key === each.key && reason === each.reason) === true;
    const added = what.filter((each) => !isTold(each));
    const isEnforced = enforced === true;
    if (added.length === 0) return;
    const told = notes.unknown(orgId, isEnforced, added);
    if (told.length === 0 || !notes.admits(id)) return;
    await record(tx, {
      orgId,
      at: system.now(),
      type: "node.seal_refused",
      actor: { kind: "node", id, ip: null },
      subject: `node/${id}`,
      after: { is_enforced: isEnforced, refused: told },
    });
  });
}
