// The engine of the system's package manager.

import { existsSync } from "node:fs";
import { defaultPlaces } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import { given } from "../../base/given.ts";
import type { Log } from "../../base/log.ts";
import type { System } from "../../base/system.ts";
import { findPackageManager } from "../../platform/packages.ts";

/** Has the package manager install or update the engine. Returns the path of its program. */
export async function installPackagedEngine({ system, log }: { system: System; log: Log }): Promise<string> {
  const manager = requirePackageManager();
  // Homebrew refuses to run as root; all others need root.
  if (system.isRoot === (manager.name === "brew")) {
    throw new AppError("os_permission", `${manager.name} must ${system.isRoot ? "not " : ""}be run as root`, {
      hint: system.isRoot ? "Use --source release." : "Run the command with sudo.",
    });
  }
  // The last command installs. Those before only refresh lists, and may fail.
  for (const [index, argv] of manager.install.entries()) {
    log.debug(`running ${argv.join(" ")}`);
    const result = await system.run(argv, {
      timeoutMs: 600_000,
      env: packageEnvironment(manager.name, system.env),
    });
    if (result.status === 0) continue;
    const reason = (result.stderr.trim() || result.stdout.trim()).split("\n").at(-1) ?? "";
    if (index < manager.install.length - 1)
      log.warn(`${manager.name} could not refresh all its lists: ${reason}`);
    else throw new AppError("failed", `${manager.name} could not install the engine: ${reason}`);
  }
  return packagedProgram(manager.name, system);
}

/** All of the environment of a package manager, given that of this process. Homebrew refuses to run without a home. */
export const packageEnvironment = (manager: string, { HOME }: System["env"]): Record<string, string> => ({
  PATH: "/usr/sbin:/usr/bin:/sbin:/bin",
  DEBIAN_FRONTEND: "noninteractive",
  LC_ALL: "C.UTF-8",
  ...(manager === "brew" ? given({ HOME }) : {}),
});

export function requirePackageManager() {
  const manager = findPackageManager();
  if (manager !== undefined) return manager;
  throw new AppError("failed", "No package manager with the engine was found (apt, dnf, apk, pacman, brew)", {
    hint: "Install the engine from a file: --source file --file FILE.",
  });
}

function packagedProgram(manager: string, system: System): string {
  const places = defaultPlaces(system.platform, system.env).packagedEngines;
  const found = places.find((path) => existsSync(path));
  if (found !== undefined) return found;
  throw new AppError("failed", `${manager} installed the engine, but it is not in ${places.join(", ")}`);
}

/** Whether the configured path belongs to the package manager, so that only it may replace the file. */
export function isPackagedPlace(target: string, system: Pick<System, "platform" | "env">): boolean {
  return defaultPlaces(system.platform, system.env).packagedEngines.includes(target);
}
