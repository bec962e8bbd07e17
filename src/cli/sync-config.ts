// `agent sync-config`: brings the local configuration to what the control plane wants, or back if it fails here.

import { brand } from "../brand.ts";
import { AppError } from "../errors.ts";
import type { Command, Context } from "./command.ts";
import { chosenSlug, teamFlags, worst } from "./teams.ts";

export const command: Command = {
  name: "sync-config",
  summary: "Update the local configuration from the control plane",
  notes:
    "Fetched, checked, tested by the engine, swapped and reloaded; if the engine does not take it, the former\n" +
    "configuration is back and the reason is said. A changed overrides.yml alone is applied too.",
  flags: {
    ...teamFlags,
    renew: { type: "boolean", description: "Have the certificate renewed first (needs --access-token)" },
    "access-token": {
      type: "string",
      valueHint: "JWT",
      secret: true,
      description: "An administrator's access token",
    },
  },
  examples: [`${brand.executable} sync-config`, `${brand.executable} sync-config --org-slug acme --json`],
  run,
};

type Outcome = { org_slug: string; result: string; config_version: number; reason?: string };

async function run(context: Context): Promise<number> {
  const { settings, system, values, output, log } = context;
  const { chooseOrganizations, readCredentials } = await import("../node/organizations.ts");
  const organizations = chooseOrganizations(settings.configRoot, chosenSlug(values));
  const accessToken = await values.secret("access-token");
  if (values.on("renew") && accessToken === undefined)
    throw new AppError("usage", "--renew needs --access-token");
  const { paths } = await import("../protocol.ts");
  if (settings.dryRun) {
    output.plan(
      organizations.flatMap(({ slug, directory, config }) => {
        const { api_base: base } = readCredentials(directory);
        const renew = {
          step: "request",
          method: "POST",
          url: base + paths.renewCert(slug, config.node_id),
        } as const;
        const fetch = {
          step: "request",
          method: "GET",
          url: base + paths.downloadConfig(slug, config.node_id),
        } as const;
        return values.on("renew") ? [renew, fetch] : [fetch];
      }),
    );
    return 0;
  }
  const { syncOrganization } = await import("../node/sync.ts");
  const { makeTeamEdge } = await import("../node/team.ts");
  const results = await Promise.allSettled(
    organizations.map(async (organization) => {
      const edge = makeTeamEdge(organization, settings, { system, log, command: "sync-config" });
      if (accessToken !== undefined && values.on("renew")) await renew(organization, accessToken, context);
      const { result, configVersion, reason } = await edge.withClient((client) =>
        syncOrganization(organization, { ...edge, client, engine: edge.engine() }),
      );
      return {
        org_slug: organization.slug,
        result,
        config_version: configVersion,
        ...(reason === undefined ? {} : { reason }),
      };
    }),
  );
  const done: Outcome[] = results.map((each, at) =>
    each.status === "fulfilled"
      ? each.value
      : { org_slug: organizations[at]?.slug ?? "", result: "failed", config_version: 0 },
  );
  const status = worst(results, organizations, output);
  output.result(
    { organizations: done },
    done
      .map(
        ({ org_slug, result, reason }) =>
          `${org_slug}: ${result}${reason === undefined ? "" : ` (${reason})`}\n`,
      )
      .join(""),
  );
  return Math.max(status, done.some(({ result }) => result === "returned") ? 1 : 0);
}

async function renew(
  { slug, directory, config }: { slug: string; directory: string; config: { node_id: number } },
  token: string,
  { system }: Context,
): Promise<void> {
  const { makeClient } = await import("../node/client.ts");
  const { readApiCa, readCredentials } = await import("../node/organizations.ts");
  const ca = readApiCa(directory);
  const client = makeClient({
    base: readCredentials(directory).api_base,
    token,
    allowPlainHttp: true,
    system,
    ...(ca === undefined ? {} : { ca }),
  });
  await client.renewCert(slug, config.node_id);
}
