// `agent sync-config`: applies the configuration of the control plane, and rolls back if the engine refuses it.

import { brand } from "../brand.ts";
import { AppError, fromSystemError } from "../errors.ts";
import { clean } from "../log.ts";
import type { Chosen, Organization } from "../node/files/organizations.ts";
import type { Step } from "../plan.ts";
import type { Context, Implementation } from "./command.ts";
import { syncThroughDaemon } from "./team-through-daemon.ts";
import { chosenSlug, teamFlags, worstStatus } from "./teams.ts";

export const command: Implementation = {
  notes:
    "Fetches the configuration, lets the engine test it, replaces the files and reloads the engine. If the engine refuses\n" +
    "the configuration, the previous one stays in use. A changed overrides.yml is applied, too.",
  args: {
    ...teamFlags,
    renew: { type: "boolean", description: "Renew the certificate first (needs --access-token)" },
    "access-token": {
      type: "string",
      valueHint: "JWT",
      secret: true,
      description: "Access token of an administrator",
    },
  },
  examples: [
    `${brand.executable} sync-config`,
    `${brand.executable} sync-config --org-slug acme --json`,
    `${brand.executable} sync-config --renew --access-token-file token`,
  ],
  run,
};

async function run(context: Context): Promise<number> {
  const { settings, values, output } = context;
  const { chooseEach, chooseOrganizations } = await import("../node/files/organizations.ts");
  const slug = chosenSlug(values);
  const chosen = chooseEach(settings.configRoot, slug);
  const accessToken = values.on("renew") ? await readAccessToken(context) : undefined;
  if (settings.dryRun) {
    const organizations = chooseOrganizations(settings.configRoot, slug);
    const plans = await Promise.all(organizations.map((each) => plan(each, context)));
    output.plan(plans.flat());
    return 0;
  }
  const outcomes = await Promise.all(chosen.map((each) => sync(each, accessToken, context)));
  output.result(
    { organizations: outcomes.map(({ report }) => report) },
    outcomes
      .map(({ report: { org_slug, result, config_version, reason } }) => {
        const why = reason === undefined ? "" : `: ${reason}`;
        return `${org_slug}: ${words[result]} (version ${config_version})${why}\n`;
      })
      .join(""),
  );
  for (const { hint } of outcomes) if (hint !== undefined) output.say(clean(hint));
  return worstStatus(outcomes.map(({ status }) => status));
}

const words = {
  changed: "the new configuration is in use",
  same: "no change",
  returned: "rolled back to the previous configuration",
  failed: "not synchronized",
} as const;

type Report = {
  org_slug: string;
  result: keyof typeof words;
  config_version: number;
  reason?: string;
  restart_pending?: string[];
};
type Outcome = { report: Report; status: number; hint?: string };

async function sync(
  { slug, open }: Chosen,
  accessToken: string | undefined,
  context: Context,
): Promise<Outcome> {
  const { readSyncState } = await import("../node/files/organizations.ts");
  let version = 0;
  try {
    const organization = open();
    const { directory, config } = organization;
    version = config.config_version;
    version = readSyncState(directory)?.config_version ?? version;
    if (accessToken !== undefined) await renew(organization, accessToken, context);
    const report = (await throughDaemon(organization, context)) ?? (await itself(organization, context));
    return { report, status: report.result === "returned" ? 1 : 0 };
  } catch (error) {
    const known = fromSystemError(`synchronize ${slug}`, error);
    const report = {
      org_slug: slug,
      result: "failed" as const,
      config_version: version,
      reason: known.message,
    };
    const { hint } = known.details;
    return { report, status: known.exitStatus, ...(hint === undefined ? {} : { hint }) };
  }
}

async function throughDaemon(organization: Organization, context: Context): Promise<Report | undefined> {
  const answer = await syncThroughDaemon(organization, context);
  if (answer?.result === undefined) return undefined;
  if (answer.access === "revoked") {
    throw new AppError("access_revoked", "The control plane has revoked this node. Its overlay is stopped.");
  }
  return {
    org_slug: organization.slug,
    result: answer.result,
    config_version: answer.config_version ?? 0,
    ...(answer.reason === undefined ? {} : { reason: answer.reason }),
  };
}

async function itself(organization: Organization, { settings, system, log }: Context): Promise<Report> {
  const { syncOrganization } = await import("../node/contact/sync.ts");
  const { makeTeamEdge } = await import("../node/contact/team.ts");
  const edge = makeTeamEdge(organization, settings, {
    system,
    log,
    command: `${brand.executable} sync-config`,
  });
  const { result, configVersion, reason, restartPending } = await edge.withClient((client) =>
    syncOrganization(organization, { ...edge, client, engine: edge.engine() }),
  );
  return {
    org_slug: organization.slug,
    result,
    config_version: configVersion,
    ...(reason === undefined ? {} : { reason }),
    ...(restartPending.length === 0 ? {} : { restart_pending: restartPending }),
  };
}

async function plan(organization: Organization, { settings, system, log, values }: Context): Promise<Step[]> {
  const { planSync } = await import("../node/contact/sync-plan.ts");
  const { makeTeamEdge } = await import("../node/contact/team.ts");
  const edge = makeTeamEdge(organization, settings, { system, log, command: "" });
  const { readCredentials } = await import("../node/files/organizations.ts");
  const { paths } = await import("../protocol.ts");
  const base = readCredentials(organization.directory).api_base;
  const id = organization.config.node_id;
  const renewal: Step = {
    step: "request",
    method: "POST",
    url: base + paths.renewCert(organization.slug, id),
  };
  const steps = await edge.withClient((client) =>
    planSync(organization, { ...edge, client, engine: edge.engine() }),
  );
  return values.on("renew") ? [renewal, ...steps] : steps;
}

async function readAccessToken({ values }: Context): Promise<string> {
  const token = await values.secret("access-token");
  if (token !== undefined) return token;
  throw new AppError("usage", "--renew needs --access-token", {
    hint: "Only an administrator can renew at once. Without --renew, certificates are renewed before they expire.",
  });
}

async function renew(organization: Organization, token: string, { system, log }: Context): Promise<void> {
  const { clientOf } = await import("../node/contact/connection.ts");
  await clientOf(organization.directory, token, system, log).renewCert(
    organization.slug,
    organization.config.node_id,
  );
}
