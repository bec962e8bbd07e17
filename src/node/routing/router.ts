// Makes this machine a router of the networks that root offers and an administrator has approved, and undoes everything at the
// end. Linux. Forwarding of IPv4 is switched on only for the interfaces concerned. Where it was off before, only packets between
// tunnel and network are forwarded. Watches a host behind the router: while it is gone, the echo requests by which other nodes ask
// for its network are dropped (route-probe.ts), so that they take another router.

import { dirname, basename } from "node:path";
import { readTextIfThere, textOrEmpty } from "../../base/files.ts";
import { given } from "../../base/given.ts";
import { holdsNetwork, maskNetwork, parseNetwork, parseNetworks, type Network } from "../../base/ip.ts";
import type { Log } from "../../base/log.ts";
import { repeat } from "../../base/within.ts";
import type { System } from "../../base/system.ts";
import { keepTable, tableRemoval, versioned } from "../../platform/nftables.ts";
import { applyChanges, type Change } from "../../platform/machine-changes.ts";
import type { OpenEcho } from "../../platform/network/echo-socket.ts";
import { Echoes } from "../../platform/network/echoes.ts";
import type { MachineState } from "../../platform/machine-state.ts";
import { tunnelDevice } from "../files/config/read-config.ts";
import { overlayNetworks } from "../files/granted/networks.ts";
import { listOrganizations } from "../files/list-organizations.ts";
import { approvedOffers, withoutOffer } from "./offers.ts";
import { readRouterFile, routerFilePath, writeRouterFile } from "./router-file.ts";
import { hasIpv6, openForwarding6 } from "./ipv6-forwarding.ts";
import { probeMark } from "./route-probe.ts";
import { devicesOf, tableBody, type Filter, type Watched } from "./router-table.ts";
import {
  closingChanges,
  formerByOthers,
  otherRouters,
  readForwarding,
  writeForwarding,
  type Forwarding,
} from "./forwarding.ts";

type RouterDeps = {
  directory: string;
  system: Pick<System, "run" | "platform" | "isRoot" | "machineState" | "sleep">;
  open: OpenEcho;
  /** ms that never go back. */
  monotonic(): number;
  log: Pick<Log, "info" | "warn">;
};

const stepEveryMs = 400;
/** How often the table is compared with the kernel's, although nothing changed: another program may have removed it. */
const checkTableMs = 10_000;
/** A watched host that is silent for this time is gone. */
const silentMs = 1200;
/** A watched host that answers for this time without a gap is back. */
const backMs = 3000;

/** Runs until the signal, and leaves the router as it is then. Does not reject. */
export async function runRouter(deps: RouterDeps, signal: AbortSignal): Promise<void> {
  const { system, log } = deps;
  const team = basename(deps.directory);
  const router = new Router(deps);
  const failed = (reason: string) => log.warn("Cannot make this machine a router", { team, reason });
  await repeat(() => router.step(), { everyMs: stepEveryMs, signal, system, failed });
  router.close();
}

class Router {
  readonly #deps: RouterDeps;
  readonly #echoes: Echoes;
  /** Networks that are not reached now. */
  readonly #down = new Set<string>();
  /** The body of the table that was applied last; empty: it is not known what the kernel has. */
  #body = "";
  /** When the table was compared with the kernel's, monotonic ms. */
  #checkedAt = Number.NEGATIVE_INFINITY;

  constructor(deps: RouterDeps) {
    this.#deps = deps;
    this.#echoes = new Echoes(deps);
  }

  close(): void {
    this.#echoes.close();
  }

  async step(): Promise<void> {
    const { directory, system } = this.#deps;
    const offers = approvedOffers(directory);
    const tunnel = tunnelDevice(textOrEmpty(directory, "config.yml"));
    // Networks that this node has without an offer, and to which the kernel does not forward: probes for them are dropped, too.
    const closed = tunnel === undefined ? [] : notForwarded(withoutOffer(directory), tunnel);
    if (tunnel === undefined || (offers.length === 0 && closed.length === 0)) {
      if (readRouterFile(directory) !== undefined) await unmakeRouter(directory, system);
      this.#body = "";
      return;
    }
    const machine = await system.machineState();
    const watched = offers.map((offer) => ({ offer, ...wayTo(offer.behind ?? offer.network, machine) }));
    await this.#probe(watched);
    for (const each of watched) this.#updateDown(each, machine);
    const forwarding = await this.#switchForwarding(tunnel, watched);
    const failure = await this.#applyTable(tunnel, { watched, closed }, forwarding);
    this.#saveStates(watched, forwarding, failure);
  }

