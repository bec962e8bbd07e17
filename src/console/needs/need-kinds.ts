// What needs an administrator, in numbers: the navigation counts it, and Overview has rows for it (need-rows.ts). Pure.

import { apiPath } from "../../api/endpoint.ts";
import { attentionApi, type Attention } from "../../api/paths/attention.ts";
import type { Relay } from "../../api/paths/relays.ts";
import type { Warning } from "../../api/servers.ts";
import type { AlarmKind } from "../../api/webhooks/alarms.ts";
import type { ListedWebhook } from "../../api/webhooks/webhooks.ts";
import type { Rotation } from "../certificates/authorities.ts";
import type { Registration } from "../joining/registrations.ts";

export type Found = {
  attention: Attention;
  /** Nodes that wait for approval; for administrators only. */
  waiting: readonly Registration[];
  /** Failing tests of the policy, for administrators only. Null or undefined while all pass. */
  failingTests: Attention["failing_tests"] | undefined;
  /** Undefined while none is running. */
  rotation: Rotation | undefined;
  relays: readonly Relay[];
  /** Webhooks whose newest delivery did not arrive; for administrators only. */
  webhooks: readonly Pick<ListedWebhook, "id" | "url">[];
  /** Time of the last backup if a new one is needed; for staff only. Null: there was none. */
  lastBackupAt: string | null | undefined;
  /** Warnings of the control plane about itself; for staff only. */
  warnings: readonly Warning[];
};

/** As far as it is read. */
export type Known = Omit<Found, "attention"> & { attention: Attention | undefined };

/** Empty without an organization: then no request is sent. */
export const attentionPath = (slug: string) => (slug === "" ? "" : apiPath(attentionApi.retrieve, { slug }));

/** Needs of nodes: lists, in which a node may stand twice. */
const nodeKinds = ["cloned", "hubs_away", "broken_paths", "not_applied", "not_renewed"] as const;

/** How many needs there are of each kind. */
export const needCounts = ({ attention, ...found }: Known) => ({
  warnings: found.warnings.length,
  cloned: attention?.cloned.count ?? 0,
  hubs_away: attention?.hubs_away.count ?? 0,
  broken_paths: attention?.broken_paths.count ?? 0,
  not_applied: attention?.not_applied.count ?? 0,
  not_renewed: attention?.not_renewed.count ?? 0,
  // One need each, however many fail or are old.
  tests: found.failingTests ? 1 : 0,
  waiting: found.waiting.length,
  seal: attention?.first_seal ? 1 : 0,
  engines: (attention?.vulnerable_engines.count ?? 0) > 0 ? 1 : 0,
  relays: found.relays.filter(({ paused }) => paused).length,
  webhooks: found.webhooks.length,
  rotation: found.rotation === undefined ? 0 : 1,
  backup: found.lastBackupAt === undefined ? 0 : 1,
});
export type NeedKind = keyof ReturnType<typeof needCounts>;

/** Needs, and alarms of the same faults. */
const red: readonly (NeedKind | AlarmKind)[] = [
  "warnings",
  "server",
  "cloned",
  "hubs_away",
  "lighthouse",
  "relay",
  "router",
  "broken_paths",
  "path",
  "tests",
  "policy",
];
/**
 * Whether a fault stops something now: red, and above the others, on Overview (needs) as on Alarms. The others work for now. It
 * differs from `urgent` of an alarm, which decides whether quiet hours delay it. `cut`: how many paths have no other way than
 * a relay that is away; with none, such a relay is not red.
 */
export const isRed = (kind: NeedKind | AlarmKind, cut?: number): boolean =>
  red.includes(kind) && (kind !== "relay" || cut !== 0);

/** Whether something does not work now: other needs can wait. `cut`: see isRed. */
export function isUrgent(found: Known, cut?: number): boolean {
  const { first = [], count = 0 } = found.attention?.hubs_away ?? {};
  // One may be among those that the answer only counts.
  const isLighthouseAway = count > first.length || first.some(({ is_lighthouse }) => is_lighthouse);
  const faultOf = (kind: NeedKind) => (kind === "hubs_away" && !isLighthouseAway ? "relay" : kind);
  return Object.entries(needCounts(found)).some(
    ([kind, faults]) => faults > 0 && isRed(faultOf(kind as NeedKind), cut),
  );
}

/** The number of all needs. A node that has several counts once. */
export function countNeeds(found: Known): number {
  const { attention } = found;
  const named = nodeKinds.flatMap((kind) => (attention?.[kind].first ?? []).map(({ id }) => id));
  const all = Object.values(needCounts(found)).reduce((sum, each) => sum + each, 0);
  return all - (named.length - new Set(named).size);
}
