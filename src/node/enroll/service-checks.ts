// Refuses services that this machine cannot run, and programs that services of root must not run.

import { defaultPlaces } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import type { System } from "../../base/system.ts";
import { requireRootForUnits } from "../../platform/config-root.ts";
import { privilegeHint } from "../../platform/privilege.ts";
import { copyCommand, whyUnsafe } from "../../platform/program-safety.ts";
import { daemonByHand, hasSystemd } from "../../platform/service-manager.ts";
import { findEngine, type EngineSettings } from "../engine/find-engine.ts";

/** Throws if units cannot be installed, with what to do instead. */
export function requireSystemd(system: Pick<System, "platform" | "isRoot">): void {
  if (!hasSystemd(system)) {
    throw new AppError("failed", "systemd does not run on this machine", {
      hint: `Run the daemon by hand or from your init: ${daemonByHand(system)}`,
    });
  }
  requireRoot(system);
}

/** Throws os_permission for others than root. `what`: what only root can do. */
export function requireRoot(system: Pick<System, "platform" | "isRoot">, what = "install services"): void {
  if (system.isRoot) return;
  throw new AppError("os_permission", `Only root can ${what}`, {
    hint: privilegeHint(system),
  });
}

/**
 * Throws if a service of root would run a program that another user can replace, could not see the program or the config root, or
 * would serve another config root. Called before any change: with such a program no check-in runs, and no revocation
 * arrives.
 */
export function requireSafePrograms(
  settings: EngineSettings & { configRoot: string },
  system: Pick<System, "platform" | "env" | "executable">,
): void {
  if (hasSystemd(system)) requireRootForUnits(settings.configRoot);
  refuseUnsafe(system.executable, "executable", system);
  refuseUnsafe(findEngine(settings, system)?.path ?? settings.overlayBinary, "overlayBinary", system);
}

/** Throws if a service of root must not run this program. */
export function refuseUnsafe(
  path: string,
  kind: "executable" | "overlayBinary",
  system: Pick<System, "platform" | "env">,
): void {
  const why = whyUnsafe(path, system);
  if (why === undefined) return;
  const usual = defaultPlaces(system.platform, system.env)[kind];
  const nextStep = kind === "executable" ? "run this command with it" : "leave --overlay-binary out";
  throw new AppError("failed", `A service of root must not run ${path}: ${why}`, {
    hint:
      path === usual
        ? "Allow only root to write there (chown root, chmod go-w), then run this command again."
        : `Put a copy in a safe place (${copyCommand(path, usual, system)}), then ${nextStep}.`,
  });
}
