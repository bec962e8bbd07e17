// Rewrites config.yml of the generation in force after a change of this machine's own settings, from server.yml beside it. Needs no
// network. The data plane, which some of these functions decide about, is offloads, buffers and the kept port (data-plane.ts).

import { hasCode } from "../../../base/errors.ts";
import { readTextIfThere, writeFileAtomic } from "../../../base/files.ts";
import type { System } from "../../../base/system.ts";
import { isMap, valueAt, type YamlMap } from "../../../base/yaml.ts";
import { finishConfig, hasLocalApi, overriddenIn, readOverrides } from "./config-file.ts";
import { dataPlaneKeys, decideDataPlane, readTrial, type DataPlane } from "./data-plane.ts";
import { generationFile, readSyncState, writeSyncState } from "../generations.ts";
import { isChecked } from "./sync-state.ts";
import { withoutExit } from "../granted/exits.ts";
import { sealInForce } from "../granted/seal-in-force.ts";
import type { EnforcedState } from "../granted/sealed-node.ts";
import { withoutNames } from "../granted/unresolved-names.ts";
import { readRouteChoice, withRouteChoice, writeRouteChoice, type RouteChoice } from "./route-choice.ts";
import { writeLocalChanges, type LocalChanges } from "./local-changes.ts";
import { writePeerMap, type PeerMap } from "./peer-map.ts";
import { withLock } from "../lock.ts";
import { readMachine, type Machine } from "../granted/machine-facts.ts";
import { readSent } from "./sent-config.ts";
import { writeTcpState, type TcpState } from "../tcp-state.ts";

type Place = { directory: string; slug: string };
type SealedPlace = Place & { seal: EnforcedState | undefined };

/**
 * The configuration in force. `sentFor`: the filtered configuration of the control plane, for an engine. Undefined: it takes no
 * changes, because it is not complete, or not checked yet.
 */
function readInForce({ directory, slug, seal }: SealedPlace, machine: Machine) {
  const state = readSyncState(directory);
  const path = generationFile(directory, "config.yml");
  const configYml = readTextIfThere(path);
  const source = readTextIfThere(generationFile(directory, "server.yml"));
  const hostCrt = readTextIfThere(generationFile(directory, "host.crt"));
  if (state === undefined || configYml === undefined || source === undefined || hostCrt === undefined)
    return undefined;
  if (!isChecked(state)) return undefined;
  const sentFor = (engine = state.data_plane?.engine) => {
    // Other settings of a rollout may need a restart, so only a synchronization takes them.
    const usesSettings = state.settings?.used;
    const { config } = readSent(source, { directory, slug, hostCrt, machine, seal, engine, usesSettings });
    // With a name that has no address, the engine would refuse the whole configuration.
    return withoutNames(config, state.unresolved).config;
  };
  return { state, path, configYml, sentFor, localApi: hasLocalApi(configYml, directory) };
}

/** Changes of this machine's own settings. A part that is left out stays as it is. */
export type OwnChanges = {
  healing?: LocalChanges;
  peers?: PeerMap;
  routes?: RouteChoice;
  /** `state`: undefined ends the TCP fallback. */
  tcp?: { state: TcpState | undefined };
};

/**
 * Stores the changes and rewrites config.yml. The caller holds the lock, and then reloads the engine. Returns false if there is
 * nothing to reload: the changes change nothing, or the configuration takes none, because it is not checked yet or, for those of
 * healing, because the engine has no control socket.
 */
export function rewriteConfig(
  place: SealedPlace,
  machine: Machine,
  { healing, peers, routes, tcp }: OwnChanges,
): boolean {
  const found = readInForce(place, machine);
  if (found === undefined || (healing !== undefined && !found.localApi)) return false;
  const sent = found.sentFor();
  // Before the new choice is written: the routes in force, as the former choice made them.
  const chosenRoutes = withRouteChoice(sent, readRouteChoice(place.directory));
  if (healing !== undefined) writeLocalChanges(place.directory, healing);
  if (peers !== undefined) writePeerMap(place.directory, peers);
  if (routes !== undefined) writeRouteChoice(place.directory, routes);
  if (tcp !== undefined) writeTcpState(place.directory, tcp.state);
  const { localApi } = found;
  const { host_names: names, data_plane: dataPlane } = found.state;
  // Of overrides.yml only what is in force: a later change of it, which no engine has tested, must not come into force here.
  const overrides = withoutChosenRoutes(withoutExit(overriddenIn(found.configYml)), chosenRoutes);
  const next = finishConfig(sent, place.directory, { names, localApi, dataPlane, overrides });
  if (next !== found.configYml) writeFileAtomic(found.path, next, 0o644);
  return healing !== undefined || next !== found.configYml;
}

