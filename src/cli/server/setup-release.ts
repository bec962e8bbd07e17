// The part of `agent setup` that lets new machines have the program: keeps the release that is handed out, and asks the
// running control plane for the line.

import type { Installer } from "../../api/releases.ts";
import { AppError, messageOf } from "../../base/errors.ts";
import { given } from "../../base/given.ts";
import type { Step } from "../../base/plan/plan.ts";
import type { System } from "../../base/system.ts";
import { brand } from "../../brand.ts";
import type { Context } from "../command.ts";
import { reachableBase } from "./setup-lighthouse.ts";
import type { SetupRequest } from "./setup-request.ts";

/** The line for new machines, or why there is none. */
export function installerLines(installer: Installer | undefined): string[] {
  if (installer === undefined) return [];
  const { command, reason, targets } = installer;
  if (command === null) return [`New machines cannot get the program from here. ${reason ?? ""}`, ""];
  const [only, ...others] = targets;
  const onlyOneSystem =
    only === undefined || others.length > 0
      ? []
      : [
          // Targets are like "bun-linux-x64".
          `This is the program for ${only.slice("bun-".length)}. For other systems, name the directory of a whole release in /etc/${brand.id}/control-plane.toml: releases = "DIR"`,
        ];
  const heading =
    "On each new machine, as root, this installs the program. It needs curl and ca-certificates:";
  return [heading, `  ${command}`, ...onlyOneSystem];
}

/** Keeps the release that this program came from, to be handed out; gets it from its publisher if it is not here. */
export async function provideRelease(
  request: SetupRequest,
  { system, settings, log }: Context,
): Promise<void> {
  if (!(await lacksRelease(request, system))) return;
  const { keepOwnRelease } = await import("../../node/update/keep-handed-out.ts");
  await keepOwnRelease(settings, system).catch((error: unknown) => {
    if (!(error instanceof AppError)) throw error;
    log.warn(
      `The release of this program cannot be kept: ${error.message}`,
      given({ hint: error.details.hint }),
    );
  });
}

export async function planRelease(request: SetupRequest, { system, settings }: Context): Promise<Step[]> {
  if (!(await lacksRelease(request, system))) return [];
  const { planKeepOwnRelease } = await import("../../node/update/keep-handed-out.ts");
  // What cannot be read is not kept: setup says why, and goes on.
  return planKeepOwnRelease(settings, system).catch(() => []);
}

/** Whether the release to hand out is missing. Not for an unsigned build, which has none, and not for `serve --releases`. */
async function lacksRelease(
  { publicUrl, releasesDirectory }: SetupRequest,
  { executable, platform }: Pick<System, "executable" | "platform">,
): Promise<boolean> {
  const { releaseKeys } = await import("../../release/published-release.ts");
  const { readHandedOut } = await import("../../release/handed-out.ts");
  if (releaseKeys().length === 0) return false;
  const { buildInfo } = await import("../../build-info.ts");
  try {
    const { manifest } = readHandedOut({ executable, platform, releasesDirectory }, publicUrl);
    return releasesDirectory === undefined && manifest.version !== buildInfo.version;
  } catch {
    // None is kept, or it cannot be read.
    return releasesDirectory === undefined;
  }
}

/** What the running control plane says; undefined if it does not answer here, or is older. */
export async function readInstaller(
  request: SetupRequest,
  caFingerprint: string | undefined,
  context: Context,
): Promise<Installer | undefined> {
  const { Installer, releasesApi } = await import("../../api/releases.ts");
  const { readApiCaByFingerprint } = await import("../../node/enroll/register-input.ts");
  const v = await import("valibot");
  try {
    const key = { apiBase: request.publicUrl, ...given({ caFingerprint }) };
    const base = await reachableBase(key, request, context);
    const ca = caFingerprint === undefined ? {} : { ca: await readApiCaByFingerprint(base, caFingerprint) };
    const response = await context.system.fetch(`${base}${releasesApi.installer.path}`, { tls: ca });
    const parsed = v.safeParse(Installer, await response.json());
    return parsed.success ? parsed.output : undefined;
  } catch (error) {
    context.log.debug("The control plane does not say how machines get the program", {
      reason: messageOf(error),
    });
    return undefined;
  }
}
