// Consequences of a check-in's report, which are rare: another engine, other networks on offer, another TCP port, what a seal
// refuses, a confirmed version, certificates that are due for renewal.

import type { CheckinRequest } from "../../../protocol/checkin.ts";
import { atPlane } from "../../../protocol/stored.ts";
import type { Advertised } from "../../../protocol/routing/advertised.ts";
import { record } from "../../audit/record.ts";
import { engineClass } from "../../../engine/features.ts";
import type { Live, LiveNode } from "./live-nodes.ts";
import { otherRefusal, takeRefusal, type SealNotes } from "./refused-by-seal.ts";
import { recordRefusal, type RefusalNotes } from "./refused-engine.ts";
import { nodes } from "../../store/tables/nodes.ts";
import { notifyNode, raiseOwnVersion } from "../../store/versions.ts";
import { unlessStorageRefuses } from "./storage-refusal.ts";
import { permissionText } from "../../store/tables/update-permission.ts";
import { storeTcp } from "./plane-fallback.ts";
import { makeThrottle } from "../../http/throttle.ts";
import type { ServerOptions } from "../../options.ts";
import type { Renewals } from "../lifecycle/renewal.ts";

export type ConsequenceDeps = Pick<ServerOptions, "db" | "system"> & {
  renewals: Renewals;
  refusals: RefusalNotes;
  nodeChanges: NodeChanges;
  sealNotes: SealNotes;
  live: Pick<Live, "confirm">;
  /** Does what is due when a node has confirmed a version, and continues work that waits for it. */
  afterConfirmation(orgId: number): Promise<void>;
};
type Org = { id: number };

/** What a report changes. Undefined: unchanged; null: the node has none any more. */
type Consequences = {
  engine: string | undefined;
  advertised: Advertised[] | undefined;
  tcp: string | null | undefined;
  mayUpdate: string | null | undefined;
  sealRefused: string | null | undefined;
  /** The version that it has confirmed. */
  confirmed: number | undefined;
  /** Its certificates are due for renewal. */
  isDue: boolean;
};

/** Undefined for nearly every report. */
export function consequencesOf(
  node: LiveNode,
  request: CheckinRequest,
  now: number,
): Consequences | undefined {
  const engine = request.overlay_version === node.overlayVersion ? undefined : request.overlay_version;
  const version = confirmedVersion(request);
  const confirmed = version === node.confirmed ? undefined : version;
  const isDue = node.renewAt !== null && node.renewAt <= now;
  const advertised = otherOffer(node, request);
  const tcp = otherTcp(node, request);
  const mayUpdate = otherPermission(node, request);
  const sealRefused = otherRefusal(node, request);
  const others = { engine, advertised, tcp, mayUpdate, sealRefused, confirmed };
  const isNothing = Object.values(others).every((each) => each === undefined) && !isDue;
  return isNothing ? undefined : { ...others, isDue };
}

/** The control plane itself decides where its own listener is used (plane-fallback.ts). */
function otherTcp({ isHub, tcp }: LiveNode, { tcp: port }: CheckinRequest): string | null | undefined {
  if (!isHub || port === undefined || tcp === atPlane) return undefined;
  const said = port === 0 ? null : String(port);
  return said === tcp ? undefined : said;
}

/** A check-in without an engine is of another process of the node, such as a command: it says nothing of permissions. */
function otherPermission({ mayUpdate }: LiveNode, request: CheckinRequest): string | null | undefined {
  if (request.updates === undefined && request.overlay_version === undefined) return undefined;
  const said = request.updates === undefined ? null : permissionText(request.updates);
  return said === mayUpdate ? undefined : said;
}

function otherOffer(node: LiveNode, { advertised = [] }: CheckinRequest): Advertised[] | undefined {
  const text = advertised.length === 0 ? undefined : JSON.stringify(advertised);
  return text === node.advertised ? undefined : advertised;
}

/** True if the node was changed. */
export async function applyConsequences(
  deps: ConsequenceDeps,
  org: Org,
  node: LiveNode,
  consequences: Consequences | undefined,
): Promise<boolean> {
  if (consequences === undefined) return false;
  const { engine, advertised, tcp, mayUpdate, sealRefused, isDue } = consequences;
  const tookOffer =
    advertised !== undefined && (await isStored(() => takeAdvertised(deps, node, advertised)));
  const tookEngine = engine !== undefined && (await isStored(() => takeEngine(deps, node, engine)));
  if (isDue) {
    await deps.renewals.ensure(org.id, node.id, { wait: node.notAfter <= deps.system.now() });
  }
  const tookTcp = tcp !== undefined && (await takeTcp(deps, node, tcp));
  const tookPermission =
    mayUpdate !== undefined && (await isStored(() => takePermission(deps, node, mayUpdate)));
  const tookRefusal =
    sealRefused !== undefined &&
    (await isStored(() => takeRefusal({ ...deps, notes: deps.sealNotes }, node, sealRefused)));
  return tookOffer || tookEngine || isDue || tookTcp || tookPermission || tookRefusal;
}

