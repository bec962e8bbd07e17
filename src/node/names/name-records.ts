// The names that programs of this machine should find, of all its organizations: read from their hosts.json, and checked,
// because a control plane must not give a name to any address, nor take over names that other software uses.

import { given } from "../../base/given.ts";
import { existsSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { messageOf } from "../../base/errors.ts";
import { hostLabels } from "../../protocol/host-labels.ts";
import { isWithin, maskNetwork, parseAddress, parseNetworks, type Network } from "../../base/ip.ts";
import { NamesForPeers } from "../../protocol/names-for-peers.ts";
import type { HostsFile, NamedNode } from "../../protocol/names.ts";
import { lighthouseHosts, tunnelDevice } from "../files/config/read-config.ts";
import { domainOf, indexHosts, readHosts, sealedNamesIn } from "../files/hosts.ts";
import { listOrganizations } from "../files/list-organizations.ts";
import { prefixedAddressesIn } from "../files/granted/networks.ts";
import { revokedNotePath } from "../files/revoked-notes.ts";
import { readTextIfThere } from "../../base/files.ts";
import { domainsOf } from "./reverse-zones.ts";
import { Suffix } from "./service-state.ts";
import { examineSuffix } from "./suffixes.ts";

export type NameRecord = {
  /** Full names, the preferred one first: `n-10.acme.internal`, `10.acme.internal`. */
  names: readonly string[];
  addresses: readonly string[];
  slug: string;
  /** The name of the node; of the router if it is the name of an address behind it. */
  node: string;
  kind: "lighthouse" | "node" | "alias";
  /** On a name server: the class of the node, which decides who may learn the name. */
  class?: string | undefined;
};

const text = v.pipe(v.string(), v.maxLength(1000));
const texts = v.pipe(v.array(text), v.maxLength(10_000), v.readonly());

/** The domains and networks of an organization's names. */
export const Zone = v.object({
  slug: text,
  /** The interface of its engine, if the configuration names one. */
  device: v.optional(text),
  /** The node's addresses with the prefix length of their network. */
  addresses: texts,
  domains: texts,
  /** The other domain of its names, which is in `domains` only if this machine answers for it. */
  suffix: v.optional(Suffix),
  /** Set if the organization made this node a name server: whose names it may tell whom. */
  peers: v.optional(NamesForPeers),
});
export type Zone = v.InferOutput<typeof Zone>;

export type NameRecords = {
  names: readonly NameRecord[];
  /** Of each organization that is not in `without`. */
  zones: readonly Zone[];
  /** Organizations without names here, each with the reason. */
  without: readonly { slug: string; reason: string }[];
};

/** Domains below `internal` that clouds and container engines use: metadata.google.internal gives out credentials. */
const foreignDomains = new Set([
  "google",
  "ec2",
  "compute",
  "docker",
  "containers",
  "lima",
  "orb",
  "minikube",
]);

/** Programs look these up unasked, below each search domain, and would use a node of that name as proxy, or for IPv6. */
const lookedUpUnasked = new Set(["wpad", "isatap"]);

/** No organization can have these as an address behind a router: this machine's own, link-local and multicast ones. */
const neverBehindRouters = parseNetworks([
  "0.0.0.0/8",
  "127.0.0.0/8",
  "169.254.0.0/16",
  "224.0.0.0/3",
  "::/96",
  "::ffff:0:0/96",
  "fe80::/10",
  "ff00::/8",
]);

export async function readNameRecords(configRoot: string): Promise<NameRecords> {
  const names: NameRecord[] = [];
  const zones: Zone[] = [];
  const without: { slug: string; reason: string }[] = [];
  for (const slug of listOrganizations(configRoot)) {
    try {
      const found = await namesOf(configRoot, slug);
      if (typeof found === "string") without.push({ slug, reason: found });
      else {
        names.push(...found.names);
        zones.push(found.zone);
      }
    } catch (error) {
      // A damaged organization must not affect the names of the others.
      without.push({ slug, reason: messageOf(error) });
    }
  }
  return { names, zones, without };
}

/** The names of one organization; a text is the reason why it has none here. */
async function namesOf(
  configRoot: string,
  slug: string,
): Promise<{ names: NameRecord[]; zone: Zone } | string> {
  const directory = join(configRoot, slug);
  if (foreignDomains.has(slug)) return `other software uses names below ${domainOf(slug)}`;
  if (existsSync(revokedNotePath(directory))) return "this node is revoked";
  const hosts = readHosts(directory);
  if (hosts === undefined) return "the control plane has not sent names yet";
  const config = readTextIfThere(join(directory, "config.yml")) ?? "{}";
  const addresses = prefixedAddressesIn(readTextIfThere(join(directory, "host.crt")) ?? "");
  const networks = addresses.flatMap((each) => maskNetwork(each) ?? []);
  const suffix = await examineSuffix(configRoot, slug, hosts.suffix);
  const served = suffix?.reason === undefined ? suffix?.name : undefined;
  return {
    names: recordsIn(hosts, {
      slug,
      networks,
      lighthouses: new Set(lighthouseHosts(config)),
      sealed: sealedNames(directory, hosts),
      ...given({ suffix: served }),
    }),
    zone: {
      slug,
      device: tunnelDevice(config),
      addresses,
      domains: [...domainsOf(slug, networks), ...(served === undefined ? [] : [served])],
      ...given({ suffix, peers: hosts.peers }),
    },
  };
}

/**
 * The addresses of sealed nodes by name, as the seal says them, whatever the control plane says. The sealed network is an IPv6 network
 * of these nodes alone. A name server also answers peers outside of it, which need the other addresses.
 */
function sealedNames(directory: string, { peers }: HostsFile): ReadonlyMap<string, readonly string[]> {
  const all = sealedNamesIn(directory);
  // The first address is the one in the sealed network.
  return peers === undefined ? new Map([...all].map(([name, ips]) => [name, ips.slice(0, 1)])) : all;
}

type RecordOptions = {
  slug: string;
  /** Of the node's own certificate. */
  networks: readonly string[];
  /** Their overlay addresses. */
  lighthouses?: ReadonlySet<string>;
  /** A second domain of all names. */
  suffix?: string;
  /** Addresses by name. */
  sealed?: ReadonlyMap<string, readonly string[]>;
};

/** The records of hosts.json that programs of this machine may find. Pure. */
export function recordsIn(
  hosts: Pick<HostsFile, "nodes" | "aliases">,
  { slug, networks, lighthouses = new Set(), suffix, sealed = new Map() }: RecordOptions,
): NameRecord[] {
  const domains = [domainOf(slug), ...(suffix === undefined ? [] : [suffix])];
  const naming: Naming = {
    slug,
    lighthouses,
    sealed,
    index: indexHosts(hosts, slug),
    ownNetworks: parseNetworks(networks),
    sealedOwners: new Map(
      [...sealed.keys()].flatMap((name) => hostLabels(name).map((label) => [label, name])),
    ),
    fullNames: (labels) =>
      domains.flatMap((domain) =>
        labels.filter((label) => !lookedUpUnasked.has(label)).map((label) => `${label}.${domain}`),
      ),
  };
  const ofNodes = hosts.nodes.map((node) => recordOfNode(node, naming));
  const ofAliases = hosts.aliases.flatMap((alias) => recordOfAlias(alias, naming) ?? []);
  return [...ofNodes, ...ofAliases].filter((each) => each.names.length > 0 && each.addresses.length > 0);
}

type Naming = {
  slug: string;
  /** Their overlay addresses. */
  lighthouses: ReadonlySet<string>;
  /** Addresses by name. */
  sealed: ReadonlyMap<string, readonly string[]>;
  index: ReturnType<typeof indexHosts>;
  ownNetworks: readonly Network[];
  /** The name of the sealed node that alone may have a label, by label. */
  sealedOwners: ReadonlyMap<string, string>;
  fullNames: (labels: readonly string[]) => string[];
};

function recordOfNode(node: NamedNode, naming: Naming): NameRecord {
  const { slug, lighthouses, sealed, index, ownNetworks, sealedOwners, fullNames } = naming;
  // The index tells which node or alias has a label. One that a sealed node may have is for that node alone.
  const labels = hostLabels(node.name).filter(
    (label) => isNode(index.byName(label), node) && (sealedOwners.get(label) ?? node.name) === node.name,
  );
  const addresses = (sealed.get(node.name) ?? [node.ip, node.ip6 ?? ""]).filter((each) =>
    isWithin(each, ownNetworks),
  );
  const kind = addresses.some((each) => lighthouses.has(each)) ? "lighthouse" : "node";
  return { names: fullNames(labels), addresses, slug, node: node.name, kind, ...classOf(node) };
}

/** Undefined if a node or another alias has the name. An alias with an address of its own leads behind a router. */
function recordOfAlias(alias: HostsFile["aliases"][number], naming: Naming): NameRecord | undefined {
  const { slug, sealed, index, ownNetworks, sealedOwners, fullNames } = naming;
  const found = index.byName(alias.name);
  if (found?.alias?.id !== alias.id || sealedOwners.has(alias.name)) return undefined;
  const addresses =
    alias.address === undefined
      ? (sealed.get(found.node.name) ?? found.addresses).filter((each) => isWithin(each, ownNetworks))
      : found.addresses.filter(
          (each) => parseAddress(each) !== undefined && !isWithin(each, neverBehindRouters),
        );
  const names = fullNames([alias.name]);
  return { names, addresses, slug, node: found.node.name, kind: "alias", ...classOf(found.node) };
}

const classOf = (node: NamedNode) => given({ class: node.class });

function isNode(found: { node: NamedNode; alias?: unknown } | undefined, node: NamedNode): boolean {
  return found?.alias === undefined && found?.node.id === node.id;
}
