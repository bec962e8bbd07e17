// `agent unregister`: removes this machine from an organization.

import { given } from "../../base/given.ts";
import { brand } from "../../brand.ts";
import { fromSystemError } from "../../base/errors.ts";
import type { NotRemoved } from "../../base/files.ts";
import type { Step } from "../../base/plan/plan.ts";
import { quoteWord } from "../../base/quote.ts";
import type { Salvaged } from "../../node/files/damaged-organization.ts";
import type { Context, Implementation } from "../command.ts";
import { planRequestIfThere } from "../node/daemon-address.ts";
import { accessTokenFlag } from "./node-flags.ts";
import { valueFlag } from "../values.ts";

export const command: Implementation = {
  notes:
    "It tells the control plane, which revokes the node like a deletion; its name stays reserved until all nodes know. If\n" +
    "the control plane cannot be told, the output says how an administrator deletes the node. With --access-token, the\n" +
    "node is deleted with an administrator's rights. Exit status 1 if something could not be removed: the output names it.",
  args: {
    "org-slug": valueFlag("SLUG", "The organization's slug (default: the only one)"),
    ...accessTokenFlag,
  },
  examples: [
    `${brand.executable} unregister --org-slug acme --access-token-file token`,
    `${brand.executable} unregister --org-slug acme --dry-run`,
  ],
  run,
};

async function run(context: Context): Promise<number> {
  const { settings, system, values, output, log } = context;
  const { listOrganizations } = await import("../../node/files/list-organizations.ts");
  const { openOrganization, parseSlug } = await import("../../node/files/organizations.ts");
  const { salvageOrganization } = await import("../../node/files/damaged-organization.ts");
  const { findUnfinished } = await import("../../node/enroll/pending.ts");
  const { removeTemporarySiblings } = await import("../../node/files/replacement.ts");
  const { chooseOne } = await import("../../daemon/asking/choose-slugs.ts");
  const slug = parseSlug(chooseOne(settings.configRoot, values.text("org-slug")));
  if (!settings.dryRun) removeTemporarySiblings(settings.configRoot, slug);
  // Damaged files are no reason to keep the organization: only one that does not exist is refused, by openOrganization.
  if (!listOrganizations(settings.configRoot).includes(slug)) {
    const unfinished = findUnfinished(settings.configRoot, slug);
    if (unfinished !== undefined) return forgetUnfinished(slug, unfinished, context);
    openOrganization(settings.configRoot, slug);
  }
  const salvaged = salvageOrganization(settings.configRoot, slug);
  const accessToken = await values.secret("access-token");
  if (settings.dryRun) {
    output.plan(await planLeaving(salvaged, accessToken, context));
    return 0;
  }
  const { serviceRemoval, stopOverlay } = await import("../node/stop-overlay.ts");
  const { removeLocally } = await import("../../node/enroll/unregister.ts");
  const changes = await serviceRemoval(salvaged, context);
  requireWritable(settings.configRoot, await import("node:fs"));
  // The control plane first: if it refuses, nothing changes on this machine.
  const end = await endAtControlPlane(salvaged, accessToken, { system, log });
  await stopOverlay(salvaged, changes, context);
  const notRemoved = await removeLocally(salvaged, `${brand.executable} unregister`, system);
  return report(salvaged, end, notRemoved, context);
}

async function planLeaving(
  salvaged: Salvaged,
  accessToken: string | undefined,
  context: Context,
): Promise<Step[]> {
  const { settings, system } = context;
  const { deletionOf, farewellOf, planRemoval } = await import("../../node/enroll/unregister.ts");
  const { serviceRemoval } = await import("../node/stop-overlay.ts");
  const { planChanges } = await import("../../platform/machine-changes.ts");
  const { planUndoEdge } = await import("../../node/edge/undo-edge.ts");
  const request = accessToken === undefined ? farewellOf(salvaged) : deletionOf(salvaged);
  const services = planChanges(await serviceRemoval(salvaged, context));
  const daemon =
    salvaged.mode === "server" ? [] : await planRequestIfThere(`delete ${salvaged.slug}`, settings, system);
  return [
    ...(request === undefined ? [] : [request]),
    ...services,
    ...daemon,
    ...(await planUndoEdge(salvaged, system)),
    ...planRemoval(salvaged, system),
  ];
}

