// start, stop, restart and switch: the daemon carries them out in desktop mode, systemd in server mode.

import { given } from "../../base/given.ts";
import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import type { Step } from "../../base/plan/plan.ts";
import { quoteWord } from "../../base/quote.ts";
import type { SystemdEngine } from "../../node/engine/systemd-engine.ts";
import type { Organization } from "../../node/files/organizations.ts";
import type { Context, Implementation } from "../command.ts";
import { daemonAddress, daemonListens, requestStep } from "./daemon-address.ts";
import { wordArg } from "../values.ts";

type UnitVerb = "start" | "stop" | "restart";
type Verb = UnitVerb | "switch";
type Place = Pick<Organization, "slug" | "directory">;

function organizationCommand(verb: Verb, notes: string): Implementation {
  return {
    notes,
    args: {
      ORG:
        verb === "switch"
          ? wordArg("The organization's slug")
          : wordArg("The organization's slug (default: the only one)", { required: false }),
    },
    examples: [`${brand.executable} ${verb} acme`],
    run: (context) => runOnOrganization(verb, context),
  };
}

export const start = organizationCommand(
  "start",
  "It also starts again after a reboot, and when its engine ends. If the control plane has revoked the node, the start is\n" +
    "remembered for the time after a restore, and the exit status is 7.",
);
export const stop = organizationCommand(
  "stop",
  "It stays stopped, also after a reboot or after a restore by the control plane, until you start it again.",
);
export const restart = organizationCommand(
  "restart",
  "Interrupts the tunnels for a moment. A new configuration needs no restart.",
);
export const switchOrganization = organizationCommand(
  "switch",
  "The daemon remembers the organization as the active one. Organizations in server mode keep running.",
);

async function runOnOrganization(verb: Verb, context: Context): Promise<void> {
  const { settings, output } = context;
  const { chooseOne } = await import("../../daemon/asking/choose-slugs.ts");
  const slug = chooseOne(settings.configRoot, context.words[0]);
  const { openOrganization } = await import("../../node/files/organizations.ts");
  const organization = openOrganization(settings.configRoot, slug);
  if (settings.dryRun) return output.plan(await planOnOrganization(verb, organization, context));
  const { message, pid } = await changeOrganization(verb, organization, context);
  output.result({ team: slug, message, ...given({ pid }) }, `${message}\n`);
}

type Outcome = { message: string; pid?: number | undefined };

/** Starts, stops, restarts or switches to an organization of this machine. */
export async function changeOrganization(
  verb: Verb,
  organization: Organization,
  context: Context,
): Promise<Outcome> {
  const { slug, config } = organization;
  if (config.mode !== "desktop") return throughSystemd(unitVerb(verb, slug), organization, context);
  const { settings, system } = context;
  const { askDaemon } = await import("../../daemon/ipc/client.ts");
  const request = { action: verb, team: slug };
  if (verb !== "stop" && !(await isStartedByHand(context))) await startServices(organization, context);
  const { message, pid } = await askDaemon(daemonAddress(settings), system, request, { patient: true });
  return { message: message ?? "", pid };
}

/** Whether the daemon runs without its unit: then the unit must not start a second one. */
async function isStartedByHand({ settings, system }: Context): Promise<boolean> {
  if (!(await daemonListens(settings, system))) return false;
  const { hasSystemd } = await import("../../platform/service-manager.ts");
  const { unitsServe } = await import("../../platform/config-root.ts");
  if (!hasSystemd(system) || !unitsServe(settings.configRoot)) return true;
  const { daemonUnit } = await import("../../platform/systemd/systemd.ts");
  const { unitState } = await import("../../platform/service-state.ts");
  return (await unitState(daemonUnit, system)).is !== "running";
}

/** Starts what watches a wanted organization, now and after a boot: the daemon, or the timer of the checks. */
async function startServices({ slug, config }: Organization, { settings, system }: Context): Promise<void> {
  const { bringServices } = await import("../../node/enroll/provision-services.ts");
  await bringServices([{ slug, mode: config.mode }], settings, system);
}

/** The plan of changeOrganization. */
export async function planOnOrganization(
  verb: Verb,
  organization: Organization,
  context: Context,
): Promise<Step[]> {
  const { settings, system } = context;
  const { slug, config } = organization;
  const { planBringing } = await import("../../node/enroll/provision-services.ts");
  const services = verb === "stop" ? [] : planBringing([{ slug, mode: config.mode }], settings, system);
  if (config.mode === "desktop") {
    const isDaemonThere = verb === "stop" || (await daemonListens(settings, system));
    return [...(isDaemonThere ? [] : services), requestStep(`${verb} ${slug}`, settings)];
  }
  const verbOfUnit = unitVerb(verb, slug);
  if (verbOfUnit !== "stop") await refuseStart(organization, context);
  await requireUnits(verbOfUnit, slug, context);
  return [...services, ...(await planUnit(verbOfUnit, organization))];
}

/** Throws usage for `switch`. */
function unitVerb(verb: Verb, slug: string): UnitVerb {
  if (verb !== "switch") return verb;
  throw new AppError(
    "usage",
    `"${slug}" is in server mode and runs beside the others: switch is for desktop mode`,
    { hint: `Start or stop it: \`${brand.executable} start ${quoteWord(slug)}\`.` },
  );
}

