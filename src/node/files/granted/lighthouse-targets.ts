// Source and destination addresses for packets to the lighthouses of an organization, through the tunnel.

import { join } from "node:path";
import { readTextIfThere } from "../../../base/files.ts";
import { isWithin, parseNetworks } from "../../../base/ip.ts";
import { lighthouseHosts } from "../config/read-config.ts";
import { overlayNetworks } from "./networks.ts";
import type { Organization } from "../organizations.ts";

const maxLighthouses = 8;

/** `from`: this node's overlay address. `to`: that of a lighthouse. */
export type Target = { from: string; to: string };

/** Only addresses in the overlay: a configuration must not make a node send packets to other networks. */
export function lighthouseTargets(organization: Organization): Target[] {
  const { config, directory } = organization;
  const networks = parseNetworks(overlayNetworks(directory));
  const hosts = lighthouseHosts(readTextIfThere(join(directory, "config.yml")) ?? "");
  return hosts
    .filter((host) => isWithin(host, networks))
    .slice(0, maxLighthouses)
    .flatMap((to) => {
      const from = to.includes(":") ? config.ip_address6 : config.ip_address;
      return from === undefined || from === null ? [] : [{ from, to }];
    });
}
