// The lighthouses and relays in a configuration, with their underlay addresses.

import { overlayRoles, staticHosts } from "../files/read-config.ts";

export type Hub = { overlay: string; host: string; port: number; isLighthouse: boolean; isRelay: boolean };

/** So many are asked. */
export const mostHubs = 8;

export function roles(configYml: string): { hubs: Hub[]; isLighthouse: boolean } {
  const { lighthouses, relays, isLighthouse } = overlayRoles(configYml);
  const hubs = staticHosts(configYml).map(({ overlay, host, port }) => ({
    overlay,
    host,
    port,
    isLighthouse: lighthouses.includes(overlay),
    isRelay: relays.includes(overlay),
  }));
  return { hubs: hubs.slice(0, mostHubs), isLighthouse };
}
