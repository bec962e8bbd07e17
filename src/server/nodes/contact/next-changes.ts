// What a node's next configuration changes: a comparison of the files that it has, as they were sent, with those that it would
// get now.

import type { NextChanges } from "../../../api/nodes.ts";
import { timeOrNull } from "../../../base/quantities.ts";
import { diff } from "../../../base/plan/diff.ts";
import { readTogether, type Views } from "../../config/organization-views.ts";
import { filesFor, type Outline } from "../../config/node-files.ts";
import type { Renderings, WorkInTurn } from "../../config/renderings.ts";
import { isOnline } from "../../store/nodes.ts";
import type { NodeStore } from "../node-store.ts";
import { revokedError } from "./orders.ts";
import { maxConfigLength, notAppliedSince, filesOnNode, type FilesOnNode } from "./sent-files.ts";

type Change = NextChanges["changes"][number];
type Services = NodeStore & { views: Views; renderings: Renderings };

/** `inTurn`: does heavy work after others have had their turn. Throws node_revoked, and conflict if the node is not registered. */
export async function nextChanges(
  services: Services,
  org: { id: number; slug: string },
  id: number,
  inTurn: WorkInTurn,
): Promise<NextChanges> {
  const { db, system, views, changes, reports } = services;
  const { view, node } = await readTogether(db, views, org.id, id);
  if (node.state === "revoked") throw await revokedError(services, org, node);
  // The report of the last second may not be in the database yet.
  const shown = reports?.onto(node) ?? node;
  const online = isOnline(shown, system.now(), changes);
  const { outline, configVersion } = await filesFor(services, view, shown, online, inTurn);
  const { appliedConfigVersion: applied, lastCheckinAt } = shown;
  const isCurrent = applied !== null && applied >= configVersion;
  const since = isCurrent ? null : await notAppliedSince(db, shown);
  const held = isCurrent ? undefined : await filesOnNode(db, shown);
  const found = held === undefined ? [] : await inTurn(() => changesTo(outline, held));
  return {
    node_id: id,
    name: node.name,
    online,
    last_checkin_at: timeOrNull(lastCheckinAt),
    applied_config_version: applied,
    config_version: configVersion,
    not_applied_since: timeOrNull(since),
    is_known: isCurrent || held !== undefined,
    is_renewal_due: node.renewAt !== null && node.renewAt <= system.now(),
    changes: found,
  };
}

async function changesTo(outline: Outline, held: FilesOnNode): Promise<Change[]> {
  const { others } = outline;
  return [
    ...(held.digest === outline.configDigest ? [] : [configChange(held, await outline.config())]),
    ...(held.others === others
      ? []
      : [{ file: "other files" as const, diff: diff(held.others, others, maxCells) }]),
  ];
}

/** Without a diff if a text is not stored, or too long to compare. */
function configChange({ config }: FilesOnNode, next: string): Change {
  const isShort = config !== undefined && next.length <= maxConfigLength;
  return { file: "config.yml", diff: isShort ? diff(config, next, maxCells) : null };
}

/** Lines of both texts, multiplied: comparing these blocks the event loop for about 5 ms. */
const maxCells = 500_000;
