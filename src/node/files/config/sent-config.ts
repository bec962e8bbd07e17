// Filters the configuration that a control plane sent: first by the allow-list of both sides, then by what it may take of
// this machine (grants.ts). Settings that are left out are named. The rest, above all the blocklist, is applied.

import * as v from "valibot";
import { given } from "../../../base/given.ts";
import { buildInfo } from "../../../build-info.ts";
import { AppError } from "../../../base/errors.ts";
import { allowedConfig } from "../../../engine/filter-config.ts";
import { describeLeftOut, type LeaveOut, type LeftOut } from "../../../engine/left-out.ts";
import type { Log } from "../../../base/log.ts";
import { isMap, type YamlMap } from "../../../base/yaml.ts";
import { SentSettings, withChanges } from "../../../protocol/updates/sent-settings.ts";
import type { DataPlane } from "./data-plane.ts";
import { readYaml } from "./read-yaml.ts";
import { maskedNetworks, addressesIn } from "../granted/networks.ts";
import { readSyncState } from "../generations.ts";
import { rulesVersion, type SyncState } from "./sync-state.ts";
import { chosenSettings } from "../update-order.ts";
import { sealedSelf, type EnforcedState } from "../granted/sealed-node.ts";
import { grant } from "../granted/grants.ts";
import type { Granted, Situation } from "../granted/grant-asked.ts";
import { surroundingsOf, type Machine } from "../granted/machine-facts.ts";
import { permissionsOrNone, readPermissions, type Permissions } from "../permissions.ts";

/** `kept`, `here`: what grants.ts decided, see `Granted`. */
export type SentConfig = Pick<Granted, "kept" | "here"> & {
  /** What this machine accepts. */
  config: YamlMap;
  /** What it does not accept, and why. */
  leftOut: LeftOut[];
  /** What a seal is compared with: under an enforced one what was sent, since `config` is then rendered from the seal. */
  comparedWithSeal: YamlMap;
  /** The state of this machine that decided about routes and ports (machine-facts.ts); undefined if nothing depends on it. */
  surroundings: string[] | undefined;
  /** The settings of a rollout that were sent, and whether they are in `config`. */
  settings: SyncState["settings"];
};

/** For what organization and machine a configuration is filtered. */
export type Place = {
  directory: string;
  slug: string;
  /** The certificates that belong to the configuration. */
  hostCrt: string;
  machine: Machine;
  /** What the seal makes this node enforce (seal-in-force.ts): the signers of the organization say in it what nodes may be told. */
  seal: EnforcedState | undefined;
  /** The directory of permissions.json, if it is another one. */
  allowedIn?: string;
  /** Instead of permissions.json: to see what they would change. */
  permissions?: Permissions;
  /** Whether the settings of a rollout are used. Undefined: as `agent update-run` has chosen. */
  usesSettings?: boolean | undefined;
  /** The version of the engine at its next start; undefined: unknown. Absent: the one of the configuration in force. */
  engine?: string | undefined;
};

/** What grants.ts decides by. Without the seal, which `readSent` adds. */
export function situationOf({
  slug,
  hostCrt,
  machine,
  directory,
  allowedIn = directory,
  ...place
}: Omit<Place, "seal">): Situation {
  return {
    slug,
    machine,
    permissions: place.permissions ?? permissionsOrNone(allowedIn),
    networks: maskedNetworks(hostCrt),
    addresses: addressesIn(hostCrt),
  };
}

function sealOf(place: Place): Situation["seal"] {
  const { directory, hostCrt, seal: state } = place;
  if (state === undefined) return undefined;
  const engine = "engine" in place ? place.engine : readSyncState(directory)?.data_plane?.engine;
  return { self: sealedSelf(state, hostCrt), engine };
}

/** Entries that are listed, and their characters: the status answers of all organizations share one line of 64 KiB. */
const mostLeftOut = 20;
const mostKey = 80;
const mostReason = 160;

