// `agent exit use`: stores which exit root, or the daemon's group, chose for this machine. Without this choice no packet
// gets another default route.

import { given } from "../../base/given.ts";
import { rmSync } from "node:fs";
import { AppError } from "../../base/errors.ts";
import { brand } from "../../brand.ts";
import { quoteWord } from "../../base/quote.ts";
import { can } from "../../engine/features.ts";
import { readTextIfThere } from "../../base/files.ts";
import type { Organization } from "../files/organizations.ts";
import { exitStatePath } from "../files/granted/exit-state.ts";
import { anyExit, othersWithExit } from "../files/granted/exits.ts";
import { permissionsOrNone, writePermissions, type Permissions } from "../files/permissions.ts";
import { applyChanges, type ApplyDeps } from "../health/apply-changes.ts";
import { readSyncState } from "../files/generations.ts";
import { nftProgram } from "../../platform/nftables.ts";
import type { MachineState } from "../../platform/machine-state.ts";
import { ipProgram } from "../../platform/network/kernel.ts";
import { leaveKernel } from "./leave-exit.ts";
import type { System } from "../../base/system.ts";

type ExitChoice = NonNullable<Permissions["exit"]>;
type Deps = ApplyDeps & { system: ApplyDeps["system"] & Pick<System, "run" | "platform"> };

/**
 * The command line that makes this choice, for hints: following one must change nothing else. It always has the
 * organization: once a choice is deleted, `off` does not find it as the one that has an exit in use.
 */
export function exitCommand(slug: string, choice: ExitChoice | "off"): string {
  const { use, strict, lan } = choice === "off" ? { use: choice, strict: false, lan: true } : choice;
  const flags = `${strict ? " --strict" : ""}${lan ? "" : " --no-lan"}`;
  return `${brand.executable} exit use ${quoteWord(use)}${flags} --org-slug ${quoteWord(slug)}`;
}

/** Stores the choice. It takes effect within seconds: use-exit.ts reads it in each round. */
export async function useFromNow(
  organization: Organization,
  choice: ExitChoice,
  system: Pick<System, "platform" | "machineState">,
): Promise<void> {
  await requireUsable(organization, choice, system);
  // The file names the exit of the last choice: use-exit.ts writes a new file.
  rmSync(exitStatePath(organization.directory), { force: true });
  writePermissions(organization.directory, { exit: choice });
}

/**
 * Resolves when the machine's rules and routes are as they were before. The choice is deleted first, so that a killed run
 * leaves nothing that use-exit.ts would follow again.
 */
export async function useNone(place: { slug: string; directory: string }, deps: Deps): Promise<void> {
  writePermissions(place.directory, { exit: undefined });
  const leave = async () => {
    const reason = await leaveKernel(place, deps.system);
    rmSync(exitStatePath(place.directory), { force: true });
    if (reason === undefined) return;
    throw new AppError("failed", `Cannot take the rules of the exit away: ${reason}`, {
      hint: `Run \`${exitCommand(place.slug, "off")}\` again as root.`,
    });
  };
  // The kernel first: packets that it leads into the tunnel would be dropped once the engine has no route for them.
  await leave();
  // Renders config.yml without the exit's route.
  await applyChanges(place, {}, deps);
  // use-exit.ts may have been in the middle of a round that began before the choice was deleted.
  await leave();
}

/** Throws why this machine cannot use the exit. */
async function requireUsable(
  { slug, directory, config }: Organization,
  { use, strict, lan }: ExitChoice,
  system: Pick<System, "platform" | "machineState">,
): Promise<void> {
  const fail = (message: string, hint?: string) => new AppError("failed", message, given({ hint }));
  if (ipProgram(system) === undefined)
    throw fail("Exits are used on Linux only, with the program ip (the package iproute2)");
  if (strict && nftProgram(system) === undefined)
    throw fail("--strict needs the program nft (the package nftables)");
  // The engine for which the last configuration was made; "": its version was unknown.
  const engine = readSyncState(directory)?.data_plane?.engine;
  if (!can(engine, "packet_mark"))
    throw fail(
      `The engine ${engine === undefined || engine === "" ? "" : `${engine} `}cannot mark its packets, so it would send them to the exit, too`,
      `Version 1.10 or later can: \`${brand.executable} overlay update\`.`,
    );
  const [other] = othersWithExit({ slug, directory });
  if (other !== undefined)
    throw fail(
      `The packets of this machine take an exit of ${other}`,
      `End that first: \`${exitCommand(other, "off")}\`.`,
    );
  if (config.is_exit === true && permissionsOrNone(directory).advertise_exit === true)
    throw fail("This machine is an exit of this organization itself");
  const names = (config.exits ?? []).map(({ name }) => name);
  if (names.length === 0)
    throw fail(
      `${slug} has no exit that this node may use`,
      `An administrator makes one: \`${brand.executable} admin node update ${quoteWord(slug)} NODE --add-exit-group GROUP\`.`,
    );
  if (use !== anyExit && !names.includes(use))
    throw fail(`${slug} has no exit ${use} that this node may use`, `There are: ${names.join(", ")}.`);
  refuseStrictFilter(exitCommand(slug, { use, strict, lan }), await system.machineState());
}

/** Throws if the kernel would drop the packets of peers, because the way back to them is another interface. */
function refuseStrictFilter(command: string, { defaultDevices }: MachineState): void {
  // Of IPv4 alone: the kernel has no such filter for IPv6.
  for (const device of defaultDevices[4]) {
    // The kernel uses the larger of the two values. 1 is its strict mode.
    if (Math.max(filterOf("all"), filterOf(device)) !== 1) continue;
    const key = `net.ipv4.conf.${device}.rp_filter`;
    throw new AppError(
      "failed",
      `This machine drops packets whose way back is another interface (${key} is 1)`,
      {
        hint: `Run \`sysctl -w ${key}=2\`, then \`${command}\` again.`,
      },
    );
  }
}

const filterOf = (device: string) =>
  Number(readTextIfThere(`/proc/sys/net/ipv4/conf/${device}/rp_filter`)?.trim() ?? 0);
