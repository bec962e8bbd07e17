// Facts for the health from an organization's files, for one generation of the configuration. Loaded on demand: it
// decodes certificates, and most commands end before that.

import { join } from "node:path";
import { readTextIfThere } from "../../base/files.ts";
import { given } from "../../base/given.ts";
import type { NodeConfig } from "../../protocol/organization-files.ts";
import { generationFile } from "../files/generations.ts";
import { decodeBundle } from "../../pki/bundle.ts";
import { overlayRoles, overlaySettings, staticHosts, unsafeRoutes } from "../files/config/read-config.ts";
import { overlayNetworks } from "../files/granted/networks.ts";
import { isWithin, parseNetworks } from "../../base/ip.ts";
import { openOrganization, type Organization } from "../files/organizations.ts";
import { tcpWaysOf } from "../files/tcp-state.ts";

export type Facts = {
  /** This node's overlay addresses. */
  own: readonly string[];
  lighthouses: readonly string[];
  /** Sealed address → the address by which the control plane knows the node. Undefined: there is no sealed network. */
  known?: ReadonlyMap<string, string>;
  /** Overlay addresses of the organization's relays, also of those that this node has not chosen. */
  relays: readonly string[];
  /** Underlay addresses and names of lighthouses and relays. */
  underlays: readonly string[];
  isLighthouse: boolean;
  /** Subnets behind other nodes, each with the overlay addresses of its routers. */
  routes: readonly { network: string; routers: readonly string[] }[];
  /** The other lighthouses and relays in the configuration of a lighthouse, which does not ask them for addresses. */
  otherHubs: readonly string[];
  /** Lighthouses and relays that can be reached by TCP where UDP is blocked. */
  byTcp: readonly string[];
  /** When its certificates are valid, ms since 1970. */
  certificate: { from: number; to: number };
  /** MTU of the tunnel's interface; undefined: the engine's default. */
  mtu: number | undefined;
  /** Whether the configuration revokes a certificate, by its fingerprint. */
  isBlocked(fingerprint: string): boolean;
  /** Whether an address is in the overlay. A configuration must not make a node send packets to other networks. */
  isInside(address: string): boolean;
};

/** More are not probed. */
const maxLighthouses = 8;

/** By sealed address: the address outside of the sealed network. */
const plainAddresses = (names: NonNullable<NodeConfig["sealed_names"]>) =>
  new Map(
    Object.values(names).flatMap(([sealed, plain]) =>
      sealed === undefined || plain === undefined ? [] : [[sealed, plain]],
    ),
  );

const hubsOf = (configYml: string) => [...new Set(staticHosts(configYml).map(({ overlay }) => overlay))];

export function readFacts({ slug, directory }: Pick<Organization, "slug" | "directory">): Facts {
  const { config } = openOrganization(join(directory, ".."), slug);
  const text = readTextIfThere(join(directory, "config.yml")) ?? "";
  const { lighthouses, underlays, isLighthouse } = overlayRoles(text);
  // config.yml may have only the relays that this node has chosen: read what the control plane sent.
  const sent = readTextIfThere(generationFile(directory, "server.yml"));
  const { relays } = overlayRoles(sent ?? text);
  const networks = parseNetworks(overlayNetworks(directory));
  const certificates = decodeBundle(readTextIfThere(join(directory, "host.crt")) ?? "");
  const { mtu, blocklist } = overlaySettings(text);
  const isInside = (address: string) => isWithin(address, networks);
  return {
    own: [config.ip_address, config.ip_address6].filter((each) => typeof each === "string"),
    lighthouses: lighthouses.filter(isInside).slice(0, maxLighthouses),
    ...given({ known: config.sealed_names && plainAddresses(config.sealed_names) }),
    relays: relays.filter(isInside),
    underlays,
    isLighthouse,
    routes: unsafeRoutes(text).map(({ network, routers }) => ({
      network,
      routers: routers.filter(isInside),
    })),
    byTcp: Object.keys(tcpWaysOf({ directory, config })).filter(isInside),
    otherHubs: isLighthouse ? hubsOf(text).filter(isInside).slice(0, maxLighthouses) : [],
    certificate: {
      from: Math.max(...certificates.map(({ notBefore }) => notBefore * 1000)),
      to: Math.min(...certificates.map(({ notAfter }) => notAfter * 1000)),
    },
    mtu,
    isBlocked: (fingerprint) => blocklist.has(fingerprint),
    isInside,
  };
}
