// port-mapping.json: the UDP port that the router maps to this node's engine. `status` shows it, config.yml advertises its address,
// and the next process needs it to renew or end the mapping.

import * as v from "valibot";
import { Port } from "../../protocol/values.ts";
import { boundedText } from "../../base/text.ts";
import { isMap, listOf, type YamlMap } from "../../base/yaml.ts";
import type { Organization } from "./organizations.ts";
import { stateFile } from "./json-file.ts";
import { permissionsOrNone } from "./permissions.ts";

const Mapped = v.object({
  /** The protocol by which the router was asked. */
  by: v.picklist(["PCP", "NAT-PMP", "UPnP"]),
  /** "198.51.100.7:4242" */
  at: v.pipe(boundedText(21), v.regex(/^[\d.]+:\d+$/)),
  /** RFC 3339. */
  since: boundedText(64),
  /** The router's port. */
  external: Port,
  /** Names the mapping for PCP: 12 bytes in hexadecimal. */
  nonce: v.pipe(v.string(), v.regex(/^[0-9a-f]{24}$/)),
  /** Where the router takes requests, for UPnP. */
  control: v.exactOptional(v.object({ port: Port, path: boundedText(512), service: boundedText(128) })),
  /** The address is advertised until then, even if the router no longer answers. In ms after the boot. */
  until: v.number(),
});
const MappingState = v.object({
  /** The router, this machine's own address there, and the port of the engine: when one changes, a router is asked again. */
  gateway: boundedText(45),
  client: boundedText(45),
  port: Port,
  /** Times are milliseconds after the boot with this id. */
  boot: boundedText(64),
  /** When the router is asked next. */
  nextAt: v.number(),
  /** Requests in a row that failed. */
  failures: v.pipe(v.number(), v.integer(), v.minValue(0)),
  mapped: v.exactOptional(Mapped),
  /** Why nothing is mapped, though a router answers. */
  refused: v.exactOptional(boundedText(200)),
});
export type MappingState = v.InferOutput<typeof MappingState>;

/**
 * If the file does not exist, no router was asked. All users of this machine may read it, because `status` does so for them: its nonce
 * keeps no secret from them, since they can ask the router, too.
 */
export const {
  path: mappingStatePath,
  read: readMappingState,
  write: writeMappingState,
} = stateFile("port-mapping.json", MappingState, 0o644);

type Place = Pick<Organization, "directory" | "config">;

/** Why no router is asked for a port; undefined: one is. */
export function whyNoMapping({ directory, config }: Place): string | undefined {
  if (config.is_lighthouse) return "A lighthouse asks no router: nodes find it at its public address";
  if (permissionsOrNone(directory).no_port_mapping === true)
    return "Root of this machine does not want port mappings";
  return config.port_mapping === false ? "The organization does not want port mappings" : undefined;
}

export const isMappingWanted = (place: Place): boolean => whyNoMapping(place) === undefined;

/** The mapping as `status` shows it. */
export function mappingShown(directory: string): MappingShown | undefined {
  const mapped = readMappingState(directory)?.mapped;
  return mapped === undefined ? undefined : { at: mapped.at, by: mapped.by, since: mapped.since };
}
export type MappingShown = Pick<NonNullable<MappingState["mapped"]>, "at" | "by" | "since">;

/** Advertises the mapped address: lighthouses tell it to other nodes, beside the addresses that they see themselves. */
export function withMapping(config: YamlMap, state: MappingState | undefined): YamlMap {
  const mapped = state?.mapped?.at;
  if (mapped === undefined) return config;
  const lighthouse = isMap(config["lighthouse"]) ? config["lighthouse"] : {};
  const sent = listOf(lighthouse["advertise_addrs"]);
  const addresses = [...sent.filter((address) => address !== mapped), mapped];
  return { ...config, lighthouse: { ...lighthouse, advertise_addrs: addresses } };
}