/**
 * Before a start of the engine: decides about offloads and buffers for this version, so that the start already has them. A running
 * engine is not reloaded. If the configuration takes no changes, the next check-in decides.
 */
export async function decideForStart(
  place: Place,
  engine: string | undefined,
  deps: DecideDeps,
): Promise<void> {
  await decideAgain(place, deps, (plane) => ({ engine, former: plane }));
}

/**
 * Gives the next start of the engine this port; undefined: any free one. The port of the running engine is kept, because peers could
 * not find a node that restarts with another one while no lighthouse answers. A running engine is not reloaded.
 */
export async function keepPort(place: Place, port: number | undefined, deps: DecideDeps): Promise<void> {
  await decideAgain(place, deps, (plane) => {
    if (plane === undefined) return undefined;
    const { port: _, ...rest } = plane;
    const former = port === undefined ? rest : { ...rest, port };
    // "": the version was not known.
    return { engine: plane.engine === "" ? undefined : plane.engine, former };
  });
}

type DecideDeps = { command: string; system: Pick<System, "machineState" | "lookup" | "sleep" | "now"> };

/**
 * Decides about the data plane again, and writes config.yml and sync.json. `basisOf` gets the decision in force, and returns the engine
 * and the former decision to decide from. If it returns undefined, everything stays.
 */
async function decideAgain(
  place: Place,
  { command, system }: DecideDeps,
  basisOf: (
    plane: DataPlane | undefined,
  ) => { engine: string | undefined; former: DataPlane | undefined } | undefined,
): Promise<void> {
  await withLock(place.directory, command, system, async () => {
    const machine = await readMachine(place.directory, system);
    const sealed = await withSeal(place);
    const found = sealed === undefined ? undefined : readInForce(sealed, machine);
    if (found === undefined) return;
    const { state, path, configYml, localApi } = found;
    const own = readOverrides(place.directory);
    const chosen = basisOf(state.data_plane);
    if (chosen === undefined) return;
    const { engine, former } = chosen;
    const sent = found.sentFor(engine);
    const basis = { engine, kernel: machine.kernel, sent, own, trial: readTrial(place.directory) };
    const dataPlane = decideDataPlane(basis, former, system.now());
    const overrides = withoutKeptPort(withoutKeys(overriddenIn(configYml), own), state.data_plane?.port);
    const next = finishConfig(sent, place.directory, {
      names: state.host_names,
      localApi,
      dataPlane,
      overrides,
    });
    if (next !== configYml) writeFileAtomic(path, next, 0o644);
    writeSyncState(place.directory, { ...state, data_plane: dataPlane });
  });
}

/** Undefined: a damaged seal leaves the configuration as it is. */
export async function withSeal(place: Place): Promise<SealedPlace | undefined> {
  try {
    return { ...place, seal: await sealInForce(place.directory, place.slug) };
  } catch (error) {
    if (hasCode(error, "bad_configuration")) return undefined;
    throw error;
  }
}

/** Without the routes in force if this program chose their routers, so that they are chosen again. */
function withoutChosenRoutes(inForce: YamlMap, chosen: YamlMap): YamlMap {
  const path = "tun.unsafe_routes";
  return Bun.deepEquals(valueAt(inForce, path), valueAt(chosen, path))
    ? withoutKeys(inForce, {}, [path])
    : inForce;
}

/** The sections in force without these keys, which are decided again. A key that overrides.yml (`own`) sets is kept. */
function withoutKeys(inForce: YamlMap, own: YamlMap, paths: readonly string[] = dataPlaneKeys): YamlMap {
  const sections = { ...inForce };
  for (const path of paths) {
    const [name = "", key = ""] = path.split(".");
    const section = sections[name];
    if (!isMap(section)) continue;
    const { [key]: _, ...rest } = section;
    const ownValue = valueAt(own, path);
    sections[name] = ownValue === undefined ? rest : { ...rest, [key]: ownValue };
  }
  return sections;
}

/** Without the port in force if this program chose it, so that it is decided again. */
function withoutKeptPort(inForce: YamlMap, keptPort: number | undefined): YamlMap {
  const { listen } = inForce;
  // 0: any free port, which the engine chooses.
  if (!isMap(listen) || ![0, keptPort].includes(Number(listen["port"]))) return inForce;
  const { port: _, ...rest } = listen;
  return { ...inForce, listen: rest };
}
