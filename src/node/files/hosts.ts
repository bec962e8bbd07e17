// hosts.json: the names and addresses of the nodes that this node may reach or be reached by, for lookups without the
// control plane. It lies beside the generations, because names change without one, and a rollback must not bring old
// names back. The last writer wins: each file is complete, and has its version.

import { join } from "node:path";
import { brand } from "../../brand.ts";
import { writeFileAtomic } from "../../files.ts";
import { hostLabels } from "../../host-labels.ts";
import { canonicalAddress } from "../../ip.ts";
import { HostsFile, type NameAlias, type NamedNode } from "../../protocol.ts";
import { readValidJson } from "./organizations.ts";

export function hostsPath(directory: string): string {
  return join(directory, "hosts.json");
}

/** Undefined without the file, and if it is damaged: the control plane then sends all names again. */
export function readHosts(directory: string): HostsFile | undefined {
  return readValidJson(hostsPath(directory), HostsFile);
}

/** Throws disk_full and os_permission. */
export function writeHosts(directory: string, hosts: HostsFile): void {
  writeFileAtomic(hostsPath(directory), `${JSON.stringify(hosts)}\n`, 0o644);
}

/** What a name or an address stands for. `node` is the router if it is the address of an alias. */
export type FoundHost = {
  node: NamedNode;
  /** The first is the preferred one. */
  addresses: readonly string[];
  /** Set if an alias was asked for. */
  alias?: NameAlias;
};

/** Lookups in one list of names. Names of nodes come before stated forms, and both before aliases. */
export type HostIndex = {
  /** `beta`, or `beta.acme.internal` with or without a final dot, in any case. */
  byName(name: string): FoundHost | undefined;
  /** An overlay address, or the address of an alias. */
  byAddress(address: string): FoundHost | undefined;
};

export function indexHosts(
  { nodes, aliases }: Pick<HostsFile, "nodes" | "aliases">,
  slug: string,
): HostIndex {
  const byLabel = new Map<string, FoundHost>();
  const byAddress = new Map<string, FoundHost>();
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const add = (label: string, found: FoundHost) => {
    if (!byLabel.has(label)) byLabel.set(label, found);
  };
  for (const node of nodes) {
    const addresses = addressesOf(node);
    add(node.name, { node, addresses });
    for (const address of addresses) byAddress.set(canonicalAddress(address), { node, addresses });
  }
  for (const node of nodes) {
    for (const label of hostLabels(node.name)) add(label, { node, addresses: addressesOf(node) });
  }
  for (const alias of aliases) {
    const node = byId.get(alias.node_id);
    if (node === undefined) continue;
    const addresses = alias.address === undefined ? addressesOf(node) : [alias.address];
    const found = { node, addresses, alias };
    add(alias.name, found);
    const address = canonicalAddress(alias.address ?? "");
    if (address !== "" && !byAddress.has(address)) byAddress.set(address, found);
  }
  const domain = `.${domainOf(slug)}`;
  return {
    byName(name) {
      const plain = name.toLowerCase().replace(/\.$/, "");
      return byLabel.get(plain.endsWith(domain) ? plain.slice(0, -domain.length) : plain);
    },
    byAddress: (address) => byAddress.get(canonicalAddress(address)),
  };
}

/** The domain of an organization's names: `acme.internal`. */
export function domainOf(slug: string): string {
  return `${slug}.${brand.internalDomain}`;
}

/** The full name of a node: `beta.acme.internal`. */
export function fullName(node: Pick<NamedNode, "name">, slug: string): string {
  return `${hostLabels(node.name)[0] ?? node.name}.${domainOf(slug)}`;
}

function addressesOf({ ip, ip6 }: NamedNode): string[] {
  return ip6 === undefined ? [ip] : [ip, ip6];
}
