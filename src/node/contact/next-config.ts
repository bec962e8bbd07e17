// Downloads the configuration of a control plane, verifies keys and chain, and finishes config.yml for this machine.
// Writes nothing.

import { existsSync } from "node:fs";
import { join } from "node:path";
import { can } from "../../engine/features.ts";
import { readTextIfThere } from "../../base/files.ts";
import type { LeftOut } from "../../engine/left-out.ts";
import type { Log } from "../../base/log.ts";
import type { DownloadAnswer } from "../../protocol/download.ts";
import { sealTag } from "../../protocol/seals/seal.ts";
import type { NodeConfig } from "../../protocol/stored.ts";
import type { System } from "../../base/system.ts";
import type { YamlMap } from "../../base/yaml.ts";
import type { EngineControl, EngineRunner } from "../engine/engine.ts";
import type { EngineInUse } from "../engine/engine-in-use.ts";
import { finishConfig, readOverrides, type HostNames } from "../files/config/config-file.ts";
import { decideDataPlane, readTrial, type DataPlane } from "../files/config/data-plane.ts";
import {
  generationFile,
  generationFiles,
  presentFiles,
  readSyncState,
  type SyncState,
} from "../files/generations.ts";
import { damagedSeal, heldSealHash } from "../files/held-seal.ts";
import { sealInForce, underSeal } from "../files/granted/seal-in-force.ts";
import { resolveNames } from "../files/granted/host-names.ts";
import { withoutUnresolved } from "../files/granted/unresolved-names.ts";
import { readMachine } from "../files/granted/machine-facts.ts";
import { maskedNetworks } from "../files/granted/networks.ts";
import type { Organization } from "../files/organizations.ts";
import { readWhole } from "../files/config/read-yaml.ts";
import { readSent, refuseNetworks } from "../files/config/sent-config.ts";
import type { Client, Download } from "./requests/client.ts";
import { checkAnswer } from "./verify-download.ts";

export type SyncDeps = {
  client: Pick<Client, "downloadConfig">;
  control: EngineControl;
  /** Without a path there is no test. Without a version the oldest one is assumed. */
  engine: EngineInUse;
  /** Names the lock's holder in messages of other runs. */
  command: string;
  /** A user asks for it: also try what the running engine refused a short time ago. */
  isAsked?: boolean;
  log: Log;
  system: EngineRunner & Pick<System, "now" | "sleep" | "lookup" | "machineState">;
};

export async function fetchConfig(
  { slug, directory, config }: Organization,
  { client, isAsked = false }: Pick<SyncDeps, "client" | "isAsked">,
): Promise<Download> {
  // The ETag covers the whole set of files. Download all if one is missing or cannot be read, if a user asks because one may be
  // damaged, or if the seal is not the one that was compared last: root deleted it, or it is damaged.
  const [state, seal] = [readSyncState(directory), heldSealHash(directory)];
  const isKnown = !isAsked && isComplete(directory) && seal === (state?.seal?.hash ?? "");
  const etag = isKnown ? state?.etag || undefined : undefined;
  const held = seal === "" || seal === damagedSeal ? undefined : sealTag(seal);
  const tags = [etag, held].filter((tag) => tag !== undefined).join(", ");
  return client.downloadConfig(slug, config.node_id, tags === "" ? undefined : tags);
}

function isComplete(directory: string): boolean {
  const wanted = generationFiles.filter(
    (name) => name !== "node.crt" || existsSync(join(directory, "node.key")),
  );
  const isThere = wanted.every((name) => readTextIfThere(join(directory, name)) !== undefined);
  return (
    isThere &&
    ["config.yml", "server.yml"].every((name) => readWhole(generationFile(directory, name)) !== undefined)
  );
}

export type Next = {
  files: DownloadAnswer["files"];
  serverYml: string;
  /** The filtered configuration, and what was left out of it. */
  sent: YamlMap;
  leftOut: LeftOut[];
  /** What is compared with a seal. */
  told: YamlMap;
  surroundings: string[] | undefined;
  settings: SyncState["settings"];
  /** Names without an address, of settings that were left out for that. */
  unresolved: string[];
  configYml: string;
  /** Addresses that replace DNS names; undefined if the engine resolves names. */
  names: HostNames | undefined;
  localApi: boolean;
  dataPlane: DataPlane;
  /** What the seal of the organization would refuse. */
  seal?: SyncState["seal"];
  etag: string;
  configVersion: number;
};

