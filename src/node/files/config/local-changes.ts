// local-changes.json: changes of config.yml by which this machine heals tunnels (health/healing.ts): underlay addresses that it denies
// for a while, how soon relayed tunnels try the direct path, and which relays it has chosen. The file is beside the control socket.
// config-file.ts adds the changes again whenever config.yml is written.

import * as v from "valibot";
import { parseAddress } from "../../../base/ip.ts";
import { isMap, type YamlMap } from "../../../base/yaml.ts";
import { stateFile } from "../json-file.ts";

const maxDenied = 20;
export const IpAddress = v.pipe(
  v.string(),
  v.maxLength(45),
  v.check((text) => parseAddress(text) !== undefined, "Enter an IP address."),
);
const maxRelays = 8;
const LocalChanges = v.object({
  /** Underlay addresses. */
  denied: v.pipe(v.array(IpAddress), v.maxLength(maxDenied)),
  /** `counters.try_promote`: after how many packets a relayed tunnel tries the direct path. */
  try_promote: v.exactOptional(v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(1_000_000))),
  /** Overlay addresses. */
  relays: v.exactOptional(v.pipe(v.array(IpAddress), v.maxLength(maxRelays))),
});
export type LocalChanges = v.InferOutput<typeof LocalChanges>;

const noChanges: LocalChanges = { denied: [] };
const file = stateFile("local-changes.json", LocalChanges, 0o600);
export const { path: localChangesPath, write: writeLocalChanges } = file;

/** No changes if the file does not exist or is damaged. */
export const readLocalChanges = (directory: string): LocalChanges => file.read(directory) ?? noChanges;

/** A configuration with these changes. */
export function withLocalChanges(
  config: YamlMap,
  { denied, try_promote: promote, relays }: LocalChanges,
): YamlMap {
  // The control plane sends no `counters`, and overrides.yml is merged later: nothing is replaced.
  const promoted = promote === undefined ? config : { ...config, counters: { try_promote: promote } };
  const changed = relays === undefined ? promoted : withRelays(promoted, relays);
  if (denied.length === 0) return changed;
  const lighthouse = isMap(config["lighthouse"]) ? config["lighthouse"] : {};
  const sentList = isMap(lighthouse["remote_allow_list"]) ? lighthouse["remote_allow_list"] : {};
  return { ...changed, lighthouse: { ...lighthouse, remote_allow_list: withDenied(sentList, denied) } };
}

/**
 * An allow-list of the engine (network to true or false) that also denies these addresses. Without an entry for all addresses of
 * a family, the engine takes the opposite of the entries that are there; with both values it demands one. So the entry that keeps
 * what the sent list means is added.
 */
function withDenied(sentList: YamlMap, denied: readonly string[]): YamlMap {
  const list = { ...sentList };
  for (const address of denied) list[`${address}/${isIpv6(address) ? 128 : 32}`] = false;
  for (const all of ["0.0.0.0/0", "::/0"]) {
    const isOfFamily = (network: string) => isIpv6(network) === isIpv6(all);
    if (list[all] !== undefined || !Object.keys(list).some(isOfFamily)) continue;
    const permitsSome = Object.entries(sentList).some(
      ([network, isAllowed]) => isOfFamily(network) && isAllowed === true,
    );
    list[all] = !permitsSome;
  }
  return list;
}

const isIpv6 = (text: string) => text.includes(":");

/** With only those of the chosen relays that the control plane still names. If it names none of them, its own list stays. */
function withRelays(config: YamlMap, chosen: readonly string[]): YamlMap {
  const relay = isMap(config["relay"]) ? config["relay"] : {};
  const named = Array.isArray(relay["relays"]) ? relay["relays"] : [];
  const map = isMap(config["static_host_map"]) ? config["static_host_map"] : {};
  // Under a seal a relay has two overlay addresses with the same underlay. It was chosen by the one that the control plane sent.
  const isChosen = (address: string) =>
    chosen.some((other) => other === address || (address in map && Bun.deepEquals(map[other], map[address])));
  const relays = named.filter((address) => typeof address === "string" && isChosen(address));
  return relays.length === 0 ? config : { ...config, relay: { ...relay, relays } };
}
