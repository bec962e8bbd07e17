// `agent unregister`: this machine leaves an organization.

import { brand } from "../brand.ts";
import { AppError } from "../errors.ts";
import type { Remains } from "../node/files/remains.ts";
import type { Change } from "../platform/apply.ts";
import type { Step } from "../plan.ts";
import type { Command, Context } from "./command.ts";
import { daemonAddress } from "./daemon-address.ts";

export const command: Command = {
  name: "unregister",
  summary: "Leave an organization: stop its overlay and remove its files",
  notes:
    "With --access-token the node is deleted on the control plane too; without it, it stays there until somebody\n" +
    "sends the request that is printed.",
  flags: {
    "org-slug": { type: "string", valueHint: "SLUG", description: "The organization", required: true },
    "access-token": {
      type: "string",
      valueHint: "JWT",
      secret: true,
      description: "An administrator's access token",
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
  const { listOrganizations } = await import("../node/files/list-organizations.ts");
  const { openOrganization, parseSlug } = await import("../node/files/organizations.ts");
  const { readRemains } = await import("../node/files/remains.ts");
  const { removeTemporarySiblings } = await import("../node/enroll/pending.ts");
  const slug = parseSlug(values.required("org-slug"));
  if (!settings.dryRun) removeTemporarySiblings(settings.configRoot, slug);
  // Damage of its files is no reason to keep it: only one that is not there is refused.
  if (!listOrganizations(settings.configRoot).includes(slug)) openOrganization(settings.configRoot, slug);
  const remains = readRemains(settings.configRoot, slug);
  const accessToken = await values.secret("access-token");
  const { deleteOnServer, deletionOf, planRemoval, removeLocally } =
    await import("../node/enroll/unregister.ts");
  const request = deletionOf(remains);
  const changes = await serviceChanges(remains, context);
  if (settings.dryRun) {
    const { planChanges } = await import("../platform/apply.ts");
    const asked: Step[] = accessToken === undefined || request === undefined ? [] : [request];
    output.plan([...asked, ...planChanges(changes), ...planRemoval(remains)]);
    return;
  }
  requireWritable(settings.configRoot, await import("node:fs"));
  const { nodeId, name = "This machine" } = remains;
  const isAsked = accessToken !== undefined && request !== undefined && nodeId !== undefined;
  // The server first: if it says no, this machine is as it was.
  const deleted = isAsked && (await deleteOnServer(remains, nodeId, accessToken, system, log));
  await stop(remains, changes, context);
  await removeLocally(remains, `${brand.executable} unregister`, system);
  const left = isAsked || request === undefined ? undefined : `${request.method} ${request.url}`;
  output.result(
    {
      org_slug: slug,
      node_id: nodeId ?? null,
      directory: remains.directory,
      deleted,
      ...(left === undefined ? {} : { request_left: left }),
    },
    `${name} has left ${slug}${!isAsked ? "" : deleted ? ", and is deleted there" : ", where it was not known any more"}\n`,
  );
  if (left !== undefined) {
    output.say(`The node is still on the control plane. An administrator takes it off there:\n  ${left}`);
  } else if (!isAsked) {
    output.say(
      "The node is still on the control plane. Its files were damaged and do not say which one it was: an administrator " +
        `finds it with \`${brand.executable} admin node list ${slug}\` and deletes it there.`,
    );
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

/** What systemd has to forget; nothing where it does not run this team. */
async function serviceChanges({ slug, mode }: Remains, { settings, system }: Context): Promise<Change[]> {
  if (mode === "desktop") return [];
  const { planSystemdRemoval } = await import("../node/enroll/services.ts");
  const { hasSystemd } = await import("../platform/service-manager.ts");
  return hasSystemd(system) ? planSystemdRemoval(slug, settings) : [];
}

/** Whoever runs the engine stops it: systemd, the daemon, else this process finds it. */
async function stop(remains: Remains, changes: readonly Change[], context: Context): Promise<void> {
  const { system, log } = context;
  const { applyChanges } = await import("../platform/apply.ts");
  await applyChanges(changes, system);
  if (remains.mode !== "server") await forgetInDaemon(remains.slug, context);
  const { foundEngine } = await import("../node/engine/found-engine.ts");
  const engine = foundEngine(remains, system, log);
  if (await engine.running()) await engine.stop();
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
    // No daemon, or one that does not hold it: then there is nothing for it to forget.
    const harmless = error instanceof AppError && ["daemon_unreachable", "unknown_team"].includes(error.code);
    if (!harmless) throw error;
  }
}
