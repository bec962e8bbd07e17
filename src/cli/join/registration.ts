// Carries out a registration of this machine, for `register` and `up`: keys, request and files (node/enroll/register.ts),
// then engine and services.

import { join } from "node:path";
import { brand } from "../../brand.ts";
import { AppError, fromSystemError, hasCode, messageOf } from "../../base/errors.ts";
import type { Registration } from "../../node/enroll/registration-checks.ts";
import type { Salvaged } from "../../node/files/damaged-organization.ts";
import type { Step } from "../../base/plan/plan.ts";
import { quoteWord } from "../../base/quote.ts";
import type { RegisterAnswer } from "../../protocol/registration.ts";
import type { Mode } from "../../protocol/values.ts";
import type { Context } from "../command.ts";
import { daemonAddress, planRequestIfThere } from "../node/daemon-address.ts";

/** `former`: what could be read of the organization's files here, if any. `isStarted`: install engine and services, and start them. */
export type Enrollment = { registration: Registration; former: Salvaged; isStarted: boolean };

export type Enrolled = {
  directory: string;
  answer: RegisterAnswer;
  started: boolean;
  /** Sentences: what was not done, and how to do it. */
  left: readonly string[];
};

/** The plan of enroll, for --dry-run. Changes nothing. */
export async function planEnrollment(enrollment: Enrollment, context: Context): Promise<Step[]> {
  const { registration, isStarted } = enrollment;
  const { settings, system } = context;
  const { planRegistration } = await import("../../node/enroll/register.ts");
  const { planStart } = await import("../../node/enroll/provision-services.ts");
  const { planChanges } = await import("../../platform/machine-changes.ts");
  const services = isStarted
    ? [
        ...(await planStart(registration, settings, system)),
        ...(registration.mode === "desktop" ? await planRequestIfThere("provision", settings, system) : []),
      ]
    : [];
  const removal = await removalOfServices(enrollment, context);
  return [...planRegistration(registration, settings), ...planChanges(removal), ...services];
}

/** Registers the machine, and installs and starts its services if that is asked for. */
export async function enroll(enrollment: Enrollment, context: Context): Promise<Enrolled> {
  const { registration, former, isStarted } = enrollment;
  const { settings, system, log } = context;
  // Read before the registration replaces the files that say which services there are.
  const removal = await removalOfServices(enrollment, context);
  if (isStarted) {
    const { requireStartable } = await import("../../node/enroll/provision-services.ts");
    requireStartable(settings, system);
  }
  const { register } = await import("../../node/enroll/register.ts");
  const { directory, answer } = await register(registration, settings, { system, log });
  if (isMoved(enrollment)) {
    const { stopOverlay } = await import("../node/stop-overlay.ts");
    await stopOverlay(former, removal, context);
  }
  const done = isStarted
    ? await startEnrolled(registration, context)
    : {
        started: false,
        left: [`No service is installed (--no-start). Install it later: ${await installCommand(context)}`],
      };
  if (answer.unused_right === "lighthouse") log.warn(unusedRight(answer.node.name));
  return { directory, answer, ...done };
}

function unusedRight(name: string): string {
  return (
    `This token permits a lighthouse, but ${name} is an ordinary node: --is-lighthouse was not given. For a lighthouse, ` +
    `leave with \`${brand.executable} unregister\`, and join again with a new key and \`${brand.executable} up\`.`
  );
}

/** Whether mode or keys change, so that the former services must stop. */
function isMoved({ registration, former }: Enrollment): boolean {
  return former.mode !== undefined && (former.mode !== registration.mode || registration.newKeys === true);
}

/** The removal of the services that the former mode or keys had. */
async function removalOfServices(enrollment: Enrollment, context: Context) {
  if (!isMoved(enrollment)) return [];
  const { serviceRemoval } = await import("../node/stop-overlay.ts");
  return serviceRemoval(enrollment.former, context);
}

async function installCommand({ system }: Context): Promise<string> {
  const { serviceCommand } = await import("../../platform/service-manager.ts");
  return serviceCommand(system);
}

/** Installs engine and services. The registration stays valid if this fails. */
export async function startEnrolled(
  { slug, mode }: { slug: string; mode: Mode },
  context: Context,
): Promise<Pick<Enrolled, "started" | "left">> {
  const { settings, system, log } = context;
  const { startOverlay } = await import("../../node/enroll/provision-services.ts");
  try {
    const collision = mode === "server" ? await stopIfColliding(slug, context) : undefined;
    const { started, left } = await startOverlay(mode, slug, settings, { system, log });
    // Only now: the services are installed for the day when the user starts this organization.
    if (collision !== undefined) throw collision;
    const wanted = await wantedState({ slug, mode }, context);
    if (wanted === "down") {
      const line = `${brand.executable} start ${quoteWord(slug)}`;
      return { started: false, left: [`${slug} was stopped, and stays so. Start it: ${line}`] };
    }
    return wanted === "up" ? { started: true, left: [] } : { started, left };
  } catch (error) {
    const known = fromSystemError("start the overlay", error);
    throw new AppError(
      known.code,
      `Registered with ${slug}, but the overlay does not run yet: ${known.message}`,
      {
        cause: error,
        hint: known.details.hint ?? `After the repair, run: ${await installCommand(context)}`,
      },
    );
  }
}

/**
 * Marks a new organization as stopped if it cannot run beside another one, because services start all that is not stopped.
 * Returns why it cannot.
 */
async function stopIfColliding(slug: string, { settings, log }: Context): Promise<AppError | undefined> {
  const { refuseBesideRunning } = await import("../../daemon/running-claims.ts");
  const { isStopped, markStopped } = await import("../../node/files/stopped-by-user.ts");
  const { findEngineProcess } = await import("../../node/engine/engine-process.ts");
  const directory = join(settings.configRoot, slug);
  // An organization that runs is not new: its user decides whether it stays, also after a reboot.
  if (isStopped(directory) || findEngineProcess(join(directory, "config.yml")) !== undefined)
    return undefined;
  try {
    refuseBesideRunning({ slug, directory }, settings.configRoot, log);
    return undefined;
  } catch (error) {
    if (!hasCode(error, "collision")) throw error;
    markStopped(directory);
    return error;
  }
}

/**
 * The desired state, since registering again does not start what a user has stopped. In desktop mode a running daemon is told,
 * and starts a new organization at once. Undefined if that is not known: no daemon runs, or it is in server mode and not stopped.
 */
async function wantedState(
  { slug, mode }: { slug: string; mode: Mode },
  { settings, system, log }: Context,
): Promise<"up" | "down" | undefined> {
  if (mode === "server") {
    const { isStopped } = await import("../../node/files/stopped-by-user.ts");
    return isStopped(join(settings.configRoot, slug)) ? "down" : undefined;
  }
  const { askDaemon } = await import("../../daemon/ipc/client.ts");
  const ask = (request: { action: string; team?: string }) =>
    askDaemon(daemonAddress(settings), system, request, { patient: false });
  try {
    await ask({ action: "provision" });
    const [status] = (await ask({ action: "status", team: slug })).teams ?? [];
    return typeof status === "object" ? status.wanted : undefined;
  } catch (error) {
    if (!hasCode(error, "daemon_unreachable")) log.warn(messageOf(error));
    return undefined;
  }
}
