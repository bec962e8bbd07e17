// Examines what an organization takes of this machine, by the same decision that filters its configuration (grants.ts).

import type { System } from "../../base/system.ts";
import { join } from "node:path";
import { brand } from "../../brand.ts";
import { readTextIfThere } from "../../base/files.ts";
import { maskNetwork, parseNetwork } from "../../base/ip.ts";
import { describeLeftOut, type LeftOut } from "../../engine/left-out.ts";
import { readText } from "../../base/open-file.ts";
import { quoteWord } from "../../base/quote.ts";
import { generationFile } from "../files/generations.ts";
import { ownNetworks, readMachine, type Machine } from "../files/granted/machine-facts.ts";
import { sealInForce } from "../files/granted/seal-in-force.ts";
import type { Organization } from "../files/organizations.ts";
import { flagAllowing } from "../files/granted/permission-flags.ts";
import { permissionsOrNone } from "../files/permissions.ts";
import { overlapsOfPlace } from "../files/config/refuse-networks.ts";
import { readSent, type Place, type SentConfig } from "../files/config/sent-config.ts";
import { fail, ok, warn, type Finding } from "./check.ts";

type Examined = Pick<Organization, "directory" | "slug">;

const lineOf = (slug: string, flags: readonly string[]) =>
  `${brand.executable} sync-config --org-slug ${quoteWord(slug)} ${flags.join(" ")}`;

export async function placeOf(
  { directory, slug }: Examined,
  system: Pick<System, "machineState" | "lookup" | "sleep">,
): Promise<Place> {
  const hostCrt = readText(join(directory, "host.crt"));
  const seal = await sealInForce(directory, slug);
  return { directory, slug, hostCrt, machine: await readMachine(directory, system), seal };
}

/** What of the configuration that was sent last would be in force if it were decided now; undefined if none is stored. */
async function decideNow(
  organization: Examined,
  system: Pick<System, "machineState" | "lookup" | "sleep">,
): Promise<(SentConfig & { place: Place }) | undefined> {
  const source = readTextIfThere(generationFile(organization.directory, "server.yml"));
  if (source === undefined) return undefined;
  const place = await placeOf(organization, system);
  return { ...readSent(source, place), place };
}

/** Warns of the settings that were left out, with the line that allows those routes that root can allow. */
export function leftOutFinding(
  { directory, slug }: Examined,
  leftOut: readonly LeftOut[],
  place: Place,
): Finding {
  const ask = "Ask the organization's administrator to change it";
  const refused = routesOf(leftOut);
  const granted = permissionsOrNone(directory);
  const source = readTextIfThere(generationFile(directory, "server.yml")) ?? "";
  // Decides again as if root allowed all of them: what is refused then cannot be allowed.
  const withAll = { ...granted, routes: [...granted.routes, ...refused] };
  const stillRefused = new Set(routesOf(readSent(source, { ...place, permissions: withAll }).leftOut));
  const allowable = refused.filter((network) => !stillRefused.has(network));
  if (allowable.length === 0) return warn(describeLeftOut(leftOut), ask);
  const line = lineOf(slug, [flagAllowing(directory, "allow-routes", allowable)]);
  return warn(describeLeftOut(leftOut), `${ask}, or allow the routes that you want: ${line}`);
}

const routesOf = (leftOut: readonly LeftOut[]) =>
  leftOut.flatMap(({ key }) => /^tun\.unsafe_routes (\S+)$/.exec(key)?.[1] ?? []);

/** The machine's addresses in a network of an interface. */
const addressesIn = ({ addresses }: Machine, device: string, network: string) =>
  addresses.filter((own) => own.device === device && maskNetwork(own.address) === network);

/** Warns of settings that would need a permission today, and stay only because they were in force before. */
export async function examinePermissions(
  organization: Examined,
  system: Pick<System, "machineState" | "lookup" | "sleep">,
): Promise<Finding> {
  const { kept = [] } = (await decideNow(organization, system)) ?? {};
  if (kept.length === 0) return ok("it has nothing of this machine that needs a permission");
  const flags = [...new Set(kept.map(({ flag }) => flag))].map((flag) =>
    flagAllowing(
      organization.directory,
      flag,
      kept.flatMap((setting) => (setting.flag === flag ? [setting.entry] : [])),
    ),
  );
  const names = kept.map(({ key }) => key).join(", ");
  return warn(
    `${names}: in force from before, and would need this machine's permission today`,
    `Allow it for good: ${lineOf(organization.slug, flags)}`,
  );
}

/** Finds networks of this machine that overlap the overlay: one of the two then gets packets that are for the other. */
export async function examineInterfaces(
  organization: Examined,
  system: Pick<System, "machineState" | "lookup" | "sleep">,
): Promise<Finding> {
  const { slug, directory } = organization;
  const place = await placeOf(organization, system);
  const lost = lostNetwork(place.machine);
  if (lost !== undefined) return lost;
  const overlaps = overlapsOfPlace(place);
  // Those that the overlay takes over come first.
  const [worst] = overlaps.toSorted((a, b) => Number(a.isWider) - Number(b.isWider));
  if (worst === undefined) return ok("the overlay and the networks of this machine do not overlap");
  const { overlay, with: network, name, isWider } = worst;
  const line = lineOf(slug, [flagAllowing(directory, "allow-overlap", [overlay])]);
  const remedy = `Ask the administrator of ${slug} to move it to another overlay network, or give this machine another network. If this is meant: ${line}`;
  return isWider
    ? warn(`the overlay ${overlay} lies in ${network}, ${name}`, remedy)
    : fail(`the overlay ${overlay} takes over ${network}, ${name}`, remedy);
}

/**
 * Finds a network of an interface without its route: under an earlier version of this program, an engine could replace that route,
 * which does not come back by itself.
 */
function lostNetwork(machine: Machine): Finding | undefined {
  const { attached } = ownNetworks(machine);
  const lost = attached.find(({ network, device }) => {
    const { family = 4, prefix = 32 } = parseNetwork(network) ?? {};
    const hasRoute = machine.routes.some((route) => route.network === network && route.device === device);
    // Some networks have no route: /31, /32, /127, /128, and IPv6 addresses that a router assigned.
    const isFixed = addressesIn(machine, device, network).some((own) => own.isFixed === true);
    const needsRoute = family === 4 ? prefix < 31 : prefix < 127 && isFixed;
    return machine.interfaces.includes(device) && needsRoute && !hasRoute;
  });
  if (lost === undefined) return undefined;
  const { network, device } = lost;
  const [own] = addressesIn(machine, device, network);
  const source = own?.address.replace(/\/\d+$/, "") ?? "";
  return fail(
    `${device} is in ${network}, but this machine has no route there`,
    `ip route replace ${network} dev ${quoteWord(device)} src ${source}`,
  );
}

/** The routes that are not installed because this machine is in their network, as the end of a sentence. */
export async function describeRoutesHere(
  organization: Examined,
  system: Pick<System, "machineState" | "lookup" | "sleep">,
): Promise<string> {
  const { here } = (await decideNow(organization, system)) ?? {};
  return [...(here ?? [])].map(([network, why]) => `; no route to ${network}: ${why}`).join("");
}
