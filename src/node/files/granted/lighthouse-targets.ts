// Source and destination addresses for the packets of lighthouse-packets.ts.

import { join } from "node:path";
import { readTextIfThere } from "../../../base/files.ts";
import { networkContains, parseAddress, parseNetwork } from "../../../base/ip.ts";
import { lighthouseHosts } from "../config/read-config.ts";
import { overlayNetworks } from "./networks.ts";
import type { Organization } from "../organizations.ts";

const maxLighthouses = 8;

export type Target = { from: string; to: string };

/** Only addresses in the overlay: a configuration must not make a node send packets to other networks. */
export function lighthouseTargets(organization: Organization): Target[] {
  const { config, directory } = organization;
  const networks = overlayNetworks(directory).flatMap((each) => parseNetwork(each) ?? []);
  const hosts = lighthouseHosts(readTextIfThere(join(directory, "config.yml")) ?? "");
  return hosts
    .filter((host) => {
      const address = parseAddress(host);
      return address !== undefined && networks.some((network) => networkContains(network, address));
    })
    .slice(0, maxLighthouses)
    .flatMap((to) => {
      const from = to.includes(":") ? config.ip_address6 : config.ip_address;
      return from === undefined || from === null ? [] : [{ from, to }];
    });
}