/** Throws where systemd does not run, or serves another configuration root. */
async function requireUnits(verb: UnitVerb, slug: string, { settings, system }: Context): Promise<void> {
  const { hasSystemd } = await import("../../platform/service-manager.ts");
  const { requireOwnUnits } = await import("../../platform/config-root.ts");
  if (hasSystemd(system)) return requireOwnUnits(settings.configRoot);
  const { byHand } = await import("../../node/enroll/provision-services.ts");
  const line = byHand("server", slug, settings, system);
  throw new AppError(
    "failed",
    `Cannot ${verb} "${slug}": it is in server mode, and systemd does not run on this machine`,
    { hint: verb === "stop" ? `End the process that runs: ${line}` : `Start it by hand: ${line}` },
  );
}

/** Throws where the engine must not start. systemd does not look: it would start one that takes over the route of another. */
async function refuseStart(organization: Organization, { settings, system, log }: Context): Promise<void> {
  const { refuseForeignFiles } = await import("../../node/files/own-files.ts");
  const { refuseBesideRunning } = await import("../../daemon/running-claims.ts");
  refuseForeignFiles(organization.directory);
  refuseBesideRunning(organization, settings.configRoot, log);
  const { refuseOverlapOf } = await import("../../node/files/config/refuse-networks.ts");
  await refuseOverlapOf(organization, system);
}

async function throughSystemd(
  verb: UnitVerb,
  organization: Organization,
  context: Context,
): Promise<Outcome> {
  const { slug, directory } = organization;
  const { system } = context;
  if (verb !== "stop") await refuseStart(organization, context);
  await requireUnits(verb, slug, context);
  const { systemdEngine } = await import("../../node/engine/systemd-engine.ts");
  const { withLock } = await import("../../node/files/lock.ts");
  const engine = systemdEngine({ slug, directory }, system);
  const command = `${brand.executable} ${verb}`;
  if (verb !== "stop") {
    const { refuseUnnotedRevocation } = await import("../../node/contact/check-auth.ts");
    const { organizationDeps } = await import("../../node/contact/organization-deps.ts");
    const deps = organizationDeps(organization, command, context);
    // Where nothing can be written, a revocation may not be noted here: then it asks the control plane.
    await refuseUnnotedRevocation(organization, deps);
    await startServices(organization, context);
  }
  // If two commands run at once, the last one decides about desired state and unit.
  await withLock(directory, command, system, () =>
    verb === "stop" ? stopUnit(directory, engine) : startUnit(verb, { slug, directory }, engine),
  );
  return { message: `${slug} is ${verb === "stop" ? "stopped" : "running"}` };
}

async function stopUnit(directory: string, engine: SystemdEngine): Promise<void> {
  const { markStopped } = await import("../../node/files/stopped-by-user.ts");
  // First, so that neither a restore nor a reboot starts the unit after a kill of this command.
  markStopped(directory);
  await engine.disable();
}

/** Remembers the start even while the node is revoked. */
async function startUnit(
  verb: Exclude<UnitVerb, "stop">,
  organization: Place,
  engine: SystemdEngine,
): Promise<void> {
  const { slug, directory } = organization;
  const { unmarkStopped } = await import("../../node/files/stopped-by-user.ts");
  const { forgetWasStopped, refuseRevoked, startsWhenRestored } =
    await import("../../node/files/revoked-notes.ts");
  unmarkStopped(directory);
  forgetWasStopped(directory);
  await engine.enable();
  refuseRevoked(organization, startsWhenRestored);
  await (verb === "restart" ? engine.startAgain() : engine.start());
  if (await engine.isUp()) return;
  // systemd reports no failure if a condition of the unit does not hold.
  refuseRevoked(organization, startsWhenRestored);
  throw new AppError("engine_failed", `systemd did not start the overlay of ${slug}`, {
    hint: `See why: systemctl status ${brand.id}@${slug}`,
  });
}

/** The plan of a command of server mode. */
export async function planUnit(verb: UnitVerb, { slug, directory }: Place): Promise<Step[]> {
  const { engineUnit, systemctlCommand } = await import("../../platform/systemd/systemd.ts");
  const { isStopped, stoppedPath } = await import("../../node/files/stopped-by-user.ts");
  const { readRevokedNote } = await import("../../node/files/revoked-notes.ts");
  const run = (...words: string[]): Step => ({
    step: "run",
    argv: systemctlCommand(...words, engineUnit(slug)),
  });
  // The file that marks the organization as stopped; no step if it is as it should be.
  const stoppedFile = (change: "created" | "removed"): Step[] =>
    isStopped(directory) === (change === "created")
      ? []
      : [{ step: "file", path: stoppedPath(directory), mode: "0644", change }];
  if (verb === "stop") return [...stoppedFile("created"), run("disable", "--now")];
  const isRevoked = readRevokedNote(directory) !== undefined;
  return [...stoppedFile("removed"), run("enable"), ...(isRevoked ? [] : [run(verb)])];
}
