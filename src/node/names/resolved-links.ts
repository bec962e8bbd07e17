// Tells systemd-resolved, for the interface of each organization, to ask our resolver for the organization's domains, and
// nothing else. Repeats it when the interface or systemd-resolved starts again.

import { defer } from "../../base/defer.ts";
import { given } from "../../base/given.ts";
import { networkInterfaces } from "node:os";
import { messageOf } from "../../base/errors.ts";
import { BusError, openBus, type Bus } from "../../platform/systemd/dbus.ts";
import { openInterfaceIndex } from "../../platform/network/interface-index.ts";
import {
  asksResolved,
  isGone,
  resolvedName,
  revertLink,
  runsResolved,
  setLinkNames,
  type LinkNames,
} from "../../platform/systemd/resolved.ts";
import { domainOf } from "../files/hosts.ts";
import type { Zone } from "./name-records.ts";
import type { LinkState, Way } from "./service-state.ts";

/** How often the settings are compared although nothing changed here: another program may have changed them. */
const checkMs = 2000;
/** So many losses in a row, without a reason of ours, mean that another program changes the settings. */
const disputedAfter = 3;

/** A way to point the system's name resolution to our resolver. */
export type Links = {
  /** Compares the settings once; call it again soon. Never throws. */
  keep(zones: readonly Zone[]): Promise<Way>;
  /** Our resolver cannot answer, for this reason: the system must not be pointed to it. */
  without(reason: string): Way;
  /** Removes settings that would outlive this process. */
  close(): void;
};

type Deps = {
  monotonic: () => number;
  /** Programs find short names too: the organizations' domains are search domains. */
  search?: boolean;
  // Parts that tests replace.
  /** Opens the system's bus. */
  bus?: () => Promise<Bus>;
  /** Whether programs of this machine ask systemd-resolved. */
  asks?: () => boolean;
  /** Returns what finds the index of a zone's interface; undefined: there is none. */
  find?: () => (zone: Zone) => number | undefined;
};

export function makeLinks(
  server: LinkNames["server"],
  { monotonic, search = false, bus: open = openBus, asks = asksResolved, find = findLinks }: Deps,
): Links {
  let bus: Bus | undefined;
  let linkOf: ReturnType<typeof findLinks> | undefined;
  /** The last comparison: of what, when (monotonic ms), and its result. */
  let last: { key: string; at: number; way: Way } | undefined;
  /** Interfaces that have our settings, and how often in a row these were lost without news. */
  const losses = new Map<number, number>();

  const disconnect = () => {
    bus?.close();
    bus = undefined;
    last = undefined;
  };
  const connect = async (): Promise<Bus> => {
    if (bus !== undefined && !bus.isClosed) return bus;
    disconnect();
    bus = await open();
    await bus.watchOwner(resolvedName);
    return bus;
  };
  /** Removes our settings from interfaces that are not kept. */
  const release = async (connected: Bus, kept: readonly (number | undefined)[]) => {
    for (const link of losses.keys()) {
      if (kept.includes(link)) continue;
      await revertLink(connected, link, server);
      losses.delete(link);
    }
  };
  const update = async (zones: readonly Zone[]): Promise<Way> => {
    if (!asks()) {
      if (losses.size > 0) await release(await connect(), []);
      disconnect();
      return { way: "hosts", reason: "programs of this machine do not ask systemd-resolved" };
    }
    const connected = await connect();
    // Compare if zones, interfaces or systemd-resolved changed, and else every two seconds.
    linkOf ??= find();
    const links = zones.map(linkOf);
    const domains = zones.map((each) => each.domains);
    const key = JSON.stringify([connected.ownerChanges(), links, domains]);
    const isNews = last?.key !== key;
    if (last !== undefined && !isNews && monotonic() - last.at < checkMs) return last.way;
    if (!(await runsResolved(connected))) return waiting(zones, "systemd-resolved does not run");
    await release(connected, links);
    const states: LinkState[] = [];
    for (const [at, zone] of zones.entries()) {
      states.push(await keepLink(connected, zone, { link: links[at], server, search, losses, isNews }));
    }
    const way: Way = { way: "resolved", links: states };
    // An interface that systemd-resolved does not know yet is tried again at once.
    const isSettled = states.every(({ state }, at) => state !== "waiting" || links[at] === undefined);
    last = isSettled ? { key, at: monotonic(), way } : undefined;
    return way;
  };
  return {
    async keep(zones) {
      try {
        return await update(zones);
      } catch (error) {
        disconnect();
        return { way: "hosts", reason: messageOf(error) };
      }
    },
    // systemd-resolved reads /etc/hosts too.
    without: (reason) => ({ way: "hosts", reason }),
    close: disconnect,
  };
}

type Keeping = {
  link: number | undefined;
  server: LinkNames["server"];
  search: boolean;
  losses: Map<number, number>;
  isNews: boolean;
};

/** Throws if the bus fails; a refusal of systemd-resolved concerns this interface alone. */
async function keepLink(
  bus: Bus,
  zone: Zone,
  { link, server, search, losses, isNews }: Keeping,
): Promise<LinkState> {
  const about = { slug: zone.slug, ...given({ device: zone.device }) };
  if (link === undefined) return { ...about, state: "waiting", reason: "its interface does not exist" };
  try {
    const hasChanged = await setLinkNames(bus, {
      link,
      server,
      domains: zone.domains,
      ...(search ? { search: domainOf(zone.slug) } : {}),
    });
    const earlier = losses.get(link);
    // At news, and the first time, the settings changed because of us.
    const lost = !hasChanged || isNews || earlier === undefined ? 0 : earlier + 1;
    losses.set(link, lost);
    if (lost < disputedAfter) return { ...about, state: "served" };
    return { ...about, state: "disputed", reason: "another program changes the settings of this interface" };
  } catch (error) {
    if (!(error instanceof BusError)) throw error;
    return { ...about, state: isGone(error) ? "waiting" : "refused", reason: messageOf(error) };
  }
}

function waiting(zones: readonly Zone[], reason: string): Way {
  return { way: "resolved", links: zones.map(({ slug }) => ({ slug, state: "waiting", reason })) };
}

/** Removes our settings from all interfaces, also those of an organization that is gone. */
export async function clearLinks(
  server: LinkNames["server"],
  open: () => Promise<Bus> = openBus,
): Promise<void> {
  const bus = await open();
  using _ = defer(() => bus.close());
  if (!(await runsResolved(bus))) return;
  const indexOf = openInterfaceIndex();
  for (const device of Object.keys(networkInterfaces())) {
    const link = indexOf(device);
    if (link !== undefined) await revertLink(bus, link, server);
  }
}

/** The index of the interface, if it has the node's address: another program may use the name. */
function findLinks(): (zone: Zone) => number | undefined {
  const indexOf = openInterfaceIndex();
  return ({ device, addresses }) => {
    const link = device === undefined ? undefined : indexOf(device);
    if (link === undefined) return undefined;
    const present = networkInterfaces()[device ?? ""] ?? [];
    return present.some(({ cidr }) => cidr !== null && addresses.includes(cidr)) ? link : undefined;
  };
}
