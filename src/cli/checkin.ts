// `agent checkin`: a heartbeat for each organization.

import { brand } from "../brand.ts";
import type { Command } from "./command.ts";
import { chosenSlug, teamFlags, worst } from "./teams.ts";

export const command: Command = {
  name: "checkin",
  summary: "Send a heartbeat to the control plane",
  flags: teamFlags,
  examples: [`${brand.executable} checkin`, `${brand.executable} checkin --org-slug acme --json`],
  async run({ settings, system, values, output, log }) {
    const { chooseOrganizations, readCredentials } = await import("../node/organizations.ts");
    const organizations = chooseOrganizations(settings.configRoot, chosenSlug(values));
    const { paths } = await import("../protocol.ts");
    if (settings.dryRun) {
      return output.plan(
        organizations.map(({ slug, directory, config }) => ({
          step: "request",
          method: "POST",
          url: readCredentials(directory).api_base + paths.checkin(slug, config.node_id),
        })),
      );
    }
    const { checkIn } = await import("../node/checkin.ts");
    const { makeTeamEdge } = await import("../node/team.ts");
    const { engineVersion } = await import("../node/engine.ts");
    const results = await Promise.allSettled(
      organizations.map(async (organization) => {
        const edge = makeTeamEdge(organization, settings, { system, log, command: "checkin" });
        const engine = edge.engine();
        const report = {
          overlayVersion: engine === undefined ? undefined : await engineVersion(engine, system),
          overlayState: undefined,
          configVersion: undefined,
          confirmed: false,
        };
        const answer = await edge.withClient((client) => checkIn(organization, client, report));
        const { last_checkin_at, config_version, config_changed, certificate_not_after } = answer;
        return {
          org_slug: organization.slug,
          last_checkin_at,
          config_version,
          config_changed,
          certificate_not_after,
        };
      }),
    );
    const done = results.flatMap((each) => (each.status === "fulfilled" ? [each.value] : []));
    const status = worst(results, organizations, output);
    output.result(
      { organizations: done },
      done
        .map(
          (each) =>
            `${each.org_slug}: checked in${each.config_changed ? ", a new configuration is there" : ""}\n`,
        )
        .join(""),
    );
    return status;
  },
};
