// Tells systemd-resolved, for the interface (link) of each organization, to ask our resolver for the organization's domains, and
// nothing else. Repeats that when the interface or systemd-resolved starts again.

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
import type { ResolutionSettings } from "./lasting-settings.ts";
import type { Zone } from "./name-records.ts";
import type { LinkState, Way } from "./service-state.ts";

/** How often the settings are compared although nothing changed here: another program may have changed them. */
const checkMs = 2000;
/** If the settings of an interface were lost so often in a row, another program changes them. */
const disputedAfter = 3;

type Deps = {
  monotonic: () => number;
  /** Programs find short names too: the organizations' domains are search domains. */
  search?: boolean;
  // Parts that tests replace.
  /** Opens the system's bus. */
  bus?: () => Promise<Bus>;
  /** Whether programs of this machine ask systemd-resolved. */
  asks?: () => boolean;
  /** Finds the interfaces of zones. */
  find?: typeof findLinks;
};

export function makeLinks(
  server: LinkNames["server"],
  { monotonic, search = false, bus: open = openBus, asks = asksResolved, find = findLinks }: Deps,
): ResolutionSettings {
  let bus: Bus | undefined;
  /** The index of a zone's interface. Opened at the first use. */
  let linkOf: ReturnType<typeof findLinks> | undefined;
  /** The last comparison: of what, when (monotonic ms), and its result. */
  let last: { key: string; at: number; way: Way } | undefined;
  /** Interfaces that have our settings, and how often in a row another program has changed these. */
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
  /** Compares and sets the settings once. Throws if the bus fails. */
  const update = async (zones: readonly Zone[]): Promise<Way> => {
    if (!asks()) {
      if (losses.size > 0) await release(await connect(), []);
      disconnect();
      return { way: "hosts", reason: "programs of this machine do not ask systemd-resolved" };
    }
    const connected = await connect();
    linkOf ??= find();
    const links = zones.map(linkOf);
    const domains = zones.map((each) => each.domains);
    // `ownerChanges` counts the starts and ends of systemd-resolved, after which the settings may be lost.
    const key = JSON.stringify([connected.ownerChanges(), links, domains]);
    // Zones, interfaces or systemd-resolved have changed since the last comparison, so the settings must be set anew.
    const isNewSituation = last?.key !== key;
    if (last !== undefined && !isNewSituation && monotonic() - last.at < checkMs) return last.way;
    if (!(await runsResolved(connected))) return allWaiting(zones, "systemd-resolved does not run");
    await release(connected, links);
    const states: LinkState[] = [];
    for (const [at, zone] of zones.entries()) {
      states.push(
        await keepLink(connected, zone, { link: links[at], server, search, losses, isNewSituation }),
      );
    }
    const way: Way = { way: "resolved", links: states };
    // An interface that exists and waits is one that systemd-resolved does not know yet: try again at the next call.
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
  isNewSituation: boolean;
};

/** Sets and compares the settings of one interface. Throws if the bus fails; a refusal of systemd-resolved is a state. */
async function keepLink(
  bus: Bus,
  zone: Zone,
  { link, server, search, losses, isNewSituation }: Keeping,
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
    // In a new situation, and the first time, it was not another program that changed the settings.
    const lost = !hasChanged || isNewSituation || earlier === undefined ? 0 : earlier + 1;
    losses.set(link, lost);
    if (lost < disputedAfter) return { ...about, state: "served" };
    return { ...about, state: "disputed", reason: "another program changes the settings of this interface" };
  } catch (error) {
    if (!(error instanceof BusError)) throw error;
    return { ...about, state: isGone(error) ? "waiting" : "refused", reason: messageOf(error) };
  }
}

function allWaiting(zones: readonly Zone[], reason: string): Way {
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

/** Returns what finds the index of a zone's interface. The interface must have the node's address: another program may use its name. */
function findLinks(): (zone: Zone) => number | undefined {
  const indexOf = openInterfaceIndex();
  return ({ device, addresses }) => {
    const link = device === undefined ? undefined : indexOf(device);
    if (link === undefined) return undefined;
    const addressesNow = networkInterfaces()[device ?? ""] ?? [];
    return addressesNow.some(({ cidr }) => cidr !== null && addresses.includes(cidr)) ? link : undefined;
  };
}
