// Examines whether programs of this machine find the names of nodes.

import { brand } from "../../brand.ts";
import { quoteWord } from "../../base/quote.ts";
import type { System } from "../../base/system.ts";
import {
  portCommand,
  resolverAddress,
  restartNames,
  routesCommand,
  type NamesPlaces,
} from "../../platform/names-places.ts";
import { refuseForeignHosts } from "../names/keep-names.ts";
import { agrees, askSystem, readNamesState, type NamesState } from "../names/find-names.ts";
import { maxHostsNames } from "../names/hosts-lines.ts";
import { askResolver } from "../names/resolver.ts";
import { linkOf, type LinkState, type ServiceState, type Way } from "../names/service-state.ts";
import { describePeers, describeSuffix, wayText } from "../names/describe-serving.ts";
import { fail, ok, skipped, warn, type Finding } from "./check.ts";

const run = brand.executable;

type Places = {
  configRoot: string;
  /** The hosts file. */
  path: string;
  /** Whether names are on, on this machine. */
  isOn: boolean;
  /** The user id that must own the hosts file. */
  owner?: number;
  /** What the service of names has written about itself. */
  service?: ServiceState | undefined;
  /** How programs of this system get names. */
  way?: NamesPlaces["way"];
};
type UsedSystem = Pick<System, "lookup" | "sleep" | "now">;

export async function examineNames(
  { configRoot, path, isOn, owner = 0, service, way = "resolved" }: Places,
  system: UsedSystem,
  ask = askResolver,
): Promise<Finding> {
  const state = await readNamesState(configRoot, path, service);
  const places = { state, path, way, owner };
  if (!isOn) return examineOff(places);
  // The first fault that is found, from the file up to a lookup: each would explain the later ones.
  return (
    damagedFile(places) ??
    faultOfService(places) ??
    disturbedLink(places) ??
    refusedSuffix(state) ??
    silentPeers(state) ??
    (await examineName(places, system, ask))
  );
}

/** `way`: that of this system. The one in use is in `state.service.serving`, and may be the hosts file instead. */
type Examined = Required<Pick<Places, "way" | "owner" | "path">> & { state: NamesState };

/** While names are off, a control plane may still expect a name server here, and the file may still have names. */
function examineOff(places: Examined): Finding {
  const { state, path } = places;
  const nameServer = state.zones.find(({ peers }) => peers !== undefined);
  if (nameServer !== undefined)
    return warn(
      `${nameServer.slug} made this node a name server, but names are off`,
      `sudo ${run} names --on --peers`,
    );
  if (state.block === undefined && state.fault === undefined) return skipped(`off: \`${run} names --on\``);
  return (
    damagedFile(places) ?? warn(`${path} has names, but the service is not installed`, `${run} names --clear`)
  );
}

/** Finds a damaged block of names in the hosts file. Throws if another user may change a hosts file that programs here use. */
function damagedFile({ state, path, way, owner }: Examined): Finding | undefined {
  if (way === "resolved" && state.service?.serving.way !== "resolved") refuseForeignHosts(path, owner);
  return state.fault === undefined
    ? undefined
    : fail(`${path}: ${state.fault}`, "Remove the lines of the block by hand");
}

function faultOfService({ state, path, way }: Examined): Finding | undefined {
  const { service } = state;
  const restart = restartNames({ way });
  // With systemd-resolved, the hosts file has the names while the service is away: there the file alone is examined.
  if (way !== "resolved" && service === undefined) return fail("the daemon does not serve names", restart);
  if (!state.isCurrent) return warn(`the names in ${path} are not current`, restart);
  if (service?.fault !== undefined)
    return warn(
      way === "resolved" ? `${service.fault}; the names are in ${path} instead` : service.fault,
      portCommand(resolverAddress.port),
    );
  return service?.serving.way === "none" ? fail(service.serving.reason, restart) : undefined;
}

function refusedSuffix({ zones }: NamesState): Finding | undefined {
  for (const { slug, suffix } of zones)
    if (suffix?.isRefused === true)
      return warn(
        describeSuffix({ slug, ...suffix }),
        `${run} names disallow ${suffix.name} --org-slug ${slug}, or mend what it says`,
      );
  return undefined;
}

