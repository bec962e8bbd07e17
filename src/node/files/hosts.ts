// hosts.json: the names and addresses of the nodes that this node may reach or be reached by, for lookups without the
// control plane. It is beside the generations, because names change without a new configuration, and a rollback must not bring
// old names back. The last writer wins: each file is complete, and has its version.

import { join } from "node:path";
import { brand } from "../../brand.ts";
import { writeFileAtomic } from "../../base/files.ts";
import { hostLabels } from "../../protocol/host-labels.ts";
import { canonicalAddress } from "../../base/ip.ts";
import { HostsFile, type NameAlias, type NamedNode } from "../../protocol/names.ts";
import { NodeConfig } from "../../protocol/organization-files.ts";
import { readValidJson } from "./json-file.ts";

export function hostsPath(directory: string): string {
  return join(directory, "hosts.json");
}

/** Undefined without the file, and if it is damaged: the control plane then sends all names again. */
export function readHosts(directory: string): HostsFile | undefined {
  return readValidJson(hostsPath(directory), HostsFile);
}

/**
 * hosts.json, but sealed nodes have their address in the sealed network, an IPv6 network that the seal gives them: a tunnel to such a
 * node has this address.
 */
export function readAllHosts(directory: string): HostsFile | undefined {
  const hosts = readHosts(directory);
  const sealed = sealedNamesIn(directory);
  if (hosts === undefined || sealed.size === 0) return hosts;
  const nodes = hosts.nodes.map((node): NamedNode => {
    const sealedAddress = sealed.get(node.name)?.find((address) => address.includes(":"));
    return sealedAddress === undefined ? node : { ...node, ip6: sealedAddress };
  });
  return { ...hosts, nodes };
}

/** Addresses of the seal in force, by name. Empty if this node is not in a sealed network. */
export function sealedNamesIn(directory: string): ReadonlyMap<string, readonly string[]> {
  const config = readValidJson(join(directory, "node-config.json"), NodeConfig);
  return new Map(Object.entries(config?.sealed_names ?? {}));
}

/** Throws disk_full and os_permission. */
export function writeHosts(directory: string, hosts: HostsFile): void {
  writeFileAtomic(hostsPath(directory), `${JSON.stringify(hosts)}\n`, 0o644);
}

/** The node of a name or an address: the router, if it is the address of an alias. */
type FoundHost = {
  node: NamedNode;
  /** The first is the preferred one. */
  addresses: readonly string[];
  /** Set if an alias was asked for. */
  alias?: NameAlias;
};

/** Lookups in one list of names. A name of a node wins over the forms in which names are written as labels, and both over aliases. */
type HostIndex = {
  /** `beta`, or `beta.acme.internal` with or without a final dot, in any case. */
  byName(name: string): FoundHost | undefined;
  /** An overlay address, or the address of an alias. */
  byAddress(address: string): FoundHost | undefined;
};

/** Makes the lookups. `slug`: names may be written with the domain of this organization. */
export function indexHosts(
  { nodes, aliases }: Pick<HostsFile, "nodes" | "aliases">,
  slug: string,
): HostIndex {
  const byLabel = new Map<string, FoundHost>();
  const byId = new Map(nodes.map((node) => [node.id, node]));
  /** The first one with a label keeps it. */
  const add = (label: string, found: FoundHost) => {
    if (!byLabel.has(label)) byLabel.set(label, found);
  };
  const ofNodes = nodes.map((node): FoundHost => ({ node, addresses: addressesOf(node) }));
  for (const found of ofNodes) add(found.node.name, found);
  for (const found of ofNodes) for (const label of hostLabels(found.node.name)) add(label, found);
  const ofAliases = aliases.flatMap((alias): FoundHost[] => {
    const node = byId.get(alias.node_id);
    if (node === undefined) return [];
    return [{ node, addresses: alias.address === undefined ? addressesOf(node) : [alias.address], alias }];
  });
  for (const found of ofAliases) add(found.alias?.name ?? "", found);
  let byAddress: Map<string, FoundHost> | undefined;
  const indexAddresses = () => {
    const index = new Map<string, FoundHost>();
    for (const found of ofNodes) {
      for (const address of found.addresses) index.set(canonicalAddress(address), found);
    }
    for (const found of ofAliases) {
      const address = canonicalAddress(found.alias?.address ?? "");
      if (address !== "" && !index.has(address)) index.set(address, found);
    }
    return index;
  };
  const domain = `.${domainOf(slug)}`;
  return {
    byName(name) {
      const plain = name.toLowerCase().replace(/\.$/, "");
      return byLabel.get(plain.endsWith(domain) ? plain.slice(0, -domain.length) : plain);
    },
    // Made when it is first needed: lookups of 50,000 names must not wait for it.
    byAddress: (address) => (byAddress ??= indexAddresses()).get(canonicalAddress(address)),
  };
}

/**
 * The text for a peer in everything that users read: its name, or its address if this machine knows no name.
 * hosts.json is read when the first name is needed.
 */
export function peerNames(slug: string, directory: string): (address: string) => string {
  let index: HostIndex | undefined;
  return (address) => {
    index ??= indexHosts(readAllHosts(directory) ?? { nodes: [], aliases: [] }, slug);
    return index.byAddress(address)?.node.name ?? address;
  };
}

/** The domain of an organization's names: `acme.internal`. */
export function domainOf(slug: string): string {
  return `${slug}.${brand.internalDomain}`;
}

function addressesOf({ ip, ip6 }: NamedNode): string[] {
  return ip6 === undefined ? [ip] : [ip, ip6];
}
