// `agent check-auth`: asks the control plane whether this node is still accepted.

import { given } from "../../base/given.ts";
import { brand } from "../../brand.ts";
import type { AuthOutcome } from "../../node/contact/check-auth.ts";
import type { Chosen, Organization } from "../../node/files/organizations.ts";
import type { Step } from "../../base/plan/plan.ts";
import type { Context, Implementation } from "../command.ts";
import { planSyncThroughDaemon, syncThroughDaemon } from "./sync-by-daemon.ts";
import { chosenSlug, organizationFlags, worstStatus } from "./organizations.ts";
import { valueFlag } from "../values.ts";

export const command: Implementation = {
  notes:
    "Only an order signed by the organization stops or starts its overlay. If the control plane is unreachable or answers\n" +
    "with an error, the tunnels stay up and the exit status is 6. Exit status 7: this check stopped the overlay, because the\n" +
    "node is revoked; later checks say so with status 0.",
  args: {
    ...organizationFlags,
    wait: valueFlag("SECONDS", "Wait this long for changes, and apply them"),
  },
  examples: [`${brand.executable} check-auth`, `${brand.executable} check-auth --all --wait 58`],
  async run(context) {
    const { settings, values, output } = context;
    const { chooseOrganizations, chooseEach } = await import("../../node/files/organizations.ts");
    const waitS = values.integer("wait", 0, 3600) ?? 0;
    const slug = chosenSlug(values);
    if (settings.dryRun) {
      const organizations = chooseOrganizations(settings.configRoot, slug, output.say);
      const plans = await Promise.all(organizations.map((each) => plan(each, context)));
      output.plan(plans.flat());
      return 0;
    }
    const { rememberVersions } = await import("../../node/engine/engine.ts");
    const { openForRevocations } = await import("../../node/files/damaged-organization.ts");
    const versionOf = rememberVersions(context.system);
    // Also organizations with damaged files: a revocation has to reach them (openForRevocations).
    const outcomes = await Promise.all(
      chooseEach(settings.configRoot, slug, openForRevocations).map((each) =>
        check(each, { waitS, versionOf }, context),
      ),
    );
    output.result(
      { organizations: outcomes.map(({ report }) => report) },
      outcomes
        .map(({ report: { org_slug, result, action, reason }, status }) => {
          const effect = action === "none" ? "" : `, the overlay is ${action}`;
          const stale = result === "ok" && status !== 0 ? ", but its configuration could not be updated" : "";
          return `${org_slug}: ${result}${effect}${stale}${reason === undefined ? "" : `: ${reason}`}\n`;
        })
        .join(""),
    );
    return worstStatus(outcomes.map(({ status }) => status));
  },
};

/** A daemon that runs the organization asks the control plane itself. */
async function plan(organization: Organization, context: Context): Promise<Step[]> {
  const byDaemon = await planSyncThroughDaemon(organization, context);
  if (byDaemon.length > 0) return byDaemon;
  const { planFollow } = await import("../../node/contact/follow-plan.ts");
  return planFollow(organization);
}

/** Asks the daemon if it runs the organization; otherwise this process asks the control plane. */
async function check(
  { slug, open }: Chosen,
  { waitS, versionOf }: { waitS: number; versionOf: (engine: string) => Promise<string> },
  context: Context,
): Promise<AuthOutcome> {
  const { checkAuth, revokedStatus, unsure } = await import("../../node/contact/check-auth.ts");
  const { settings, system, log } = context;
  try {
    const organization = open();
    const answer = await syncThroughDaemon(organization, context);
    if (answer !== undefined) {
      const { access = "ok", action = "none", reason, result } = answer;
      const report = { org_slug: slug, result: access, action, ...given({ reason }) };
      if (access === "revoked") return { report, status: revokedStatus(action) };
      // Returned: the new configuration failed, and the former one is in force again.
      return { report, status: result === "returned" ? 1 : 0 };
    }
    const { makeStartDrill, makeStartUpdate } = await import("../../node/contact/requests/update-orders.ts");
    const { organizationDeps } = await import("../../node/contact/organization-deps.ts");
    const deps = organizationDeps(organization, `${brand.executable} check-auth`, { ...context, versionOf });
    const { savingHealth } = await import("../../node/contact/server-mode/saving-health.ts");
    // A long wait has time to probe peers and to heal tunnels meanwhile.
    const healthDeps = { settings, system, log, versionOf, isLong: waitS >= 5 };
    return await savingHealth(organization, healthDeps, (watch) =>
      checkAuth(
        organization,
        {
          ...deps,
          ...watch,
          startUpdate: makeStartUpdate(settings, system),
          startDrill: makeStartDrill(settings, system),
        },
        waitS,
      ),
    );
  } catch (error) {
    return unsure(slug, error);
  }
}
