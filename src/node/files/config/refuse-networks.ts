// Refuses certificates whose networks must not be used on this machine: at the registration, with a new configuration, and at a start.
// grants.ts decides.

import { dirname } from "node:path";
import { brand } from "../../../brand.ts";
import { AppError } from "../../../base/errors.ts";
import { textOrEmpty } from "../../../base/files.ts";
import type { Log } from "../../../base/log.ts";
import { quoteWord } from "../../../base/quote.ts";
import type { System } from "../../../base/system.ts";
import { networkRefusal, overlapRefusal, overlapsWithMachine, type Refusal } from "../granted/grants.ts";
import { readMachineAlone } from "../granted/machine-facts.ts";
import { flagAllowing } from "../granted/permission-flags.ts";
import type { Overlap } from "../granted/routes.ts";
import { situationOf, type Place } from "./sent-config.ts";

/**
 * Throws if the certificates' networks must not be used on this machine (`networkRefusal`): untrusted_answer, or collision for an
 * overlap with another organization's and, at the registration, with one of this machine. Warns if the overlay lies in a network
 * of this machine.
 */
export function refuseNetworks(place: Place, log: Pick<Log, "warn">): void {
  const situation = situationOf(place);
  const refusal = networkRefusal(situation);
  if (refusal !== undefined) throw refusedNetwork(place, refusal);
  const wider = overlapsOfPlace(place).find(({ isWider }) => isWider);
  if (wider !== undefined)
    log.warn("The overlay lies in a network that this machine reaches another way", {
      team: place.slug,
      overlay: wider.overlay,
      network: wider.with,
    });
}

/** The networks of this machine that the overlay overlaps, without those that root permits. */
export function overlapsOfPlace(place: Place): Overlap[] {
  return overlapsWithMachine(situationOf(place));
}

/** Throws collision if the engine of a registered organization would take over a network of this machine at its start. */
export async function refuseOverlapOf(
  { slug, directory }: { slug: string; directory: string },
  system: Pick<System, "machineState">,
): Promise<void> {
  const hostCrt = textOrEmpty(directory, "host.crt");
  const machine = await readMachineAlone(dirname(directory), system);
  const refusal = overlapRefusal(situationOf({ slug, directory, hostCrt, machine }));
  if (refusal !== undefined) throw refusedNetwork({ slug, directory }, refusal);
}

function refusedNetwork(
  { slug, directory }: Pick<Place, "slug" | "directory">,
  { code, network, reason }: Refusal,
): AppError {
  const isOverlap = code === "collision";
  const flag = flagAllowing(directory, isOverlap ? "allow-overlap" : "allow-routes", [network]);
  const allow = `${brand.executable} sync-config --org-slug ${quoteWord(slug)} ${flag}`;
  const how = isOverlap
    ? `Ask the organization's administrator for another overlay network, or give this machine another one. To allow it all the same: \`--allow-overlap ${network}\` at the registration, or \`${allow}\`.`
    : `To allow it all the same: \`${allow}\`.`;
  return new AppError(code, `The network ${network} of ${slug}'s certificate is refused: ${reason}`, {
    hint: how,
  });
}
