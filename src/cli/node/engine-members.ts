// The organizations of this machine for `overlay install` and `overlay update`: what runs each one, and what can restart it.

import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import type { Answer } from "../../daemon/ipc/messages.ts";
import type { Member } from "../../node/update/overlay-switch.ts";
import type { Context } from "../command.ts";
import { daemonAddress, requestStep } from "./daemon-address.ts";

/**
 * The organizations, each with what examines and restarts its engine. `restart` is undefined where nothing can: no unit or no
 * daemon runs it. Throws os_permission if the daemon refuses this user, unless `isOptional`.
 */
export async function engineMembers(context: Context, { isOptional = false } = {}): Promise<Member[]> {
  const { settings, system } = context;
  const { join } = await import("node:path");
  const { readModes } = await import("../../node/enroll/services.ts");
  const { examineEngine } = await import("../../node/contact/organization-deps.ts");
  const { isRunByUnits, systemdEngine } = await import("../../node/engine/systemd-engine.ts");
  const { withLock } = await import("../../node/files/lock.ts");
  const { decideForStart } = await import("../../node/files/config/rewrite-config.ts");
  const { engineUnit, systemctlCommand } = await import("../../platform/systemd/systemd.ts");
  const modes = readModes(settings.configRoot);
  const ask = modes.some(({ mode }) => mode === "desktop")
    ? await reachDaemon(context, { isOptional })
    : undefined;
  return modes.map(({ slug, mode }): Member => {
    const directory = join(settings.configRoot, slug);
    const command = `${brand.executable} overlay update`;
    const unmanaged: Member = {
      slug,
      examine: () => examineEngine({ slug, directory, config: { mode } }, settings, system),
      prepare: (version) =>
        // Decides about offloads and buffers for this engine before it starts. After a failure, the next check-in decides.
        decideForStart({ slug, directory }, version, { command, system }).catch(() => undefined),
      synchronize: () => synchronizeHere(slug, context),
      restart: undefined,
      plan: [],
    };
    if (mode === "server") {
      if (!isRunByUnits({ directory, mode }, system)) return unmanaged;
      // A check that applies a new configuration just now would reload the engine while it starts.
      const restart = () =>
        withLock(directory, command, system, systemdEngine({ slug, directory }, system).restart);
      const argv = systemctlCommand("try-restart", engineUnit(slug));
      return { ...unmanaged, restart, plan: [{ step: "run", argv }] };
    }
    if (ask === undefined) return unmanaged;
    return {
      ...unmanaged,
      examine: () => examineByDaemon(slug, ask),
      synchronize: async () => void (await ask({ action: "sync", team: slug })),
      restart: async () => void (await ask({ action: "restart", team: slug })),
      plan: [requestStep(`restart ${slug}`, settings)],
    };
  });
}

type Ask = (request: { action: string; team?: string }) => Promise<Answer>;

/** Undefined if no daemon runs. */
async function reachDaemon(
  { settings, system }: Context,
  { isOptional }: { isOptional: boolean },
): Promise<Ask | undefined> {
  const { askDaemon } = await import("../../daemon/ipc/client.ts");
  const ask: Ask = (request) => askDaemon(daemonAddress(settings), system, request, { patient: false });
  try {
    await ask({ action: "teams" });
    return ask;
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    if (error.code === "daemon_unreachable" || (isOptional && error.code === "os_permission"))
      return undefined;
    throw error;
  }
}

/** Synchronizes in this process, which no daemon does for server mode. */
async function synchronizeHere(slug: string, context: Context): Promise<void> {
  const { openOrganization } = await import("../../node/files/organizations.ts");
  const { organizationDeps } = await import("../../node/contact/organization-deps.ts");
  const { checkIn, reportOf } = await import("../../node/contact/checkin.ts");
  const { syncOrganization } = await import("../../node/contact/sync.ts");
  const organization = openOrganization(context.settings.configRoot, slug);
  const deps = organizationDeps(organization, `${brand.executable} overlay update`, context);
  const engine = await deps.engine();
  await deps.withClient(async (client) => {
    await checkIn(organization, client, reportOf(engine));
    const { reason } = await syncOrganization(organization, { ...deps, client, engine });
    if (reason !== undefined) throw new AppError("bad_configuration", reason);
  });
}

/** The process by the daemon's status. `program` is undefined: the daemon chooses the engine of the next start. */
async function examineByDaemon(slug: string, ask: Ask): ReturnType<Member["examine"]> {
  const { identifyProcess } = await import("../../platform/process-identity.ts");
  const { teams = [] } = await ask({ action: "status", team: slug });
  const [pid] = teams.flatMap((each) =>
    typeof each !== "string" && each.team === slug ? (each.pid ?? []) : [],
  );
  return { process: pid === undefined ? undefined : identifyProcess(pid), program: undefined };
}
