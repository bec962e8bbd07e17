// The input of grants.ts about this machine: its interfaces, networks and ports in use, and what its organizations
// use and need.

import { basename, dirname, join } from "node:path";
import * as v from "valibot";
import { isOurDevice } from "../../../engine/interface-names.ts";
import { readTextIfThere } from "../../../base/files.ts";
import { canonicalAddress, joinHostPort, maskNetwork, parseAddress } from "../../../base/ip.ts";
import type { MachineState } from "../../../platform/machine-state.ts";
import type { System } from "../../../base/system.ts";
import { listOrganizations } from "../list-organizations.ts";
import { addressesIn, maskedNetworks } from "./networks.ts";
import { staticHosts, unsafeRoutes } from "../config/read-config.ts";
import { readOwnYaml } from "../config/read-yaml.ts";
import { lookUp, ownHosts, planeOf, readResolved, type OwnHost } from "./resolved-hosts.ts";

/** Interfaces, ports and networks of an organization's configuration in force. `so_mark`: the mark of the engine's packets. */
export type InForce = {
  device?: string | undefined;
  listen?: { host?: string | undefined; port?: number | undefined; so_mark?: number | undefined } | undefined;
  dns?: { host?: string | undefined; port?: number | undefined } | undefined;
  stats?: { listen?: string | undefined; host?: string | undefined } | undefined;
  /** Where its lighthouses and relays are, "192.0.2.1:4242". */
  hubs?: readonly string[] | undefined;
};

/** An organization of this machine. */
export type Tenant = {
  slug: string;
  /** Overlay networks, "10.77.0.0/16", and this node's addresses in them, "10.77.0.5". */
  networks: readonly string[];
  addresses: readonly string[];
  /** Networks behind other nodes that its configuration in force routes. */
  routes: readonly string[];
  inForce: InForce;
};

export type Machine = MachineState & {
  tenants: readonly Tenant[];
  /** Single addresses that no organization may route: control planes, lighthouses and relays of all of them. `of`: the slug. */
  hosts: readonly { network: string; name: string; of: string }[];
};

/**
 * For the organization of this directory. `apiBase`: its control plane, while there is no credentials.json. Names of other
 * organizations that were never looked up are looked up now; its own names at its next check-in.
 */
export async function readMachine(
  directory: string,
  system: Pick<System, "machineState" | "lookup" | "sleep">,
  apiBase?: string,
): Promise<Machine> {
  const root = dirname(directory);
  return { ...(await readMachineAlone(root, system)), hosts: await readHosts(directory, system, apiBase) };
}

/** Without lighthouses and relays, whose names may have to be looked up. */
export async function readMachineAlone(
  configRoot: string,
  system: Pick<System, "machineState">,
): Promise<Machine> {
  return { ...(await system.machineState()), tenants: readTenants(configRoot), hosts: [] };
}

export function readTenants(configRoot: string): Tenant[] {
  return listOrganizations(configRoot).map((slug) => readTenant(configRoot, slug));
}

async function readHosts(
  directory: string,
  system: Pick<System, "lookup" | "sleep">,
  apiBase: string | undefined,
): Promise<Machine["hosts"]> {
  const root = dirname(directory);
  const slug = basename(directory);
  /** `addresses`: undefined if the name was never looked up. */
  const needed = [
    ...listOrganizations(root).flatMap((of) => {
      const resolved = readResolved(join(root, of));
      return ownHosts(join(root, of)).map((host) => ({ ...host, of, addresses: resolved.get(host.host) }));
    }),
    ...planeOf(apiBase).map((host) => ({ ...host, of: slug, addresses: undefined })),
  ];
  const unknownNames = needed.flatMap(({ host, of, addresses }) =>
    of !== slug && addresses === undefined && parseAddress(host) === undefined ? [host] : [],
  );
  const found = await lookUp([...new Set(unknownNames)], system);
  // `host` itself may be an address. A name without addresses gives no network.
  return needed.flatMap(({ host, what, of, addresses }) =>
    (addresses ?? found.get(host) ?? [host]).flatMap((address) => hostNetwork(address, what, of)),
  );
}

function hostNetwork(address: string, what: OwnHost["what"], of: string) {
  const network = networkOfHost(address);
  const article = what === "control plane" ? "the" : "a";
  return network === undefined ? [] : [{ network, name: `${article} ${what} of ${of}`, of }];
}

