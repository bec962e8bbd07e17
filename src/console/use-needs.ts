// What needs a person now, of everything that the console reads: the overview lists it, the navigation counts it.

import { org } from "./api.ts";
import type { Authorities, Rotation } from "./authorities.ts";
import type { Machine } from "./machines.ts";
import { isAdmin, me, shownOrganization } from "./me.ts";
import { degraded, expiring, isBackupDue, outdatedEngines, type BrokenPath, type Need } from "./needs.ts";
import { useNodes, type NodeList } from "./node-list.ts";
import { registrationsPath, type Registration } from "./registrations.ts";
import { relaysPath, type Relay } from "./relays.ts";
import { useList, useResource } from "./resource.ts";
import { now } from "./times.ts";

export type Needs = {
  nodes: NodeList;
  /** Machines that wait for approval: only administrators are told. */
  waiting: readonly Registration[];
  degraded: readonly Need[];
  expiring: readonly Machine[];
  engines: readonly Need[];
  /** Undefined while none is running. */
  rotation: Rotation | undefined;
  relays: readonly Relay[];
  /** Of the control plane, if it needs one: only staff are told. Null: there was none. */
  lastBackupAt: string | null | undefined;
  /** All of them. */
  count: number;
};

/** Nothing is asked for the empty path. */
const none = "";

/** Of the organization of the navigation. `isCalm`: see `useResource`. */
export function useNeeds({ isCalm = false }: { isCalm?: boolean } = {}): Needs {
  const shown = shownOrganization.value;
  const own = shown?.slug ?? "";
  const nodes = useNodes(false, own);
  const use = { isCalm };
  const waiting = useList<Registration>(isAdmin(shown) ? registrationsPath(own) : none).data ?? [];
  const { data: broken = [] } = useResource<readonly BrokenPath[]>(
    org(own, "paths/?probe=broken&page_size=1000"),
    { isCalm: true },
  );
  const { data: authorities } = useResource<Authorities>(org(own, "ca/"), use);
  const relays = useList<Relay>(relaysPath(own), use).data ?? [];
  const { data: servers } = useResource<{ last_backup_at: string | null }>(
    me.value?.is_staff === true ? "/api/servers/" : none,
    { isCalm: true },
  );
  const machines = nodes.data ?? [];
  const found = {
    degraded: degraded(machines, broken),
    expiring: expiring(machines, now.value),
    engines: outdatedEngines(machines),
  };
  const rotation = authorities?.rotation.phase === "none" ? undefined : authorities?.rotation;
  const lastBackupAt =
    servers !== undefined && isBackupDue(servers.last_backup_at, now.value)
      ? servers.last_backup_at
      : undefined;
  const lists = [waiting, ...Object.values(found), relays.filter(({ paused }) => paused)];
  const count =
    lists.reduce((sum, { length }) => sum + length, 0) +
    (rotation === undefined ? 0 : 1) +
    (lastBackupAt === undefined ? 0 : 1);
  return { nodes, waiting, ...found, rotation, relays, lastBackupAt, count };
}
