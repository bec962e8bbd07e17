// `agent sync-config`: applies the configuration of the control plane, and rolls back if the engine refuses it.

import { given } from "../../base/given.ts";
import { brand } from "../../brand.ts";
import { AppError, fromSystemError } from "../../base/errors.ts";
import { clean } from "../../base/log.ts";
import { quoteWord } from "../../base/quote.ts";
import { describeLeftOut, type LeftOut } from "../../engine/left-out.ts";
import type { Chosen, Organization } from "../../node/files/organizations.ts";
import type { Step } from "../../base/plan/plan.ts";
import type { Context, Implementation } from "../command.ts";
import { accessTokenFlag, permissionFlags } from "../join/node-flags.ts";
import { planSyncThroughDaemon, syncThroughDaemon } from "./sync-by-daemon.ts";
import { chosenSlug, organizationFlags, worstStatus } from "./organizations.ts";
import { switchFlag } from "../values.ts";

export const command: Implementation = {
  notes:
    "Fetches the configuration, lets the engine test it, replaces the files and reloads the engine. If the engine refuses\n" +
    "the configuration, the previous one stays in use. A changed overrides.yml is applied, too. Settings that a control\n" +
    "plane must not make on this machine are left out and listed, a default route for example, unless an\n" +
    "--allow flag allowed it. Such a flag replaces the whole list of its kind, and the machine remembers it.",
  args: {
    ...organizationFlags,
    renew: switchFlag("Renew the certificate first (needs --access-token)"),
    ...accessTokenFlag,
    ...permissionFlags,
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
  const { chooseEach, chooseOrganizations } = await import("../../node/files/organizations.ts");
  const slug = chosenSlug(values);
  const chosen = chooseEach(settings.configRoot, slug);
  const allow = await readAllowed(chosen, context);
  const accessToken = values.on("renew") ? await readAccessToken(context) : undefined;
  if (settings.dryRun) {
    const organizations = chooseOrganizations(settings.configRoot, slug, output.say);
    const plans = await Promise.all(organizations.map((each) => plan(each, context)));
    output.plan([...allow.plan, ...plans.flat(), ...(await planOffers(organizations, values))]);
    return 0;
  }
  allow.write();
  const outcomes = await Promise.all(chosen.map((each) => sync(each, accessToken, context)));
  if (isOffer(values)) await tellOffers(chosen, context);
  // A permission is for one organization: readAllowed refuses several.
  const permissions =
    allow.changes.length === 0 ? {} : { permissions: allow.changes.map(({ flag }) => flag) };
  output.result(
    { organizations: outcomes.map(({ report }) => ({ ...report, ...permissions })) },
    outcomes
      .map(({ report: { org_slug, result, config_version, reason, left_out = [], restored = [] } }) => {
        const why = reason === undefined ? "" : `: ${reason}`;
        const leftOutLine = left_out.length === 0 ? "" : `${org_slug}: ${describeLeftOut(left_out)}\n`;
        const allowLines = allow.changes.map(({ text }) => `${org_slug}: ${text}\n`).join("");
        const restoredLine =
          restored.length === 0
            ? ""
            : `${org_slug}: was missing, and is there again: ${restored.join(", ")}\n`;
        const isOther = allowLines !== "" || restoredLine !== "";
        const outcome = result === "same" && isOther ? "no other change" : resultTexts[result];
        return `${allowLines}${restoredLine}${org_slug}: ${outcome} (version ${config_version})${why}\n${leftOutLine}`;
      })
      .join(""),
  );
  for (const { hint } of outcomes) if (hint !== undefined) output.say(clean(hint));
  return worstStatus(outcomes.map(({ status }) => status));
}

/**
 * What the flags of permissions (`permissionFlags`) change; nothing if none is given. `write` remembers it on this machine, where no control plane can write. Throws
 * usage if several organizations could be meant.
 */
export async function readAllowed(
  chosen: readonly Pick<Chosen, "slug">[],
  { values, settings }: Pick<Context, "values" | "settings">,
) {
  const flag = values.firstOf(Object.keys(permissionFlags));
  const [only, second] = chosen;
  if (flag === undefined || only === undefined) return { plan: [], write: () => {}, changes: [] };
  if (second !== undefined) throw new AppError("usage", `--${flag} needs --org-slug: several are registered`);
  const { parsePermissions, permissionChanges } =
    await import("../../node/files/granted/permission-flags.ts");
  const { planPermissions, writePermissions } = await import("../../node/files/permissions.ts");
  const { join } = await import("node:path");
  const { configRoot } = settings;
  const { slug } = only;
  const allowed = parsePermissions((each) => values.text(each), { configRoot, slug });
  const directory = join(configRoot, slug);
  return {
    changes: permissionChanges(directory, allowed),
    plan: planPermissions(directory, allowed),
    write: () => writePermissions(directory, allowed),
  };
}

/** Whether the control plane has to know of these permissions, as other nodes, or updates in rings, depend on them. */
export const isOffer = (values: Context["values"]): boolean =>
  values.firstOf(["advertise", "advertise-exit", "no-advertise-exit", "allow-updates"]) !== undefined;

/** The plan of tellOffers. */
export async function planOffers(
  organizations: readonly Organization[],
  values: Context["values"],
): Promise<Step[]> {
  if (!isOffer(values)) return [];
  const { planCheckin } = await import("../../node/contact/follow-plan.ts");
  return organizations.map(planCheckin);
}

/** The control plane learns at once what is offered. Otherwise with the next check-in, within a minute. */
export async function tellOffers(chosen: readonly Chosen[], context: Context): Promise<void> {
  if (chosen.length === 0) return;
  if (context.values.text("advertise") !== undefined) await warnOfAway(chosen, context);
  const { checkInOne } = await import("./checkin.ts");
  const { rememberVersions } = await import("../../node/engine/engine.ts");
  const versionOf = rememberVersions(context.system);
  const results = await Promise.allSettled(chosen.map((each) => checkInOne(each, versionOf, context)));
  const { output, values } = context;
  if (results.some(({ status }) => status === "rejected"))
    return output.say("The control plane could not be told of it now: the next check-in does it.");
  const slug = quoteWord(chosen[0]?.slug ?? "");
  if ((values.text("advertise") ?? "none") !== "none")
    output.say(
      `An administrator approves what this machine offers to route: \`${brand.executable} admin route list ${slug}\``,
    );
  if (values.on("advertise-exit"))
    output.say(
      `An administrator approves the exit: \`${brand.executable} admin node update ${slug} NODE --add-exit-group GROUP\`. ` +
        `What this machine lacks for it, \`${brand.executable} doctor\` says then.`,
    );
}

/** Says which offered networks are not near this machine: a mistyped one would be approved, and carry nothing. */
async function warnOfAway(chosen: readonly Chosen[], { settings, system, output }: Context): Promise<void> {
  const { join } = await import("node:path");
  const { awayOffers } = await import("../../node/routing/offers.ts");
  const machine = await system.machineState();
  for (const network of chosen.flatMap(({ slug }) => awayOffers(join(settings.configRoot, slug), machine)))
    output.say(
      `This machine is not in ${network} and has no route to it: packets for it leave by the default route. Is the network mistyped?`,
    );
}

const resultTexts = {
  changed: "the new configuration is in use",
  same: "no change",
  returned: "rolled back to the previous configuration",
  failed: "not synchronized",
} as const;

type Report = {
  org_slug: string;
  result: keyof typeof resultTexts;
  config_version: number;
  reason?: string;
  restart_pending?: string[];
  left_out?: readonly LeftOut[];
  restored?: readonly string[];
};
type Outcome = { report: Report; status: number; hint?: string };

async function sync(
  { slug, open }: Chosen,
  accessToken: string | undefined,
  context: Context,
): Promise<Outcome> {
  const { versionInForce } = await import("../../node/files/generations.ts");
  let version = 0;
  try {
    const organization = open();
    version = versionInForce(organization);
    if (accessToken !== undefined) await renew(organization, accessToken, context);
    const report = (await throughDaemon(organization, context)) ?? (await syncHere(organization, context));
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
    return { report, status: known.exitStatus, ...given({ hint }) };
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
    ...given({ reason: answer.reason, left_out: answer.left_out, restored: answer.restored }),
  };
}

async function syncHere(organization: Organization, context: Context): Promise<Report> {
  const { syncOrganization } = await import("../../node/contact/sync.ts");
  const { organizationDeps } = await import("../../node/contact/organization-deps.ts");
  const deps = organizationDeps(organization, `${brand.executable} sync-config`, context);
  const engine = await deps.engine();
  const {
    result,
    configVersion,
    reason,
    restartPending,
    leftOut,
    restored = [],
  } = await deps.withClient((client) =>
    syncOrganization(organization, { ...deps, client, engine, isAsked: true }),
  );
  return {
    org_slug: organization.slug,
    result,
    config_version: configVersion,
    ...given({ reason }),
    ...(restartPending.length === 0 ? {} : { restart_pending: restartPending }),
    ...(leftOut.length === 0 ? {} : { left_out: leftOut }),
    ...(restored.length === 0 ? {} : { restored }),
  };
}

async function plan(organization: Organization, context: Context): Promise<Step[]> {
  const { values } = context;
  const { planSync } = await import("../../node/contact/sync-plan.ts");
  const { organizationDeps } = await import("../../node/contact/organization-deps.ts");
  const deps = organizationDeps(organization, "", context);
  const { readCredentials } = await import("../../node/files/organizations.ts");
  const { apiPath } = await import("../../api/endpoint.ts");
  const { nodesApi } = await import("../../api/nodes.ts");
  const base = readCredentials(organization.directory).api_base;
  const id = organization.config.node_id;
  const renewal: Step = {
    step: "request",
    method: "POST",
    url: base + apiPath(nodesApi.renewCertificate, { slug: organization.slug, id }),
  };
  const engine = await deps.engine();
  const steps = await deps.withClient((client) =>
    planSync(organization, { ...deps, client, engine, isAsked: true }, { renews: values.on("renew") }),
  );
  const byDaemon = await planSyncThroughDaemon(organization, context);
  return [...(values.on("renew") ? [renewal] : []), ...byDaemon, ...steps];
}

async function readAccessToken({ values }: Context): Promise<string> {
  const token = await values.secret("access-token");
  if (token !== undefined) return token;
  throw new AppError("usage", "--renew needs --access-token", {
    hint: `Only an administrator can renew at once, from any machine: \`${brand.executable} admin node renew ORG NODE\`. Without --renew, certificates are renewed before they expire.`,
  });
}

async function renew(organization: Organization, token: string, { system, log }: Context): Promise<void> {
  const { clientOf } = await import("../../node/contact/requests/connection.ts");
  const { nodesApi } = await import("../../api/nodes.ts");
  const { request } = await import("../../api/request.ts");
  const { directory, slug, config } = organization;
  await clientOf(directory, token, system, log).request(
    request(nodesApi.renewCertificate, { slug, id: config.node_id }, {}),
  );
}
