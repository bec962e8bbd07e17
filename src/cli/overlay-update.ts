// `agent overlay update`: installs the newest engine and restarts the organizations that run.

import { brand } from "../brand.ts";
import { AppError } from "../errors.ts";
import type { Step } from "../plan.ts";
import type { Context, Implementation } from "./command.ts";
import { daemonAddress, requestStep } from "./daemon-address.ts";
import { engineFlags, engineRequest, runInstall, signedListNotes } from "./overlay-install.ts";

export const command: Implementation = {
  notes:
    "Restarts each running organization once, one after the other. With --check: exit status 10 if a newer engine is\n" +
    `available, 0 if not.\n${signedListNotes}`,
  args: {
    ...engineFlags,
    check: { type: "boolean", description: "Only check whether a newer engine is available" },
  },
  examples: [`${brand.executable} overlay update`, `${brand.executable} overlay update --check --json`],
  async run(context) {
    const { settings, system, values, output, log } = context;
    if (values.on("check")) {
      const { checkEngine } = await import("../node/engine/overlay-install.ts");
      const { available, ...rest } = await checkEngine(await engineRequest(values), settings, {
        system,
        log,
      });
      output.result(
        { ...rest, source: "release", changed: false, available },
        available
          ? `${rest.to} is available, ${rest.from ?? "none"} is installed\n`
          : "The installed engine is the newest\n",
      );
      return available ? 10 : 0;
    }
    const { requireEngine } = await import("../node/engine/overlay.ts");
    requireEngine(settings, system);
    return runInstall(
      context,
      (outcome) => putIntoUse({ path: outcome.path, version: outcome.to }, context),
      async () => (await runningTeams(context)).flatMap(({ plan }) => plan),
    );
  },
};

async function putIntoUse(engine: { path: string; version: string }, context: Context): Promise<void> {
  const { settings, system, log } = context;
  const { switchEngines } = await import("../node/update/overlay-switch.ts");
  await switchEngines(await runningTeams(context), engine, settings.configRoot, { system, log });
}

/** Each with the plan of its restart. */
async function runningTeams(context: Context) {
  return [...(await serverTeams(context)), ...(await desktopTeams(context))];
}

async function serverTeams({ settings, system }: Context) {
  const { readModes } = await import("../node/enroll/services.ts");
  const { hasSystemd } = await import("../platform/service-manager.ts");
  const { systemdEngine } = await import("../node/engine/systemd-engine.ts");
  const { engineUnit, systemctlCommand } = await import("../platform/systemd.ts");
  if (!hasSystemd(system)) return [];
  const teams = readModes(settings.configRoot).filter(({ mode }) => mode === "server");
  const found = await Promise.all(
    teams.map(async ({ slug }) => {
      const engine = systemdEngine(slug, system);
      const plan: Step[] = [{ step: "run", argv: systemctlCommand("try-restart", engineUnit(slug)) }];
      return (await engine.running()) ? [{ slug, ours: true, restart: engine.restart, plan }] : [];
    }),
  );
  return found.flat();
}

/** Empty if no daemon runs. */
async function desktopTeams({ settings, system }: Context) {
  const { askDaemon } = await import("../daemon/ipc/client.ts");
  const ask = (request: { action: string; team?: string }) =>
    askDaemon(daemonAddress(settings), system, request, { patient: false });
  try {
    const { teams = [] } = await ask({ action: "list" });
    return teams.flatMap((team) =>
      typeof team === "string" || team.mode !== "desktop" || team.wanted !== "up" || team.state === "revoked"
        ? []
        : [
            {
              slug: team.team,
              ours: false,
              restart: async () => void (await ask({ action: "restart", team: team.team })),
              plan: [requestStep(`restart ${team.team}`, settings)],
            },
          ],
    );
  } catch (error) {
    if (error instanceof AppError && error.code === "daemon_unreachable") return [];
    throw error;
  }
}
