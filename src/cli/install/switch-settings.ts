// Puts the settings of an update in rings into force, or the former ones again, for `agent update-run`.

import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import type { Organization } from "../../node/files/organizations.ts";
import type { Context } from "../command.ts";

/** The settings come with the check-in that brings the order, or with the next one. */
const settingsComeWithinMs = 120_000;
const settingsPollMs = 500;
/** The control plane may be away: then this process applies the settings itself, and the daemon goes on asking. */
const daemonAnswersWithinMs = 15_000;

/**
 * Puts the chosen settings into force: those of this order, or the former ones when the order is taken back (update-order.ts).
 * Throws if the engine does not run with them.
 */
export async function switchSettings(
  order: number,
  organization: Organization,
  context: Context,
): Promise<void> {
  await awaitSettings(order, organization, context);
  const { engineMembers } = await import("../node/engine-members.ts");
  const members = await engineMembers(context, { isOptional: true });
  const member = members.find(({ slug }) => slug === organization.slug);
  const findPid = async () => (await member?.examine())?.process?.pid;
  const pidBefore = await findPid();
  const state = await synchronize(organization, context);
  const { hasChosenSettings } = await import("../../node/contact/local-sync.ts");
  if (state !== undefined && !hasChosenSettings(organization, state)) {
    const { wholeConfiguration } = await import("../../engine/left-out.ts");
    const refused = state.left_out?.find(({ key }) => key === wholeConfiguration);
    throw new AppError("engine_failed", refused?.reason ?? "The settings could not be put into force");
  }
  // Restart an engine that only reloaded: much of what a reload takes matters to new tunnels alone, so that a bad setting
  // would cut off the node later, when no administrator watches.
  const pid = await findPid();
  if (pid !== undefined && pid === pidBefore) await member?.restart?.();
}

/** Waits until the settings of the order are on this machine, unless the order is taken back. Throws not_found. */
async function awaitSettings(
  order: number,
  { directory }: Organization,
  { system }: Pick<Context, "system">,
): Promise<void> {
  const { readSyncState } = await import("../../node/files/generations.ts");
  const { chosenSettings } = await import("../../node/files/update-order.ts");
  const end = system.monotonic() + settingsComeWithinMs;
  while (chosenSettings(directory) === order && readSyncState(directory)?.settings?.order !== order) {
    if (system.monotonic() > end) throw new AppError("not_found", "The settings have not come");
    await system.sleep(settingsPollMs);
  }
}

/**
 * Applies what is chosen: by the daemon if it answers, then in this process, which finds nothing to do after the daemon. Returns
 * sync.json; undefined: there is none.
 */
async function synchronize(organization: Organization, context: Context) {
  const { within } = await import("../../base/within.ts");
  const { syncThroughDaemon } = await import("../node/sync-by-daemon.ts");
  const answer = syncThroughDaemon(organization, context).catch(() => undefined);
  await within(context.system, daemonAnswersWithinMs, answer, undefined);
  const { makeLocalSync } = await import("../../node/contact/local-sync.ts");
  const { organizationDeps } = await import("../../node/contact/organization-deps.ts");
  const { readSyncState } = await import("../../node/files/generations.ts");
  const command = `${brand.executable} update-run`;
  const sync = makeLocalSync(organization, organizationDeps(organization, command, context));
  // `sync` returns undefined if sync.json may have changed.
  return (await sync()) ?? readSyncState(organization.directory);
}