/** Prints what was done, and what is left to the user. Returns the exit status. */
function report(
  salvaged: Salvaged,
  end: End,
  notRemoved: readonly NotRemoved[],
  { output }: Context,
): number {
  const { slug, nodeId, name = "This machine" } = salvaged;
  const requestLeft = end.is === "unreached" ? `${end.request.method} ${end.request.url}` : undefined;
  output.result(
    {
      org_slug: slug,
      node_id: nodeId ?? null,
      directory: salvaged.directory,
      deleted: end.is === "deleted",
      ...given({ request_left: requestLeft }),
      ...(notRemoved.length === 0 ? {} : { not_removed: notRemoved }),
    },
    `${name} has left ${slug}${outcomes[end.is]}\n`,
  );
  if (end.is === "unreached") {
    output.say(
      `The control plane could not be told (${end.reason}), so it still lists the node. ${howToDelete(salvaged)}`,
    );
  } else if (end.is === "unnamed") {
    output.say(
      "The control plane still lists the node. Its damaged files do not say which node it was. An administrator " +
        `finds it with \`${brand.executable} admin node list ${quoteWord(slug)}\` and deletes it there.`,
    );
  }
  for (const { path, reason } of notRemoved) output.say(`Could not remove ${path}: ${reason}`);
  if (notRemoved.length === 0) return 0;
  output.say("Remove this by hand: it can hold keys and a token of the node.");
  return 1;
}

/** Damaged files may still say the number of the node, but not its name, by which commands know it. */
function howToDelete({ slug, name, nodeId }: Salvaged): string {
  const admin = `${brand.executable} admin node`;
  return name === undefined
    ? `An administrator finds the name of the node with the number ${nodeId} by \`${admin} list ${quoteWord(slug)} --json\`, and deletes it.`
    : `An administrator can delete it:\n  ${admin} delete ${quoteWord(slug)} ${quoteWord(name)}`;
}

/**
 * How the node ended at its control plane. unknown: that had no such node any more. unnamed: the damaged files do not say
 * which node it was. unreached: the request that deletes the node is left to an administrator.
 */
type End =
  | { is: "deleted" | "unknown" | "unnamed" }
  | { is: "unreached"; reason: string; request: { method: string; url: string } };

const outcomes: Record<End["is"], string> = {
  deleted: " and is deleted from the control plane",
  unknown: "; the control plane did not know it any more",
  unnamed: "",
  unreached: "",
};

/** Deletes the node at its control plane: with an administrator's token, else by the node's own. */
async function endAtControlPlane(
  salvaged: Salvaged,
  accessToken: string | undefined,
  { system, log }: Pick<Context, "system" | "log">,
): Promise<End> {
  const { deleteOnServer, deletionOf, sayFarewell } = await import("../../node/enroll/unregister.ts");
  const request = deletionOf(salvaged);
  if (request === undefined || salvaged.nodeId === undefined) return { is: "unnamed" };
  if (accessToken !== undefined) {
    const wasThere = await deleteOnServer(salvaged, salvaged.nodeId, accessToken, system, log);
    return { is: wasThere ? "deleted" : "unknown" };
  }
  const reason = await sayFarewell(salvaged, system, log);
  return reason === undefined ? { is: "deleted" } : { is: "unreached", reason, request };
}

/** A registration that was not completed: there are keys, but the control plane cannot be asked for anything with them. */
async function forgetUnfinished(
  slug: string,
  directory: string,
  { settings, system, output }: Context,
): Promise<number> {
  if (settings.dryRun) {
    const { planRemoved } = await import("../../base/plan/plan-file.ts");
    output.plan(planRemoved(directory));
    return 0;
  }
  requireWritable(settings.configRoot, await import("node:fs"));
  const { removeUnfinished } = await import("../../node/enroll/pending.ts");
  await removeUnfinished(directory, `${brand.executable} unregister`, system);
  output.result(
    { org_slug: slug, node_id: null, directory, deleted: false },
    `Deleted the keys of a registration of ${slug} that was not completed\n`,
  );
  return 0;
}

function requireWritable(configRoot: string, { accessSync, constants }: typeof import("node:fs")): void {
  try {
    accessSync(configRoot, constants.W_OK);
  } catch (error) {
    throw fromSystemError(`change ${configRoot}`, error);
  }
}
