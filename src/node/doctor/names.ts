// Examines whether programs of this machine find the names of nodes.

import { brand } from "../../brand.ts";
import { quoteWord } from "../../plan.ts";
import type { System } from "../../system.ts";
import { areNamesOn } from "../enroll/services.ts";
import { refuseForeignHosts } from "../names/keep-names.ts";
import { agrees, askSystem, readNamesState, type NamesState } from "../names/look.ts";
import { maxHostsNames, type MachineName } from "../names/machine-names.ts";
import { askResolver, resolverAddress } from "../names/resolver.ts";
import {
  describePeers,
  describeSuffix,
  linkOf,
  type LinkState,
  type ServiceState,
} from "../names/service-state.ts";
import { fail, ok, skipped, warn, type Finding } from "./check.ts";

const run = brand.executable;
const restart = `systemctl restart ${brand.id}-names`;

type Places = {
  configRoot: string;
  path: string;
  isOn?: boolean;
  owner?: number;
  service?: ServiceState | undefined;
};
type Needs = Pick<System, "lookup" | "sleep" | "now">;

export async function examineNames(
  { configRoot, path, isOn = areNamesOn(), owner = 0, service }: Places,
  system: Needs,
  ask = askResolver,
): Promise<Finding> {
  const state = await readNamesState(configRoot, path, service);
  const nameServer = state.zones.find(({ peers }) => peers !== undefined);
  if (!isOn && nameServer !== undefined)
    return warn(
      `${nameServer.slug} made this node a name server, but names are off`,
      `sudo ${run} names --on --peers`,
    );
  if (!isOn && state.block === undefined && state.fault === undefined)
    return skipped(`off: \`${run} names --on\``);
  if (service?.serving.way !== "resolved") refuseForeignHosts(path, owner);
  if (state.fault !== undefined)
    return fail(`${path}: ${state.fault}`, "Remove the lines of the block by hand");
  if (!isOn) return warn(`${path} has names, but the service is not installed`, `${run} names --clear`);
  if (!state.isCurrent) return warn(`the names in ${path} are not current`, restart);
  if (service?.fault !== undefined)
    return warn(
      `${service.fault}; the names are in ${path} instead`,
      `ss -lnup 'sport = :${resolverAddress.port}'`,
    );
  const disturbed =
    service?.serving.way === "resolved" ? disturbedLink(service.serving.links, path) : undefined;
  if (disturbed !== undefined) return disturbed;
  const refused = state.zones.find(({ suffix }) => suffix?.isRefused === true);
  if (refused?.suffix !== undefined)
    return warn(
      describeSuffix({ slug: refused.slug, ...refused.suffix }),
      `${run} names disallow ${refused.suffix.name} --org-slug ${refused.slug}, or mend what it says`,
    );
  const unanswered = service?.peers.find((each) => each.state === "off" || each.state === "failed");
  if (unanswered !== undefined)
    return warn(
      describePeers(unanswered),
      unanswered.state === "failed"
        ? "See which program uses the port: ss -lnup 'sport = :53'; ss -lntp 'sport = :53'"
        : `sudo ${run} names --on --peers; or end the role: \`${run} admin node update ${quoteWord(unanswered.slug)} NODE --no-names\``,
    );
  const isWaiting = (slug: string) => linkOf(slug, service?.serving)?.state === "waiting";
  const shown = state.names.find(
    ({ names, slug }) => !isWaiting(slug) && names.some((name) => !state.taken.has(name)),
  );
  const name = shown?.names.find((each) => !state.taken.has(each));
  if (shown === undefined || name === undefined)
    return ok(
      state.names.length === 0 ? "on; there are no names yet" : "on; names come when an overlay runs",
    );
  return examineName({ name, shown, state, path }, system, ask);
}

/** A program that takes the interface's settings, or a systemd-resolved that does not take ours. */
function disturbedLink(links: readonly LinkState[], path: string): Finding | undefined {
  const found = links.find(({ state }) => state === "disputed" || state === "refused");
  if (found === undefined) return undefined;
  const device = found.device ?? found.slug;
  return found.state === "refused"
    ? warn(
        `systemd-resolved refuses names for ${device}: ${found.reason ?? ""}; they are in ${path} instead`,
        `networkctl status ${device}: if it names a .network file, set Unmanaged=yes for ${device} in it`,
      )
    : warn(`${device}: ${found.reason ?? ""}`, `resolvectl status ${device}; networkctl status ${device}`);
}

type Examined = { name: string; shown: MachineName; state: NamesState; path: string };

/** By the ways that programs use: the C library, and behind it the resolver. */
async function examineName(
  { name, shown, state, path }: Examined,
  system: Needs,
  ask: typeof askResolver,
): Promise<Finding> {
  const answer = await askSystem({ name, slug: shown.slug }, state, system);
  const isResolved = linkOf(shown.slug, state.service?.serving) !== undefined;
  const own = isResolved ? await ask(name) : undefined;
  if (isResolved && own === undefined)
    return fail(`the resolver at ${resolverAddress.host}:${resolverAddress.port} does not answer`, restart);
  if (answer.source === "none") {
    return isResolved
      ? fail(
          `the resolver finds ${name}, but the C library does not`,
          `See what is between them: resolvectl query ${name}; the line "hosts:" of /etc/nsswitch.conf`,
        )
      : fail(
          `the C library does not find ${name}, which is in ${path}`,
          'The line "hosts:" of /etc/nsswitch.conf needs "files"',
        );
  }
  if (!agrees(shown, answer)) {
    return fail(
      `${name} is ${shown.addresses.join(", ")}, but programs get ${answer.answers.join(", ")}`,
      isResolved
        ? `Another program answers first. See which: resolvectl query ${name}`
        : 'Another program answers first: "files" must be the first source in the line "hosts:" of /etc/nsswitch.conf',
    );
  }
  if (state.leftOut > 0) {
    return warn(
      `${path} has ${maxHostsNames} names; ${state.leftOut} more do not fit`,
      `${run} names lists all; \`${run} admin org update ORG --names rules\` shows a node fewer`,
    );
  }
  return ok(`${name} is found through ${isResolved ? "systemd-resolved" : path}`);
}
