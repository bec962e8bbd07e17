// Engines that the control plane refuses. A node cannot register with one. A registered node that reports one still gets
// every change, revocations above all, but its certificates are not renewed, and an event names it.

import type { System } from "../../../base/system.ts";
import { can, isRefusedEngine, parseEngineVersion } from "../../../engine/features.ts";
import { record } from "../../audit/record.ts";
import { overlayCaVersion } from "../../certificates/authorities.ts";
import { readIssuingOrg, type IssuingOrg } from "../../certificates/issue.ts";
import type { Transaction } from "../../store/database.ts";

/** The reason as a sentence. Undefined for an engine that may be used, and for an unknown one. */
export function whyEngineRefused(
  overlayVersion: string | null | undefined,
  org: Pick<IssuingOrg, "certificateVersion">,
  caVersion: 1 | 2,
): string | undefined {
  if (isUnsafe(overlayVersion)) return unsafeSentence;
  const needsNewer = org.certificateVersion === 2 || caVersion === 2;
  if (!needsNewer || overlayVersion === undefined || overlayVersion === null) return undefined;
  if (can(parseEngineVersion(overlayVersion), "certificate_v2")) return undefined;
  return "This organization's certificates have version 2, which needs the engine 1.10 or later: update the engine.";
}

export const unsafeSentence =
  "Engines 1.9.4 to 1.9.6 accept packets with a forged source address (CVE-2025-62820): update the engine.";

/** Whether a vulnerability of this version forbids its use in every organization. */
export function isUnsafe(overlayVersion: string | null | undefined): boolean {
  return isRefusedEngine(parseEngineVersion(overlayVersion));
}

/** Records an event if the engine is refused, and returns whether it is. */
export async function recordRefusal(
  tx: Transaction,
  { id, orgId }: { id: number; orgId: number },
  overlayVersion: string,
  now: number,
): Promise<boolean> {
  const caVersion = await overlayCaVersion(tx, orgId);
  const reason = whyEngineRefused(overlayVersion, await readIssuingOrg(tx, orgId), caVersion);
  if (reason === undefined) return false;
  await record(tx, {
    orgId,
    at: now,
    type: "node.engine_refused",
    actor: { kind: "node", id, ip: null },
    subject: `node/${id}`,
    after: { overlay_version: overlayVersion, reason },
  });
  return true;
}

const againMs = 86_400_000;
const maxNoted = 10_000;

/** The nodes with an event of the last day: a node that reports another version each time must not fill the audit log. */
export type RefusalNotes = { has(nodeId: number): boolean; add(nodeId: number): void };

export function makeRefusalNotes({ monotonic }: Pick<System, "monotonic">): RefusalNotes {
  const noted = new Map<number, number>();
  return {
    has: (nodeId) => monotonic() - (noted.get(nodeId) ?? -Infinity) < againMs,
    add(nodeId) {
      if (noted.size >= maxNoted) noted.clear();
      noted.set(nodeId, monotonic());
    },
  };
}