/** The files that a control plane sent, with verified keys and chain; config.yml is not yet filtered. */
export type Received = Pick<Next, "files" | "serverYml" | "etag" | "configVersion"> & { isNew: boolean };

/** Undefined where the present files came from an older program, without their source. */
export async function verifyFiles(
  { directory, slug, config }: Organization,
  download: Download,
  deps: SyncDeps,
): Promise<Received | undefined> {
  if (!download.changed) {
    const state = readSyncState(directory);
    const serverYml = readTextIfThere(generationFile(directory, "server.yml"));
    if (serverYml === undefined || state === undefined) return undefined;
    const configVersion = download.configVersion ?? state.config_version;
    return { files: presentFiles(directory), serverYml, etag: state.etag, configVersion, isNew: false };
  }
  const { answer, etag } = download;
  const received = await checkAnswer(answer, {
    hostKeyPem: readTextIfThere(join(directory, "host.key")) ?? "",
    nodeKeyPem: readTextIfThere(join(directory, "node.key")) ?? "",
    slug,
    nodeId: config.node_id,
    now: deps.system.now(),
  });
  const pinned = await keepOrderKey(config, received, answer.order_key_proof);
  const nodeConfig = `${JSON.stringify(pinned, null, 2)}\n`;
  return {
    files: { ...answer.files, "node-config.json": nodeConfig },
    serverYml: answer.files["config.yml"],
    etag,
    configVersion: answer.config_version,
    isNew: true,
  };
}

/** The files of the next generation, checked. For a plan: applies nothing. */
export async function prepareNext(
  organization: Organization,
  download: Download,
  deps: SyncDeps,
): Promise<Next | undefined> {
  const received = await verifyFiles(organization, download, deps);
  return received === undefined ? undefined : completeNext(organization, received, deps);
}

/** Renders the files for this machine, under the seal that is in force. */
export async function completeNext(
  organization: Organization,
  received: Received,
  deps: SyncDeps,
): Promise<Next> {
  const { directory } = organization;
  const { isNew, ...sealed } = received;
  const seal = await sealInForce(directory, organization.slug);
  const rest = { ...sealed, files: await underSeal(seal, received.files, () => presentFiles(directory)) };
  const place = {
    directory,
    slug: organization.slug,
    hostCrt: rest.files["host.crt"],
    machine: await readMachine(directory, deps.system),
    engine: deps.engine.next,
    seal,
  };
  if (isNew) refuseNetworks(place, deps.log);
  const sent = readSent(received.serverYml, place);
  const { config, leftOut, unresolved } = await withoutUnresolved(sent.config, deps.system);
  const { surroundings, settings } = sent;
  const checked = { surroundings, settings, leftOut: [...sent.leftOut, ...leftOut], unresolved };
  const known = readSyncState(directory)?.host_names ?? {};
  const names = await resolveNames(
    config,
    deps.engine.version,
    known,
    deps.system,
    maskedNetworks(rest.files["host.crt"]),
  );
  const localApi = can(deps.engine.version, "local_api");
  const basis = {
    engine: deps.engine.next,
    kernel: place.machine.kernel,
    sent: config,
    own: readOverrides(directory),
    trial: readTrial(directory),
  };
  const dataPlane = decideDataPlane(basis, readSyncState(directory)?.data_plane, deps.system.now());
  const configYml = finishConfig(config, directory, { names, localApi, dataPlane });
  return { ...rest, sent: config, told: sent.told, ...checked, configYml, names, localApi, dataPlane };
}

/** The order key is pinned at registration. A new one is accepted only if the pinned one has signed it. */
async function keepOrderKey(
  pinned: NodeConfig,
  received: NodeConfig,
  proof: string | undefined,
): Promise<NodeConfig> {
  const { order_key: offered, ...others } = received;
  const { order_key: known } = pinned;
  const own = { mode: pinned.mode, registered_at: pinned.registered_at };
  if (known === undefined) return { ...others, ...own };
  // Keep the order of the keys that were sent: without changes the file stays the same.
  const kept = { ...received, ...own };
  if (offered === undefined || offered.x === known.x || proof === undefined)
    return { ...kept, order_key: known };
  const { verifyOrderKey } = await import("../../pki/signed-messages.ts");
  const successor = await verifyOrderKey(proof, known);
  return { ...kept, order_key: successor.x === offered.x ? successor : known };
}