/** Finds an organization for whose peers this name server does not answer. */
function silentPeers({ service }: NamesState): Finding | undefined {
  const silent = service?.peers.find(({ state }) => state === "off" || state === "failed");
  return (
    silent &&
    warn(
      describePeers(silent),
      silent.state === "failed"
        ? `See which program uses the port: ${portCommand(53)}`
        : `sudo ${run} names --on --peers; or end the role: \`${run} admin node update ${quoteWord(silent.slug)} NODE --no-names\``,
    )
  );
}

/** Finds an interface whose settings another program reverts, or whose settings the system refuses. */
function disturbedLink({ state: { service }, path }: Examined): Finding | undefined {
  if (service === undefined || !("links" in service.serving)) return undefined;
  const { way, links }: { way: Way["way"]; links: readonly LinkState[] } = service.serving;
  const link = links.find(({ state }) => state === "disputed" || state === "refused");
  if (link === undefined) return undefined;
  // Only systemd-resolved has settings of an interface; the other ways have rules by the organization.
  const { slug, device = slug, reason = "" } = link;
  if (way === "nrpt" || way === "resolver_files") return warn(`${slug}: ${reason}`, routesCommand(way, slug));
  return link.state === "refused"
    ? warn(
        `systemd-resolved refuses names for ${device}: ${reason}; they are in ${path} instead`,
        `networkctl status ${device}: if it names a .network file, set Unmanaged=yes for ${device} in it`,
      )
    : warn(`${device}: ${reason}`, `resolvectl status ${device}; networkctl status ${device}`);
}

/** Looks one of the names up by our resolver, then as programs do, by the C library. */
async function examineName(
  { state, path, way }: Examined,
  system: UsedSystem,
  ask: typeof askResolver,
): Promise<Finding> {
  const isWaiting = (slug: string) => linkOf(slug, state.service?.serving)?.state === "waiting";
  const isFree = (name: string) => !state.taken.has(name);
  // A node with a name that no other line of the hosts file has.
  const node = state.names.find(({ names, slug }) => !isWaiting(slug) && names.some(isFree));
  const name = node?.names.find(isFree);
  if (node === undefined || name === undefined)
    return ok(
      state.names.length === 0 ? "on; there are no names yet" : "on; names come when an overlay runs",
    );
  // Else programs get the names from the hosts file.
  const isByResolver = linkOf(node.slug, state.service?.serving) !== undefined;
  if (isByResolver && (await ask(name)) === undefined)
    return fail(
      `the resolver at ${resolverAddress.host}:${resolverAddress.port} does not answer`,
      restartNames({ way }),
    );
  // Ask the C library only after our resolver has answered: behind a resolver that hangs, it waits for minutes.
  const answer = await askSystem({ name, slug: node.slug }, state, system);
  const routes = routesCommand(way, name);
  if (answer.source === "none") {
    return isByResolver
      ? fail(
          `the resolver finds ${name}, but the C library does not`,
          `See what is between them: ${routes}${way === "resolved" ? '; the line "hosts:" of /etc/nsswitch.conf' : ""}`,
        )
      : fail(
          `the C library does not find ${name}, which is in ${path}`,
          'The line "hosts:" of /etc/nsswitch.conf needs "files"',
        );
  }
  if (!agrees(node, answer)) {
    return fail(
      `${name} is ${node.addresses.join(", ")}, but programs get ${answer.answers.join(", ")}`,
      isByResolver
        ? `Another program answers first. See which: ${routes}`
        : 'Another program answers first: "files" must be the first source in the line "hosts:" of /etc/nsswitch.conf',
    );
  }
  if (state.leftOut > 0) {
    return warn(
      `${path} has ${maxHostsNames} names; ${state.leftOut} more do not fit`,
      `${run} names lists all; \`${run} admin org update ORG --names rules\` shows a node fewer`,
    );
  }
  const { service } = state;
  return ok(
    `${name} is found through ${isByResolver && service !== undefined ? wayText(service.serving) : path}`,
  );
}
