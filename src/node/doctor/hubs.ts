// The lighthouses and relays in a configuration, with their names and underlay addresses.

import { join } from "node:path";
import { readText } from "../../base/open-file.ts";
import { peerNames } from "../files/hosts.ts";
import type { Organization } from "../files/organizations.ts";
import { overlayRoles, staticHosts } from "../files/config/read-config.ts";

export type Hub = {
  /** Its overlay address. */
  overlay: string;
  name: string;
  /** Its underlay address, or a DNS name. */
  host: string;
  port: number;
  isLighthouse: boolean;
  isRelay: boolean;
};

/** Maximum number of lighthouses and relays that are asked. */
const mostHubs = 8;

/** `isLighthouse`: this node itself. `hasMore`: there are more than `mostHubs`. */
export function readHubs({ slug, directory }: Pick<Organization, "slug" | "directory">): {
  hubs: Hub[];
  isLighthouse: boolean;
  hasMore: boolean;
} {
  const configYml = readText(join(directory, "config.yml"));
  const { lighthouses, relays, isLighthouse } = overlayRoles(configYml);
  const nameOf = peerNames(slug, directory);
  const hubs = staticHosts(configYml).map(({ overlay, host, port }) => ({
    overlay,
    name: nameOf(overlay),
    host,
    port,
    isLighthouse: lighthouses.includes(overlay),
    isRelay: relays.includes(overlay),
  }));
  return { hubs: hubs.slice(0, mostHubs), isLighthouse, hasMore: hubs.length > mostHubs };
}