/** What a node may change by its reports. */
const changeRules = {
  /** All nodes of the organization get it, so a node that changes its mind all the time must not keep them busy. */
  tcp: { limits: [{ times: 1, withinMs: 30_000 }], reason: "Too many TCP ports." },
  /** Events of networks on offer: a node must not fill the audit log. */
  offer: { limits: [{ times: 20, withinMs: 86_400_000 }], reason: "Too many offers of networks." },
} as const;
export type NodeChanges = (kind: keyof typeof changeRules, nodeId: number) => boolean;
/** Counts a change of a node; false: it had too many. `now`: a monotonic clock. */
export function makeNodeChanges(now: () => number): NodeChanges {
  const throttle = makeThrottle(now, changeRules);
  return (kind, nodeId) => {
    if (throttle.counted(kind, String(nodeId)) >= changeRules[kind].limits[0].times) return false;
    throttle.count(kind, String(nodeId));
    return true;
  };
}

/** True if the node was changed. Beyond the limit, a later check-in says it again. */
async function takeTcp(
  { db, nodeChanges }: ConsequenceDeps,
  node: LiveNode,
  tcp: string | null,
): Promise<boolean> {
  if (!nodeChanges("tcp", node.id)) return false;
  return isStored(() => storeTcp(db, node, tcp));
}

/**
 * Whether the change was stored. If the disk is full it is not, and the check-in is answered all the same, because nodes must
 * learn of a revocation. They repeat their reports at the next check-in.
 */
function isStored(change: () => Promise<void>): Promise<boolean> {
  return unlessStorageRefuses(async () => {
    await change();
    return true;
  }, false);
}

/**
 * The version in force on the node. With a running engine the agent reads it from the engine's log and reports it
 * separately. Without one, the applied version is in force.
 */
function confirmedVersion(request: CheckinRequest): number | undefined {
  if (request.confirmed_config_version !== undefined) return request.confirmed_config_version;
  return request.overlay_state === undefined || request.overlay_state === "stopped"
    ? request.config_version
    : undefined;
}

/** Written before an answer without news, together with the work that waits for it: other nodes may depend on it. */
export async function takeConfirmation(
  deps: ConsequenceDeps,
  org: Org,
  node: LiveNode,
  version: number | undefined,
): Promise<void> {
  if (version === undefined) return;
  await isStored(async () => {
    await deps.live.confirm(node, version);
    await deps.afterConfirmation(org.id);
  });
}

/** Another class of engine needs another configuration, for this node alone. */
async function takeEngine(
  { db, system, refusals }: ConsequenceDeps,
  node: LiveNode,
  overlayVersion: string,
): Promise<void> {
  const { id, orgId } = node;
  const isRefused = await db.writeFor({ org: orgId }, async (tx) => {
    await nodes.update(tx, { id }, { overlayVersion });
    if (engineClass(overlayVersion) === engineClass(node.overlayVersion)) await notifyNode(tx, orgId, id);
    else await raiseOwnVersion(tx, orgId, id);
    return !refusals.has(id) && recordRefusal(tx, node, overlayVersion, system.now());
  });
  if (isRefused) refusals.add(id);
}

async function takePermission(
  { db }: ConsequenceDeps,
  { id, orgId }: LiveNode,
  mayUpdate: string | null,
): Promise<void> {
  await db.writeFor({ org: orgId }, async (tx) => {
    await nodes.update(tx, { id }, { mayUpdate });
    await notifyNode(tx, orgId, id);
  });
}

/** An event only for networks that no administrator has approved, when they are new: a state changes often. */
async function takeAdvertised(
  { db, system, nodeChanges }: ConsequenceDeps,
  { id, orgId }: LiveNode,
  list: Advertised[],
): Promise<void> {
  await db.writeFor({ org: orgId }, async (tx) => {
    const before = await nodes.find(tx, { orgId, id });
    if (before === undefined) return;
    await nodes.update(tx, { id }, { advertised: list });
    await notifyNode(tx, orgId, id);
    const known = [...before.subnets, ...before.advertised.map(({ network }) => network)];
    const networks = list.map(({ network }) => network).filter((each) => !known.includes(each));
    if (networks.length === 0 || !nodeChanges("offer", id)) return;
    await record(tx, {
      orgId,
      at: system.now(),
      type: "node.route_offered",
      actor: { kind: "node", id, ip: null },
      subject: `node/${id}`,
      after: { networks },
    });
  });
}
