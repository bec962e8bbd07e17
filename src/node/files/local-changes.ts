// What this machine itself changes in config.yml to heal tunnels: underlay addresses that it denies for a while, how soon
// relayed tunnels try the direct path, and which relays it has chosen. Kept beside the control socket, so that every rewriting of config.yml keeps it.

import { join } from "node:path";
import * as v from "valibot";
import { writeFileAtomic } from "../../files.ts";
import { parseAddress } from "../../ip.ts";
import { makeSocketDirectory, socketDirectory } from "../../platform/control-socket.ts";
import { isMap, type YamlMap } from "../../yaml.ts";
import { readValidJson } from "./organizations.ts";

const most = 20;
const Underlay = v.pipe(
  v.string(),
  v.maxLength(45),
  v.check((text) => parseAddress(text) !== undefined, "Enter an IP address."),
);
const maxRelays = 8;
const LocalChanges = v.object({
  denied: v.pipe(v.array(Underlay), v.maxLength(most)),
  try_promote: v.exactOptional(v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(1_000_000))),
  /** Overlay addresses. */
  relays: v.exactOptional(v.pipe(v.array(Underlay), v.maxLength(maxRelays))),
});
export type LocalChanges = v.InferOutput<typeof LocalChanges>;

const none: LocalChanges = { denied: [] };
export const localChangesPath = (directory: string): string =>
  join(directory, socketDirectory, "local-changes.json");

/** No changes if the file does not exist or is damaged. */
export function readLocalChanges(directory: string): LocalChanges {
  return readValidJson(localChangesPath(directory), LocalChanges) ?? none;
}

export function writeLocalChanges(directory: string, changes: LocalChanges): void {
  makeSocketDirectory(directory);
  writeFileAtomic(localChangesPath(directory), `${JSON.stringify(changes)}\n`, 0o600);
}

export function withLocalChanges(
  config: YamlMap,
  { denied, try_promote: promote, relays }: LocalChanges,
): YamlMap {
  const promoted = promote === undefined ? config : { ...config, counters: { try_promote: promote } };
  const changed = relays === undefined ? promoted : withRelays(promoted, relays);
  if (denied.length === 0) return changed;
  const lighthouse = isMap(config["lighthouse"]) ? config["lighthouse"] : {};
  const present = isMap(lighthouse["remote_allow_list"]) ? lighthouse["remote_allow_list"] : {};
  const list = { ...present };
  for (const address of denied) list[`${address}/${address.includes(":") ? 128 : 32}`] = false;
  for (const [all, mark] of [
    ["0.0.0.0/0", "."],
    ["::/0", ":"],
  ] as const) {
    const family = Object.entries(list).filter(([network]) => network.includes(mark));
    // The engine's own default is the opposite of the values, but with both values it wants to be told.
    const before = Object.entries(present).filter(([network]) => network.includes(mark));
    if (family.length > 0 && list[all] === undefined)
      list[all] = !before.some(([, allowed]) => allowed === true);
  }
  return { ...changed, lighthouse: { ...lighthouse, remote_allow_list: list } };
}

/** Only the chosen relays that the control plane still names. If it names none of them, its own list holds. */
function withRelays(config: YamlMap, chosen: readonly string[]): YamlMap {
  const relay = isMap(config["relay"]) ? config["relay"] : {};
  const named = Array.isArray(relay["relays"]) ? relay["relays"] : [];
  const relays = named.filter((each) => typeof each === "string" && chosen.includes(each));
  return relays.length === 0 ? config : { ...config, relay: { ...relay, relays } };
}
