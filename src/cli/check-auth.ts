// `agent check-auth`: whether this machine still belongs to its organizations.

import { brand } from "../brand.ts";
import type { AuthOutcome } from "../node/contact/check-auth.ts";
import type { Chosen } from "../node/files/organizations.ts";
import type { Command, Context } from "./command.ts";
import { planCheckins } from "./checkin.ts";
import { syncThroughDaemon } from "./team-through-daemon.ts";
import { chosenSlug, teamFlags, worstStatus } from "./teams.ts";

export const command: Command = {
  name: "check-auth",
  summary: "Verify that the credentials are still valid",
  notes:
    "Only an order signed by the organization stops its overlay, or starts it again. A control plane that is away, an\n" +
    "error, a captive portal: a warning, exit 6, and the tunnels stay up. Exit 7 when a revocation was carried out.",
  flags: {
    ...teamFlags,
    wait: {
      type: "string",
      valueHint: "SECONDS",
      description: "Hold the check-in this long for news, and apply it",
    },
  },
  examples: [`${brand.executable} check-auth`, `${brand.executable} check-auth --all --wait 50`],
  async run(context) {
    const { settings, values, output } = context;
    const { chooseOrganizations, chooseEach } = await import("../node/files/organizations.ts");
    const waitS = values.integer("wait", 0, 3600) ?? 0;
    const slug = chosenSlug(values);
    if (settings.dryRun) {
      output.plan(await planCheckins(chooseOrganizations(settings.configRoot, slug, output.say)));
      return 0;
    }
    const { rememberVersions } = await import("../node/engine/engine.ts");
    const versionOf = rememberVersions(context.system);
    const outcomes = await Promise.all(
      chooseEach(settings.configRoot, slug).map((each) => check(each, { waitS, versionOf }, context)),
    );
    output.result(
      { organizations: outcomes.map(({ report }) => report) },
      outcomes
        .map(({ report: { org_slug, result, action, reason } }) => {
          const did = action === "none" ? "" : `, the overlay is ${action}`;
          return `${org_slug}: ${result}${did}${reason === undefined ? "" : `: ${reason}`}\n`;
        })
        .join(""),
    );
    return worstStatus(outcomes.map(({ status }) => status));
  },
};

/** Where the daemon holds the team it is asked, and what it says counts; else this process does it. */
async function check(
  { slug, open }: Chosen,
  { waitS, versionOf }: { waitS: number; versionOf: (engine: string) => Promise<string> },
  context: Context,
): Promise<AuthOutcome> {
  const { checkAuth, unsure } = await import("../node/contact/check-auth.ts");
  const { settings, system, log } = context;
  try {
    const organization = open();
    const answer = await syncThroughDaemon(organization, context);
    if (answer !== undefined) {
      const { access = "ok", action = "none", reason, result } = answer;
      const report = { org_slug: slug, result: access, action, ...(reason === undefined ? {} : { reason }) };
      return { report, status: action === "stopped" ? 7 : result === "returned" ? 1 : 0 };
    }
    const { makeOrganizationEdge } = await import("../node/contact/organization-edge.ts");
    const edge = makeOrganizationEdge(organization, settings, {
      system,
      log,
      versionOf,
      command: `${brand.executable} check-auth`,
    });
    return await checkAuth(organization, edge, waitS);
  } catch (error) {
    return unsure(slug, error);
  }
}
