// `agent check-auth`: whether this machine still belongs to its organizations.

import { brand } from "../brand.ts";
import type { Command } from "./command.ts";
import { chosenSlug, teamFlags } from "./teams.ts";

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
  async run({ settings, system, values, output, log }) {
    const { chooseOrganizations, readCredentials } = await import("../node/organizations.ts");
    const organizations = chooseOrganizations(settings.configRoot, chosenSlug(values));
    const waitS = values.integer("wait", 0, 3600) ?? 0;
    if (settings.dryRun) {
      const { paths } = await import("../protocol.ts");
      output.plan(
        organizations.map(({ slug, directory, config }) => ({
          step: "request",
          method: "POST",
          url: readCredentials(directory).api_base + paths.checkin(slug, config.node_id),
        })),
      );
      return 0;
    }
    const { checkAuth } = await import("../node/check-auth.ts");
    const { makeTeamEdge } = await import("../node/team.ts");
    const results = await Promise.all(
      organizations.map((organization) =>
        checkAuth(
          organization,
          makeTeamEdge(organization, settings, { system, log, command: "check-auth" }),
          waitS,
        ),
      ),
    );
    output.result(
      { organizations: results },
      results
        .map(({ org_slug, result, action, reason }) => {
          const did = action === "none" ? "" : `, ${action}`;
          return `${org_slug}: ${result}${did}${reason === undefined ? "" : ` (${reason})`}\n`;
        })
        .join(""),
    );
    if (results.some(({ result, action }) => result === "revoked" && action === "stopped")) return 7;
    return results.some(({ result }) => result === "unsure") ? 6 : 0;
  },
};
