// `agent unregister`: removes this machine from an organization.

import { brand } from "../brand.ts";
import { AppError } from "../errors.ts";
import type { Organization } from "../node/files/organizations.ts";
import type { Change } from "../platform/apply.ts";
import type { Step } from "../plan.ts";
import type { Context, Implementation } from "./command.ts";
import { daemonAddress } from "./daemon-address.ts";

export const command: Implementation = {
  notes:
    "With --access-token, the node is also deleted from the control plane. Without it, the output shows the request with\n" +
    "which an administrator deletes it.",
  args: {
    "org-slug": { type: "string", valueHint: "SLUG", description: "The organization's slug", required: true },
    "access-token": {
      type: "string",
      valueHint: "JWT",
      secret: true,
      description: "Access token of an administrator",
    },
  },
  examples: [
    `${brand.executable} unregister --org-slug acme --access-token-file token`,
    `${brand.executable} unregister --org-slug acme --dry-run`,
  ],
  run,
};

async function run(context: Context): Promise<void> {
  const { settings, system, values, output, log } = context;
  const { openOrganization, parseSlug } = await import("../node/files/organizations.ts");
  const { sweepLeft } = await import("../node/enroll/pending.ts");
  const slug = parseSlug(values.required("org-slug"));
  if (!settings.dryRun) sweepLeft(settings.configRoot, slug);
  const organization = openOrganization(settings.configRoot, slug);
  const accessToken = await values.secret("access-token");
  const { deleteOnServer, deletionOf, planRemoval, removeLocally } =
    await import("../node/enroll/unregister.ts");
  const request = deletionOf(organization);
  const changes = await serviceChanges(organization, context);
  if (settings.dryRun) {
    const { planChanges } = await import("../platform/apply.ts");
    const asked: Step[] = accessToken === undefined ? [] : [request];
    output.plan([...asked, ...planChanges(changes), ...planRemoval(organization)]);
    return;
  }
  requireWritable(settings.configRoot, await import("node:fs"));
  // The control plane first: if it refuses, nothing changes on this machine.
  const deleted = accessToken !== undefined && (await deleteOnServer(organization, accessToken, system, log));
  await stop(organization, changes, context);
  await removeLocally(organization, `${brand.executable} unregister`, system);
  const { config } = organization;
  const left = accessToken === undefined ? `${request.method} ${request.url}` : undefined;
  output.result(
    {
      org_slug: slug,
      node_id: config.node_id,
      directory: organization.directory,
      deleted,
      ...(left === undefined ? {} : { request_left: left }),
    },
    `${config.name} has left ${slug}${accessToken === undefined ? "" : deleted ? " and is deleted from the control plane" : "; the control plane did not know it any more"}\n`,
  );
  if (left !== undefined) {
    output.say(`The control plane still lists the node. An administrator can delete it:\n  ${left}`);
  }
}

function requireWritable(configRoot: string, { accessSync, constants }: typeof import("node:fs")): void {
  try {
    accessSync(configRoot, constants.W_OK);
  } catch (error) {
    throw new AppError("os_permission", `Cannot change ${configRoot}`, {
      cause: error,
      hint: "Run the command as root (sudo).",
    });
  }
}

/** The units to remove; none if systemd does not run this organization. */
async function serviceChanges(
  { slug, config }: Organization,
  { settings, system }: Context,
): Promise<Change[]> {
  if (config.mode !== "server") return [];
  const { planSystemdRemoval } = await import("../node/enroll/services.ts");
  const { hasSystemd } = await import("../platform/service-manager.ts");
  return hasSystemd(system) ? planSystemdRemoval(slug, settings) : [];
}

/** Stops the engine: through systemd, through the daemon, or directly. */
async function stop(organization: Organization, changes: readonly Change[], context: Context): Promise<void> {
  const { settings, system, log } = context;
  const { applyChanges } = await import("../platform/apply.ts");
  await applyChanges(changes, system);
  if (organization.config.mode === "desktop") await forgetInDaemon(organization.slug, context);
  const { makeTeamEdge } = await import("../node/contact/team.ts");
  const edge = makeTeamEdge(organization, settings, { system, log, command: "" });
  if (await edge.control.running()) await edge.control.stop();
}

async function forgetInDaemon(team: string, { settings, system }: Context): Promise<void> {
  const { connectDaemon } = await import("../daemon/ipc/client.ts");
  try {
    const daemon = await connectDaemon(daemonAddress(settings), system, { patient: false });
    try {
      await daemon.request({ action: "delete", team });
    } finally {
      daemon.close();
    }
  } catch (error) {
    // Fine: no daemon runs, or it does not know this organization.
    const harmless = error instanceof AppError && ["daemon_unreachable", "unknown_team"].includes(error.code);
    if (!harmless) throw error;
  }
}