/** Throws bad_configuration for invalid YAML, untrusted_answer for a configuration that no engine could run. */
export function readSent(serverYml: string, place: Place): SentConfig {
  const whole = readYaml(serverYml, "The configuration that the control plane sent");
  const { parsed, settings } = withSettings(whole, place);
  if (!isMap(parsed["pki"])) {
    throw new AppError(
      "untrusted_answer",
      "The configuration that the control plane sent has no pki section",
    );
  }
  const leftOut: LeftOut[] = [];
  let more = 0;
  const leaveOut: LeaveOut = (key, reason) => {
    if (leftOut.length < mostLeftOut)
      leftOut.push({ key: short(key, mostKey), reason: short(reason, mostReason) });
    else more++;
  };
  const allowed = allowedConfig(parsed, leaveOut);
  reportDamagedPermissions(place, leaveOut);
  const seal = sealOf(place);
  const situation = { ...situationOf(place), ...given({ seal }) };
  const { granted, kept, here, waiting, ...decided } = grant(withOurOwn(allowed), situation);
  for (const { key, reason } of decided.leftOut) leaveOut(key, reason);
  const config = withStaticLighthouses(granted);
  if (more > 0) leftOut.push({ key: "…", reason: `${more} more settings are left out` });
  const sentRoutes = isMap(allowed["tun"]) ? allowed["tun"]["unsafe_routes"] : undefined;
  const hasRoutes = Array.isArray(sentRoutes) && sentRoutes.length > 0;
  const dependsOnMachine = seal !== undefined || hasRoutes || waiting.length > 0;
  const surroundings = dependsOnMachine ? surroundingsOf(place.slug, place.machine, waiting) : undefined;
  return {
    config,
    leftOut,
    comparedWithSeal: seal === undefined ? config : allowed,
    kept,
    here,
    surroundings,
    settings,
  };
}

/** With the settings of a rollout, if this node uses them. */
function withSettings(
  { rollout, ...withoutRollout }: YamlMap,
  { directory, usesSettings }: Place,
): { parsed: YamlMap; settings: SyncState["settings"] } {
  const sent = v.safeParse(SentSettings, rollout);
  if (!sent.success) return { parsed: withoutRollout, settings: undefined };
  const { order, sections } = sent.output;
  const used = usesSettings ?? chosenSettings(directory) === order;
  const parsed = used ? withChanges(withoutRollout, sections) : withoutRollout;
  return { parsed, settings: { order, used } };
}

/** A damaged permissions.json allows nothing: says so among what is left out. */
function reportDamagedPermissions({ directory, allowedIn = directory }: Place, leaveOut: LeaveOut): void {
  try {
    readPermissions(allowedIn);
  } catch {
    leaveOut(
      "permissions.json",
      "it is damaged, or others than root can change it, so it allows nothing; write it again with sync-config --allow-routes",
    );
  }
}

/** With what this program sets, whatever was sent. */
function withOurOwn(config: YamlMap): YamlMap {
  const { pki } = config;
  return {
    ...config,
    // Without this, an engine below 1.8 keeps the tunnel of a revoked peer.
    pki: { ...(isMap(pki) ? pki : {}), disconnect_invalid: true },
    // The engine's debug shell, which nothing here uses. Stated, so that no default of an engine opens it.
    sshd: { enabled: false },
  };
}

/**
 * What sync.json keeps of the check. By `rules` and `checked_by`, a program with other rules or of another version checks the
 * configuration in force again.
 * Without `dataPlane` or `seal`, those in the file stay.
 */
export function checkedState({
  leftOut,
  surroundings,
  settings,
  unresolved = [],
  dataPlane,
  seal,
}: Pick<SentConfig, "leftOut" | "surroundings" | "settings"> & {
  unresolved?: string[];
  dataPlane?: DataPlane;
  seal?: SyncState["seal"];
}): Pick<
  SyncState,
  "rules" | "checked_by" | "left_out" | "surroundings" | "settings" | "unresolved" | "data_plane" | "seal"
> {
  return {
    rules: rulesVersion,
    checked_by: buildInfo.version,
    left_out: leftOut,
    surroundings,
    settings,
    unresolved: unresolved.length === 0 ? undefined : unresolved,
    ...given({ data_plane: dataPlane, seal }),
  };
}

/** Warns only when the settings change, not with every configuration. */
export function warnOfLeftOut(
  slug: string,
  before: readonly LeftOut[],
  now: readonly LeftOut[],
  log: Log,
): void {
  if (now.length === 0 || Bun.deepEquals(before, now)) return;
  log.warn("Some settings of the control plane are left out", {
    team: slug,
    what: describeLeftOut(now),
  });
}

/** Printable, and short: a key may contain any characters, and a schema's message may repeat it. */
function short(text: string, longest: number): string {
  const cut = text.length <= longest ? text : `${text.slice(0, longest)}…`;
  return cut.replace(/[^\x20-\x7e…]/g, "?");
}

/** Removes lighthouses without a static address: the engine would not start with them. */
function withStaticLighthouses(config: YamlMap): YamlMap {
  const { static_host_map: map, lighthouse } = config;
  if (!isMap(lighthouse) || !Array.isArray(lighthouse["hosts"])) return config;
  const withAddress = isMap(map)
    ? Object.entries(map).filter(([, addresses]) => Array.isArray(addresses) && addresses.length > 0)
    : [];
  const overlays = new Set(withAddress.map(([overlay]) => overlay));
  const hosts = lighthouse["hosts"].filter((host) => typeof host === "string" && overlays.has(host));
  return {
    ...config,
    static_host_map: Object.fromEntries(withAddress),
    lighthouse: { ...lighthouse, hosts },
  };
}
