// The names that programs of this machine should find, of all its organizations: read from their hosts.json, and checked,
// because a control plane must not give a name to any address, nor take over names that other software uses.

import { given } from "../../base/given.ts";
import { existsSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import * as v from "valibot";
import { messageOf } from "../../base/errors.ts";
import { hostLabels } from "../../protocol/host-labels.ts";
import { maskNetwork, networkContains, parseAddress, parseNetworks } from "../../base/ip.ts";
import { NamesForPeers } from "../../protocol/names-for-peers.ts";
import type { HostsFile, NamedNode } from "../../protocol/names.ts";
import { lighthouseHosts, tunnelDevice } from "../files/config/read-config.ts";
import { domainOf, indexHosts, readHosts } from "../files/hosts.ts";
import { listOrganizations } from "../files/list-organizations.ts";
import { networksIn } from "../files/granted/networks.ts";
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
  /** Files of the organizations that have names here, if only after the next change. */
  zones: readonly Zone[];
  /** Organizations without names here, each with the reason. */
  without: readonly { slug: string; reason: string }[];
};

/** The C library reads the file line by line: 0.1 ms for 1,000 names, 5 ms for 50,000. */
export const maxHostsNames = 1000;

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

/** Programs look these up by themselves, below each search domain: they would use the node as proxy, or as way to IPv6. */
const lookedUpUnasked = new Set(["wpad", "isatap"]);

/** Names that a system uses for itself, also without a line in /etc/hosts. */
const ofSystems = /^(localhost|localdomain|broadcasthost|ip6-.*)$/;

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

/** A text is the reason why the organization has no names here. */
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
  const addresses = networksIn(readTextIfThere(join(directory, "host.crt")) ?? "");
  const networks = addresses.flatMap((each) => maskNetwork(each) ?? []);
  const suffix = await examineSuffix(configRoot, slug, hosts.suffix);
  const served = suffix?.reason === undefined ? suffix?.name : undefined;
  return {
    names: namesIn(hosts, slug, networks, new Set(lighthouseHosts(config)), served),
    zone: {
      slug,
      device: tunnelDevice(config),
      addresses,
      domains: [...domainsOf(slug, networks), ...(served === undefined ? [] : [served])],
      ...given({ suffix, peers: hosts.peers }),
    },
  };
}

/** Pure. `networks`: of the node's own certificate. `suffix`: a second domain of all names. */
export function namesIn(
  hosts: Pick<HostsFile, "nodes" | "aliases">,
  slug: string,
  networks: readonly string[],
  lighthouses: ReadonlySet<string>,
  suffix?: string,
): NameRecord[] {
  const index = indexHosts(hosts, slug);
  const inside = parseNetworks(networks);
  const within = (list: typeof inside, text: string) => {
    const address = parseAddress(text);
    return address !== undefined && list.some((network) => networkContains(network, address));
  };
  const isOwn = (text: string) => within(inside, text);
  const domains = [domainOf(slug), ...(suffix === undefined ? [] : [suffix])];
  const full = (labels: readonly string[]) =>
    domains.flatMap((domain) =>
      labels.filter((label) => !lookedUpUnasked.has(label)).map((label) => `${label}.${domain}`),
    );
  const ofNodes = hosts.nodes.map((node): NameRecord => {
    const labels = hostLabels(node.name).filter((label) => isNode(index.byName(label), node));
    const addresses = [node.ip, node.ip6 ?? ""].filter(isOwn);
    const kind = addresses.some((each) => lighthouses.has(each)) ? "lighthouse" : "node";
    return { names: full(labels), addresses, slug, node: node.name, kind, ...classOf(node) };
  });
  const ofAliases = hosts.aliases.flatMap((alias): NameRecord[] => {
    const found = index.byName(alias.name);
    if (found?.alias?.id !== alias.id) return [];
    const isAllowed = (text: string) =>
      alias.address === undefined
        ? isOwn(text)
        : parseAddress(text) !== undefined && !within(neverBehindRouters, text);
    const addresses = found.addresses.filter(isAllowed);
    return [
      {
        names: full([alias.name]),
        addresses,
        slug,
        node: found.node.name,
        kind: "alias",
        ...classOf(found.node),
      },
    ];
  });
  return [...ofNodes, ...ofAliases].filter((each) => each.names.length > 0 && each.addresses.length > 0);
}

const classOf = ({ class: known }: NamedNode) => given({ class: known });

function isNode(found: { node: NamedNode; alias?: unknown } | undefined, node: NamedNode): boolean {
  return found?.alias === undefined && found?.node.id === node.id;
}

/**
 * The lines of a hosts file, without names that its other lines have: those of the administrator stand above. Above the
 * maximum, lighthouses and aliases stay and nodes are left out. A reverse lookup takes the first line: nodes before aliases.
 * `search`: short names too, of which the first organization's counts.
 */
export function hostsLines(
  names: readonly NameRecord[],
  taken: ReadonlySet<string>,
  search = false,
  machine = hostname(),
): { lines: string[]; leftOut: number } {
  const free = names.flatMap((each) => {
    const own = each.names.filter((name) => !taken.has(name));
    return own.length === 0 ? [] : [{ ...each, names: own }];
  });
  const first = { lighthouse: 0, alias: 1, node: 2 };
  const kept = free.toSorted((a, b) => first[a.kind] - first[b.kind]).slice(0, maxHostsNames);
  const written = [
    ...kept.filter(({ kind }) => kind !== "alias"),
    ...kept.filter(({ kind }) => kind === "alias"),
  ];
  const short = new Map<string, string>();
  const [hostLabel] = machine.toLowerCase().split(".");
  if (search) {
    for (const [name = ""] of written.map(({ names: own }) => own)) {
      const [label = ""] = name.split(".");
      const isOfSystem = ofSystems.test(label) || label === hostLabel;
      if (!taken.has(label) && !isOfSystem && !short.has(label)) short.set(label, name);
    }
  }
  const withShort = (own: readonly string[]) => {
    const [name = ""] = own;
    const [label = ""] = name.split(".");
    return short.get(label) === name ? [...own, label] : own;
  };
  return {
    lines: written.flatMap(({ addresses, names: own }) =>
      addresses.map((each) => `${each} ${withShort(own).join(" ")}`),
    ),
    leftOut: free.length - kept.length,
  };
}
