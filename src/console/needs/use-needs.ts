// What needs a user's attention, of everything that the console reads: the overview lists it, the navigation counts
// it.

import { serversApi, type Warning } from "../../api/servers.ts";
import { type Relay, attentionApi, type Attention } from "../../api/paths.ts";
import { authoritiesApi } from "../../api/authorities.ts";
import { apiPath } from "../../api/endpoint.ts";
import { webhooksApi, type ListedWebhook } from "../../api/webhooks.ts";
import type { ApiError } from "../contact/api.ts";
import type { Rotation } from "./authorities.ts";
import { isBackupDue } from "../words/days.ts";
import { isAdmin, me, shownOrganization, slug } from "../contact/me.ts";
import { registrationsPath, type Registration } from "../joining/registrations.ts";
import { relaysPath } from "./relays.ts";
import { useList, useResource, type Resource } from "../contact/resource.ts";
import { now } from "../words/times.ts";

export type Needs = {
  /** Undefined until all is read, so that the page does not grow while it is looked at. */
  attention: Attention | undefined;
  error: ApiError | undefined;
  /** Machines that wait for approval; for administrators only. */
  waiting: readonly Registration[];
  /** Failing tests of the policy, for administrators only. Null or undefined while all pass. */
  failingTests: Attention["failing_tests"] | undefined;
  /** Undefined while none is running. */
  rotation: Rotation | undefined;
  relays: readonly Relay[];
  /** Webhooks whose newest delivery did not arrive; for administrators only. */
  webhooks: readonly Webhook[];
  /** Time of the last backup if a new one is needed; for staff only. Null: there was none. */
  lastBackupAt: string | null | undefined;
  /** Warnings of the control plane about itself; for staff only. */
  warnings: readonly Warning[];
  /** The number of all needs. */
  count: number;
};

export const serversPath = apiPath(serversApi.list, {});

type Webhook = Pick<ListedWebhook, "id" | "url">;

/** The empty path sends no request. */
const none = "";

export const attentionPath = (own: string) => apiPath(attentionApi.retrieve, { slug: own });

/** Of the organization whose page is shown. */
export const useRelays = (): readonly Relay[] => useList(relaysPath(slug.value ?? "")).data ?? [];

/** Nodes that need attention. `isCalm`: see `useResource`. */
export function useAttention(
  own: string,
  { isCalm = false }: { isCalm?: boolean } = {},
): Resource<Attention> {
  return useResource(attentionPath(own), { isCalm });
}

/** Needs of the organization of the navigation. */
export function useNeeds({ isCalm = false }: { isCalm?: boolean } = {}): Needs {
  const shown = shownOrganization.value;
  const own = shown?.slug ?? "";
  const use = { isCalm };
  const read = useAttention(own, use);
  const registrations = useList(isAdmin(shown) ? registrationsPath(own) : none);
  const cas = useResource(apiPath(authoritiesApi.retrieve, { slug: own }), use);
  const allRelays = useList(relaysPath(own), use);
  // Deliveries are no events, so read them again by time.
  const allWebhooks = useList(
    isAdmin(shown) ? apiPath(webhooksApi.list, { slug: own }, { page_size: "1000" }) : none,
    { isCalm: true },
  );
  const isStaff = me.value?.is_staff === true;
  const controlPlane = useResource(isStaff ? serversPath : none, {
    isCalm: true,
  });
  const asked = [
    read,
    cas,
    allRelays,
    ...(isAdmin(shown) ? [registrations, allWebhooks] : []),
    ...(isStaff ? [controlPlane] : []),
  ];
  // While one part is unknown, the console cannot say that all is well.
  const missing = asked.filter(({ data }) => data === undefined);
  const attention = missing.length === 0 ? read.data : undefined;
  const error = missing.find((each) => each.error !== undefined)?.error;
  const [waiting, relays, servers] = [registrations.data ?? [], allRelays.data ?? [], controlPlane.data];
  const webhooks = (allWebhooks.data ?? []).filter(({ failing }) => failing);
  const failingTests = isAdmin(shown) ? attention?.failing_tests : undefined;
  const rotation = cas.data?.rotation.phase === "none" ? undefined : cas.data?.rotation;
  const lastBackupAt =
    servers !== undefined && isBackupDue(servers.last_backup_at, now.value)
      ? servers.last_backup_at
      : undefined;
  const warnings = servers?.warnings ?? [];
  const { hubs_away, broken_paths, not_applied, not_renewed, vulnerable_engines, cloned } = attention ?? {};
  const lists = [cloned, hubs_away, broken_paths, not_applied, not_renewed];
  const named = lists.flatMap((found) => (found?.first ?? []).map(({ id }) => id));
  const counts = [
    ...lists.map((found) => found?.count ?? 0),
    // A node that is in several lists counts once.
    new Set(named).size - named.length,
    waiting.length,
    relays.filter(({ paused }) => paused).length,
    webhooks.length,
    // One need each, however many fail or are old.
    failingTests ? 1 : 0,
    (vulnerable_engines?.count ?? 0) > 0 ? 1 : 0,
    rotation === undefined ? 0 : 1,
    lastBackupAt === undefined ? 0 : 1,
    warnings.length,
  ];
  const count = counts.reduce((sum, each) => sum + each, 0);
  return {
    attention,
    error,
    waiting,
    failingTests,
    rotation,
    relays,
    webhooks,
    lastBackupAt,
    warnings,
    count,
  };
}
