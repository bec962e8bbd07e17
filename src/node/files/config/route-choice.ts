// route-choice.json: which router this node uses for a network behind several nodes (routing/failover.ts). config.yml gets the chosen
// ones. The file is beside the control socket.

import * as v from "valibot";
import { boundedText } from "../../../base/text.ts";
import { holdsNetwork, parseNetwork } from "../../../base/ip.ts";
import { isMap, valueAt, type YamlMap, type YamlValue } from "../../../base/yaml.ts";
import { stateFile } from "../json-file.ts";
import { IpAddress } from "./local-changes.ts";
import { gatewaysKey, type Gateway } from "./read-config.ts";

/** The overlay address of a router, by network. */
const Routers = v.pipe(v.record(boundedText(64), IpAddress), v.maxEntries(4096));
/** `via`: the routers in use. `kept`: hosts ("10.9.0.7/32") whose flows stay with another router until they end. */
const RouteChoice = v.object({ via: Routers, kept: Routers });
export type RouteChoice = v.InferOutput<typeof RouteChoice>;

const file = stateFile("route-choice.json", RouteChoice, 0o600);
export const { write: writeRouteChoice } = file;

/** Empty if the file does not exist or is damaged. */
export const readRouteChoice = (directory: string): RouteChoice =>
  file.read(directory) ?? { via: {}, kept: {} };

/**
 * The control plane sends one entry for each router of a network, the preferred one last. The engine gets one of them: the chosen
 * one, if the control plane still names it, else the preferred one. `route_gateways` names them all, the preferred one first.
 */
export function withRouteChoice(config: YamlMap, { via: chosen, kept }: RouteChoice): YamlMap {
  const sent = valueAt(config, "tun.unsafe_routes");
  if (!Array.isArray(sent)) return config;
  const byNetwork = Map.groupBy(sent, (entry) =>
    isMap(entry) && typeof entry["route"] === "string" ? entry["route"] : "",
  );
  const keptIn = Map.groupBy(Object.entries(kept), ([host]) => narrowestNetwork(host, byNetwork.keys()));
  const gateways = new Map<string, Gateway[]>();
  const routes = [...byNetwork].flatMap(([network, entries]): YamlValue[] => {
    const preferred = entries.at(-1);
    if (entries.length === 1 || !isMap(preferred)) return entries;
    const routers = entries.flatMap((entry): Gateway[] => {
      if (!isMap(entry) || typeof entry["via"] !== "string") return [];
      const { via, metric } = entry;
      return [{ via, metric: typeof metric === "number" ? metric : 0 }];
    });
    gateways.set(network, routers.toReversed());
    const isNamed = (router: string) => routers.some(({ via }) => via === router);
    // One entry is left, for which a metric means nothing.
    const { metric: _, ...route } = preferred;
    const choice = chosen[network];
    const hosts = (keptIn.get(network) ?? []).filter(([, router]) => isNamed(router));
    return [
      choice !== undefined && isNamed(choice) ? { ...route, via: choice } : route,
      ...hosts.map(([host, router]) => ({ ...route, route: host, via: router })),
    ];
  });
  if (gateways.size === 0) return config;
  const tun = isMap(config["tun"]) ? config["tun"] : {};
  return {
    ...config,
    tun: { ...tun, unsafe_routes: routes },
    [gatewaysKey]: Object.fromEntries(gateways),
  };
}

/** Networks may overlap: packets to the host follow the narrowest network that holds it. Undefined: none holds it. */
export function narrowestNetwork(host: string, networks: Iterable<string>): string | undefined {
  const bits = (network: string) => parseNetwork(network)?.prefix ?? 0;
  return [...networks]
    .filter((network) => isInNetwork(host, network))
    .toSorted((a, b) => bits(b) - bits(a))[0];
}

/** Whether the host lies in the network. False if one of the two texts is no network. */
export function isInNetwork(host: string, network: string): boolean {
  const inner = parseNetwork(host);
  const outer = parseNetwork(network);
  return inner !== undefined && outer !== undefined && holdsNetwork(outer, inner);
}
