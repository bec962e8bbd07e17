// Undoes what exits, routers, drills, and the counting of relays and flows changed on this machine, when an organization is left
// or the program is uninstalled.

import { join } from "node:path";
import { messageOf } from "../../base/errors.ts";
import type { NotRemoved } from "../../base/files.ts";
import type { System } from "../../base/system.ts";
import type { Step } from "../../base/plan/plan.ts";
import { applyChanges, planChanges, type Change } from "../../platform/machine-changes.ts";
import { tableRemoval } from "../../platform/nftables.ts";
import { endMappingOf, planMappingEnd } from "./port-mapping/keep-mapping.ts";
import { exitRemoval } from "../exit/leave-exit.ts";
import { listOrganizations } from "../files/list-organizations.ts";
import { routerRemoval } from "../routing/router.ts";

type UsedSystem = Pick<System, "run" | "platform">;

/** Undoes the changes of an organization that this machine leaves. Returns what could not be undone. Does not reject. */
export async function undoEdge(
  place: { slug: string; directory: string },
  system: UsedSystem,
): Promise<NotRemoved[]> {
  try {
    await endMappingOf(place.directory);
    return await applyPossible(() => undoChanges(place, system), system);
  } catch (error) {
    return [{ path: "what exits and routers changed of the kernel", reason: messageOf(error) }];
  }
}

/** The plan of undoEdge, without files in the organization's directory: the directory is removed as a whole. */
export async function planUndoEdge(
  place: { slug: string; directory: string },
  system: UsedSystem,
): Promise<Step[]> {
  const steps = [...planMappingEnd(place.directory), ...planChanges(await undoChanges(place, system))];
  return steps.filter((each) => each.step !== "file" || !each.path.startsWith(`${place.directory}/`));
}

/** `gone`: organizations whose own changes are undone before these. They hold nothing back any more. */
async function undoChanges(
  place: { slug: string; directory: string },
  system: UsedSystem,
  gone: readonly string[] = [],
): Promise<Change[]> {
  return [
    ...(await exitRemoval(place, system, gone)),
    ...(await routerRemoval(place.directory, system, gone)),
    ...(await tableRemoval("relay", place.slug, system)),
    ...(await tableRemoval("flows", place.slug, system)),
    ...(await tableRemoval("drill", place.slug, system)),
  ];
}

/** What undoes the parts of all organizations of this machine. */
export async function undoAllChanges(configRoot: string, system: UsedSystem): Promise<Change[]> {
  const all: Change[] = [];
  const gone: string[] = [];
  for (const slug of listOrganizations(configRoot)) {
    all.push(...(await undoChanges({ slug, directory: join(configRoot, slug) }, system, gone)));
    gone.push(slug);
  }
  return all;
}

/** Ends the mappings of all organizations. Apart from undoAllChanges, because they are on the router, not on this machine. */
export async function endAllMappings(configRoot: string): Promise<void> {
  await Promise.all(listOrganizations(configRoot).map((slug) => endMappingOf(join(configRoot, slug))));
}

/** The plan of endAllMappings. */
export const planAllMappingEnds = (configRoot: string): Step[] =>
  listOrganizations(configRoot).flatMap((slug) => planMappingEnd(join(configRoot, slug)));

/**
 * Applies as many changes as possible, and returns those that failed. A part that ends may undo the same at this moment, so after a
 * failure the list is made and applied once more.
 */
export async function applyPossible(
  list: () => Promise<Change[]>,
  system: UsedSystem,
): Promise<NotRemoved[]> {
  const apply = async () => {
    const notRemoved: NotRemoved[] = [];
    for (const each of await list()) {
      const path = each.change === "run" ? each.argv.join(" ") : each.path;
      await applyChanges([each], system).catch((error: unknown) =>
        notRemoved.push({ path, reason: messageOf(error) }),
      );
    }
    return notRemoved;
  };
  const failed = await apply();
  return failed.length === 0 ? failed : apply();
}
