// `agent checkin`: sends a heartbeat for each organization.

import { brand } from "../../brand.ts";
import { fromSystemError } from "../../base/errors.ts";
import type { Chosen } from "../../node/files/organizations.ts";
import type { Context, Implementation } from "../command.ts";
import { errorBody, type ErrorBody } from "../error-body.ts";
import { chosenSlug, organizationFlags, outcomeOf, reportFailures } from "./organizations.ts";

export const command: Implementation = {
  args: organizationFlags,
  examples: [`${brand.executable} checkin`, `${brand.executable} checkin --org-slug acme --json`],
  async run(context) {
    const { settings, values, output } = context;
    const { chooseEach, chooseOrganizations } = await import("../../node/files/organizations.ts");
    const slug = chosenSlug(values);
    if (settings.dryRun) {
      const { planCheckin } = await import("../../node/contact/follow-plan.ts");
      output.plan(chooseOrganizations(settings.configRoot, slug, output.say).map(planCheckin));
      return 0;
    }
    const { rememberVersions } = await import("../../node/engine/engine.ts");
    const versionOf = rememberVersions(context.system);
    const chosen = chooseEach(settings.configRoot, slug);
    const outcomes = await Promise.all(
      chosen.map((each) => outcomeOf(each.slug, checkInOne(each, versionOf, context))),
    );
    const status = reportFailures(outcomes, output, { isListed: output.json });
    const organizations = outcomes.map((each) =>
      "error" in each ? failureOf(each.slug, each.error) : each.value,
    );
    output.result({ organizations }, organizations.map(describe).join(""));
    return status;
  },
};

type CheckedIn = Awaited<ReturnType<typeof checkInOne>>;
type Failure = { org_slug: string; error: ErrorBody };

function failureOf(slug: string, error: unknown): Failure {
  return { org_slug: slug, error: errorBody(fromSystemError(`check in with ${slug}`, error)) };
}

/** The line of an organization; "" for a failure, which is already on standard error. */
function describe(outcome: CheckedIn | Failure): string {
  if ("error" in outcome) return "";
  const { org_slug, config_changed, certificate_not_after } = outcome;
  const nextStep = config_changed
    ? `, a new configuration is available (apply it: ${brand.executable} sync-config)`
    : "";
  return `${org_slug}: checked in${nextStep}, certificate valid until ${certificate_not_after}\n`;
}

/** Checks one organization in; also after root changed what it offers (sync-config.ts). */
export async function checkInOne(
  { slug, open }: Chosen,
  versionOf: (engine: string) => Promise<string>,
  context: Context,
) {
  const organization = open();
  const { checkIn, reportOf } = await import("../../node/contact/checkin.ts");
  const { organizationDeps } = await import("../../node/contact/organization-deps.ts");
  const deps = organizationDeps(organization, `${brand.executable} checkin`, { ...context, versionOf });
  const report = reportOf(await deps.engine());
  const answer = await deps.withClient((client) => checkIn(organization, client, report));
  const { last_checkin_at, config_version, config_changed, certificate_not_after } = answer;
  return {
    org_slug: slug,
    last_checkin_at,
    config_version,
    config_changed,
    certificate_not_after,
  };
}