  async #probe(watched: readonly Watched[]): Promise<void> {
    this.#echoes.set(
      new Map(
        watched.flatMap(({ offer: { network, watch }, from }) =>
          watch === undefined || from === undefined
            ? []
            : [[network, { from, to: watch, mark: probeMark(network) }] as const],
        ),
      ),
    );
    // The pace: each step sends to every watched host.
    await this.#echoes.send(() => stepEveryMs);
  }

  /** A network goes down at once when its interface or its watched host is gone, and is up again after `backMs`. */
  #updateDown({ offer: { network, watch }, device, from }: Watched, machine: MachineState): void {
    const echo = this.#echoes.get(network);
    const isLinked = device !== undefined && machine.addresses.some((each) => each.device === device);
    const isAnswered =
      watch === undefined ||
      (echo !== undefined && !this.#echoes.noteSilence(echo, silentMs) && from !== undefined);
    const isBack =
      watch === undefined ||
      (echo?.aliveSince !== undefined && this.#deps.monotonic() - echo.aliveSince >= backMs);
    const wasDown = this.#down.has(network);
    if (!isLinked || !isAnswered) this.#down.add(network);
    else if (isBack) this.#down.delete(network);
    if (wasDown === this.#down.has(network)) return;
    const what = wasDown
      ? "The network behind this router is reached again"
      : "What is behind this router is gone";
    const { log, directory } = this.#deps;
    log[wasDown ? "info" : "warn"](what, { team: basename(directory), network, watch, interface: device });
  }

  /** Switches forwarding on where it is off, and back where it is not needed any more. Returns the values from before. */
  async #switchForwarding(tunnel: string, watched: readonly Watched[]): Promise<Forwarding> {
    const { directory, system } = this.#deps;
    const { forwarding = {}, ipv6: former6 } = readRouterFile(directory) ?? {};
    const devices = devicesOf(watched, 4);
    const isNeeded6 = devicesOf(watched, 6).length > 0;
    const needed = devices.length === 0 ? [] : [tunnel, ...devices];
    const switched = Object.entries(forwarding);
    const kept = Object.fromEntries(switched.filter(([device]) => needed.includes(device)));
    const unneeded = Object.fromEntries(switched.filter(([device]) => !needed.includes(device)));
    const isUnneeded6 = !isNeeded6 && former6 !== undefined;
    const closing = { forwarding: unneeded, ...(isUnneeded6 ? { ipv6: former6 } : {}) };
    await applyChanges(closingChanges(directory, closing), system);
    let ipv6 = isUnneeded6 ? undefined : former6;
    for (const device of needed) {
      const current = readForwarding(device);
      if (current === undefined) continue;
      kept[device] ??= formerByOthers(directory, device) ?? current;
      // First the note: after a kill between both, it says what to restore.
      if (current === "0") {
        this.#saveForwarding({ forwarding: kept, ...given({ ipv6 }) });
        writeForwarding(device, "1");
      }
    }
    if (isNeeded6) {
      ipv6 ??= otherRouters(directory).flatMap((each) => each.ipv6 ?? [])[0];
      ipv6 = openForwarding6(ipv6, (toRestore) =>
        this.#saveForwarding({ forwarding: kept, ipv6: toRestore }),
      );
    }
    return { forwarding: kept, ...given({ ipv6 }) };
  }

  #saveForwarding(forwarding: Forwarding): void {
    const { directory } = this.#deps;
    writeRouterFile(directory, { networks: readRouterFile(directory)?.networks ?? {}, ...forwarding });
  }

  /** Applies the table if it has changed, and now and then compares it. Returns why that failed; undefined if it did not. */
  async #applyTable(
    tunnel: string,
    { watched, closed }: Pick<Filter, "watched" | "closed">,
    { forwarding, ipv6 }: Forwarding,
  ): Promise<string | undefined> {
    const { directory, monotonic, system } = this.#deps;
    const overlays = overlayNetworks(directory);
    const tunnels = [tunnel, ...otherTunnels(directory)];
    // If the kernel forwards for all interfaces, others have switched that on: then nothing is restricted to the needs of the router.
    const opened =
      readForwarding("all") === "1" ? [] : Object.keys(forwarding).filter((each) => forwarding[each] === "0");
    const opens6 = ipv6 !== undefined;
    const body = tableBody({ tunnel, tunnels, overlays, watched, closed, down: this.#down, opened, opens6 });
    const isDue = monotonic() - this.#checkedAt >= checkTableMs;
    if (body === this.#body && !isDue) return undefined;
    this.#checkedAt = monotonic();
    const failure = await keepTable("routes", basename(directory), versioned(body), system);
    this.#body = failure === undefined ? body : "";
    return failure;
  }

  /** Writes the state of each network, for check-ins and `status`. */
  #saveStates(watched: readonly Watched[], forwarding: Forwarding, failure: string | undefined): void {
    const { directory } = this.#deps;
    const networks = Object.fromEntries(
      watched.map(({ offer: { network, behind = network }, device }) => {
        if (failure !== undefined) return [network, { state: "failed", why: failure.slice(0, 200) }];
        if (device === undefined)
          return [network, { state: "failed", why: `this machine has no route to ${behind}` }];
        if (network.includes(":") && !hasIpv6())
          return [network, { state: "failed", why: "this machine has no IPv6" }];
        return [network, { state: this.#down.has(network) ? "down" : "ready" }];
      }),
    );
    const next = { ...forwarding, networks };
    if (!Bun.deepEquals(next, readRouterFile(directory))) writeRouterFile(directory, next);
  }
}

/** Undoes what the router did, also after a kill: the machine is as it was before. */
export async function unmakeRouter(
  directory: string,
  system: Pick<System, "run" | "platform">,
): Promise<void> {
  const file = readRouterFile(directory);
  // Note the end first: else two organizations that end at the same time would each leave forwarding on for the other.
  if (file !== undefined) writeRouterFile(directory, { ...file, ending: true });
  await applyChanges(await routerRemoval(directory, system), system);
}

/** What unmakeRouter does, as a list of changes. `gone`: organizations whose own lists are applied before: they are no routers then. */
export async function routerRemoval(
  directory: string,
  system: Pick<System, "run" | "platform">,
  gone: readonly string[] = [],
): Promise<Change[]> {
  return [
    ...closingChanges(directory, readRouterFile(directory) ?? { forwarding: {} }, gone),
    ...(await tableRemoval("routes", basename(directory), system)),
    { change: "remove", path: routerFilePath(directory) },
  ];
}

function otherTunnels(directory: string): string[] {
  const root = dirname(directory);
  const slug = basename(directory);
  return listOrganizations(root).flatMap((each) => {
    if (each === slug || readRouterFile(directory, each) === undefined) return [];
    return tunnelDevice(textOrEmpty(root, each, "config.yml")) ?? [];
  });
}

/** Networks without an offer to which the kernel does not forward. We do not switch forwarding on for them: that is for root. */
function notForwarded(networks: readonly string[], tunnel: string): string[] {
  const forwarding = {
    4: readForwarding(tunnel),
    6: readTextIfThere("/proc/sys/net/ipv6/conf/all/forwarding")?.trim(),
  };
  return networks.filter((network) => forwarding[network.includes(":") ? 6 : 4] === "0");
}

/** The interface by which the kernel reaches a network, and this machine's address there; undefined without a route. */
function wayTo(
  text: string,
  machine: MachineState,
): { device: string | undefined; from: string | undefined } {
  const network = parseNetwork(text);
  if (network === undefined) return { device: undefined, from: undefined };
  const attached = machine.addresses.flatMap(({ device, address }) =>
    parseNetworks([maskNetwork(address) ?? ""]).map((parsed) => ({ device, network: parsed })),
  );
  const routed = machine.routes.flatMap((route) =>
    parseNetworks([route.network]).map((parsed) => ({ device: route.device, network: parsed })),
  );
  const device = mostSpecific([...attached, ...routed], network) ?? machine.defaultDevices[network.family][0];
  const ofDevice = machine.addresses.filter((each) => each.device === device);
  const from = ofDevice.find(
    ({ address }) => address.includes(":") === (network.family === 6) && !address.startsWith("fe80:"),
  );
  return { device, from: from?.address.replace(/\/\d+$/, "") };
}

/** The interface of the longest prefix that holds the network. */
function mostSpecific(
  list: readonly { device: string; network: Network }[],
  network: Network,
): string | undefined {
  const around = list.filter((each) => holdsNetwork(each.network, network));
  return around.sort((a, b) => b.network.prefix - a.network.prefix)[0]?.device;
}
