// What needs a user's attention, of everything that the console reads: the overview lists it, the navigation counts
// it.

import { serversApi } from "../../api/servers.ts";
import type { Relay } from "../../api/paths/relays.ts";
import type { Attention } from "../../api/paths/attention.ts";
import { pathsApi } from "../../api/paths/paths.ts";
import { authoritiesApi } from "../../api/certificates/authorities.ts";
import { apiPath } from "../../api/endpoint.ts";
import { webhooksApi } from "../../api/webhooks/webhooks.ts";
import type { ApiError } from "../contact/api.ts";
import { isBackupDue } from "../words/days.ts";
import { isAdmin, me, shownOrganization, currentSlug } from "../contact/me.ts";
import { attentionPath, countNeeds, isUrgent, type Known } from "./need-kinds.ts";
import { registrationsPath } from "../joining/registrations.ts";
import { relaysPath } from "./relayed-traffic.ts";
import { useList, useResource, type Resource } from "../contact/resource.ts";
import { now } from "../words/times.ts";

/** Attention is undefined until all is read, so that the page does not grow while it is looked at. */
export type Needs = Known & {
  error: ApiError | undefined;
  /** The number of all needs. */
  count: number;
  /** Something does not work now. */
  isUrgent: boolean;
};

export const serversPath = apiPath(serversApi.list, {});

/** The empty path sends no request. */
const none = "";

/** Of the organization whose page is shown. */
export const useRelays = (): readonly Relay[] => useList(relaysPath(currentSlug.value ?? "")).data ?? [];

/** Nodes that need attention. `isCalm`: read again by time, not after each event. */
export function useAttention(
  slug: string,
  { isCalm = false }: { isCalm?: boolean } = {},
): Resource<Attention> {
  return useResource(attentionPath(slug), { isCalm });
}

/**
 * How many paths have no other way than a relay that is away. Undefined until it is known, and while neither a lighthouse nor a relay
 * is away: then it is not asked for.
 */
export function useCut(slug: string): number | undefined {
  const { data } = useAttention(slug, { isCalm: true });
  const path = data !== undefined && data.hubs_away.count > 0 ? apiPath(pathsApi.groups, { slug }) : "";
  return useResource(path, { isCalm: true }).data?.totals.cut;
}

/** Needs of the organization of the navigation. */
export function useNeeds({ isCalm = false }: { isCalm?: boolean } = {}): Needs {
  const shown = shownOrganization.value;
  const slug = shown?.slug ?? "";
  const use = { isCalm };
  const read = useAttention(slug, use);
  const registrations = useList(isAdmin(shown) ? registrationsPath(slug) : none);
  const cas = useResource(apiPath(authoritiesApi.retrieve, { slug }), use);
  const allRelays = useList(relaysPath(slug), use);
  // Deliveries are no events, so read them again by time.
  const allWebhooks = useList(
    isAdmin(shown) ? apiPath(webhooksApi.list, { slug }, { page_size: "1000" }) : none,
    { isCalm: true },
  );
  const cut = useCut(slug);
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
  const found = { attention, waiting, failingTests, rotation, relays, webhooks, lastBackupAt, warnings };
  return { ...found, error, count: countNeeds(found), isUrgent: isUrgent(found, cut) };
}
