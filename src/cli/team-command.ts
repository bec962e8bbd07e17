// start, stop, restart and switch: the daemon carries them out in desktop mode, systemd in server mode.

import { brand } from "../brand.ts";
import { AppError } from "../errors.ts";
import { quoteWord } from "../plan.ts";
import type { Context, Implementation } from "./command.ts";
import { daemonAddress, planRequest } from "./daemon-address.ts";

type Verb = "start" | "stop" | "restart" | "switch";

function teamCommand(verb: Verb, notes: string): Implementation {
  return {
    notes,
    args: { ORG: { type: "positional", description: "The organization's slug" } },
    examples: [`${brand.executable} ${verb} acme`],
    run: (context) => runOnTeam(verb, context),
  };
}

export const start = teamCommand("start", "It also starts again after a reboot, and when its engine ends.");
export const stop = teamCommand("stop", "It stays stopped, also after a reboot, until you start it again.");
export const restart = teamCommand(
  "restart",
  "Interrupts the tunnels for a moment. A new configuration needs no restart.",
);
export const switchTeam = teamCommand(
  "switch",
  "The daemon remembers the organization as the active one. Organizations in server mode keep running.",
);

async function runOnTeam(verb: Verb, context: Context): Promise<void> {
  const [team = ""] = context.words;
  const { openOrganization } = await import("../node/files/organizations.ts");
  const { mode } = openOrganization(context.settings.configRoot, team).config;
  if (mode === "desktop") return throughDaemon(verb, team, context);
  if (verb !== "switch") return throughSystemd(verb, team, context);
  throw new AppError(
    "usage",
    `"${team}" is in server mode and runs beside the others: switch is for desktop mode`,
    { hint: `Start or stop it: ${brand.executable} start ${quoteWord(team)}` },
  );
}

async function throughDaemon(verb: Verb, team: string, { settings, system, output }: Context): Promise<void> {
  if (settings.dryRun)
    return output.plan([await planRequest(`${verb} ${team}`, settings, system, { patient: true })]);
  const { askDaemon } = await import("../daemon/ipc/client.ts");
  const request = { action: verb, team };
  const { message, pid } = await askDaemon(daemonAddress(settings), system, request, { patient: true });
  output.result({ team, message, ...(pid === undefined ? {} : { pid }) }, `${message}\n`);
}

async function throughSystemd(
  verb: Exclude<Verb, "switch">,
  team: string,
  { settings, system, output }: Context,
): Promise<void> {
  const { hasSystemd } = await import("../platform/service-manager.ts");
  if (!hasSystemd(system)) {
    const { byHand } = await import("../node/enroll/provision-services.ts");
    const line = byHand("server", team, settings, system);
    throw new AppError(
      "failed",
      `Cannot ${verb} "${team}": it is in server mode, and systemd does not run on this machine`,
      { hint: verb === "stop" ? `End the process that runs: ${line}` : `Start it by hand: ${line}` },
    );
  }
  if (settings.dryRun) {
    const { engineUnit, systemctlCommand } = await import("../platform/systemd.ts");
    return output.plan([{ step: "run", argv: systemctlCommand(verb, engineUnit(team)) }]);
  }
  const { systemdEngine } = await import("../node/engine/systemd-engine.ts");
  const engine = systemdEngine(team, system);
  await (verb === "restart" ? engine.startAgain() : engine[verb]());
  const message = `${team} is ${verb === "stop" ? "stopped" : "running"}`;
  output.result({ team, message }, `${message}\n`);
}