/** The network of one address; undefined for other text. */
export function networkOfHost(host: string): string | undefined {
  const address = parseAddress(host);
  return address === undefined ? undefined : `${canonicalAddress(host)}/${address.family === 4 ? 32 : 128}`;
}

/** A field that cannot be read counts as unset, and must not hide the others: without `device` the interface would be renamed. */
const readable = <S extends v.GenericSchema>(schema: S) => v.fallback(v.optional(schema), undefined);
const InUse = v.object({
  tun: readable(v.object({ dev: readable(v.string()) })),
  listen: readable(
    v.object({
      host: readable(v.string()),
      port: readable(v.number()),
      so_mark: readable(v.number()),
    }),
  ),
  lighthouse: readable(
    v.object({ dns: readable(v.object({ host: readable(v.string()), port: readable(v.number()) })) }),
  ),
  stats: readable(v.object({ listen: readable(v.string()), host: readable(v.string()) })),
});

function readTenant(configRoot: string, slug: string): Tenant {
  const file = (name: string) => ignoringDamage(() => readTextIfThere(join(configRoot, slug, name))) ?? "";
  const configYml = file("config.yml");
  const hostCrt = file("host.crt");
  const found = ignoringDamage(() => v.parse(InUse, readOwnYaml(configYml, "config.yml")));
  return {
    slug,
    networks: ignoringDamage(() => maskedNetworks(hostCrt)) ?? [],
    addresses: ignoringDamage(() => addressesIn(hostCrt)) ?? [],
    routes: ignoringDamage(() => unsafeRoutes(configYml).map(({ network }) => network)) ?? [],
    inForce: {
      device: found?.tun?.dev,
      listen: found?.listen,
      dns: found?.lighthouse?.dns,
      stats: found?.stats,
      hubs: ignoringDamage(() => hubsIn(configYml)) ?? [],
    },
  };
}

const hubsIn = (configYml: string) =>
  staticHosts(configYml).map(({ host, port }) => joinHostPort(host, port));

/** Damage of one organization must not affect another. */
export function ignoringDamage<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch {
    return undefined;
  }
}

/** A network of an interface, or a route through it. */
export type OfMachine = { network: string; device: string };

/** The machine's own networks and routes: those of its organizations' interfaces are left out. */
export function ownNetworks(machine: Machine): { attached: OfMachine[]; routes: OfMachine[] } {
  const ours = new Set(machine.tenants.flatMap(({ inForce }) => inForce.device ?? []));
  const addresses = new Set(machine.tenants.flatMap((tenant) => tenant.addresses));
  // An interface whose name the system chose, as on macOS, is known by its address.
  for (const { device, address } of machine.addresses)
    if (addresses.has(address.replace(/\/\d+$/, ""))) ours.add(device);
  const isOurs = (device: string) => isOurDevice(device) || ours.has(device);
  const attached = machine.addresses.flatMap(({ device, address }) => {
    const network = maskNetwork(address);
    return network === undefined || isOurs(device) || isLinkLocal(network) ? [] : [{ network, device }];
  });
  const attachedNetworks = new Set(attached.map(({ network }) => network));
  const routes = machine.routes.filter(
    ({ network, device }) => !isOurs(device) && !attachedNetworks.has(network),
  );
  return { attached, routes };
}

/** Each interface has such a network, and none can be routed. */
const isLinkLocal = (network: string) => network.startsWith("fe80:");

/** Maximum that is stored in sync.json. */
const mostSurroundings = 4096;

/** Entry for a port that was left out because a program of this machine had it. */
export const takenPort = (port: number): string => `udp/${port}`;

/**
 * What of the machine's state decides about an organization's routes and port, as short texts: decide again when it changes.
 * `waiting`: entries of `takenPort` for settings that are left out only for now.
 */
export function surroundingsOf(slug: string, machine: Machine, waiting: readonly string[]): string[] {
  const { attached, routes } = ownNetworks(machine);
  const isTaken = (entry: string) =>
    machine.sockets().some(({ protocol, port }) => protocol === "udp" && takenPort(port) === entry);
  const all = [
    ...machine.hosts.map(({ network }) => network),
    ...[...machine.gateways, ...machine.nameServers].flatMap((address) => networkOfHost(address) ?? []),
    ...[...attached, ...routes].map(({ network }) => network),
    ...waiting.filter(isTaken),
    ...machine.tenants.flatMap((tenant) => (tenant.slug === slug ? [] : tenant.routes)),
  ];
  return [...new Set(all)].slice(0, mostSurroundings).sort();
}
