// Downloads the configuration of a control plane, verifies keys and chain, and finishes config.yml for this machine.
// Writes nothing.

import { existsSync } from "node:fs";
import { join } from "node:path";
import { can } from "../../engine/features.ts";
import { AppError } from "../../base/errors.ts";
import { readTextIfThere, textOrEmpty } from "../../base/files.ts";
import type { LeftOut } from "../../engine/left-out.ts";
import type { Log } from "../../base/log.ts";
import { brand } from "../../brand.ts";
import { isHostKey } from "../../pki/keys.ts";
import type { DownloadAnswer } from "../../protocol/download.ts";
import { sealTag } from "../../protocol/seals/seal.ts";
import type { NodeConfig } from "../../protocol/organization-files.ts";
import type { System } from "../../base/system.ts";
import type { YamlMap } from "../../base/yaml.ts";
import type { EngineControl } from "../engine/control-engine.ts";
import type { EngineRunner } from "../engine/engine.ts";
import type { EngineInUse } from "../engine/engine-in-use.ts";
import { finishConfig, readOverrides, type HostNames } from "../files/config/config-file.ts";
import { decideDataPlane, readTrial, type DataPlane } from "../files/config/data-plane.ts";
import { generationFile, generationFiles, filesInForce, readSyncState } from "../files/generations.ts";
import type { SyncState } from "../files/config/sync-state.ts";
import { damagedSeal, heldSealHash } from "../files/held-seal.ts";
import { sealInForce, underSeal } from "../files/granted/seal-in-force.ts";
import { resolveNames } from "../files/granted/host-names.ts";
import { withoutUnresolved } from "../files/granted/unresolved-names.ts";
import { readMachine } from "../files/granted/machine-facts.ts";
import { maskedNetworks } from "../files/granted/networks.ts";
import type { Organization } from "../files/organizations.ts";
import { readWhole } from "../files/config/read-yaml.ts";
import { readSent } from "../files/config/sent-config.ts";
import { refuseNetworks } from "../files/config/refuse-networks.ts";
import type { Client, Download } from "./requests/client.ts";
import { checkAnswer } from "./verify-download.ts";

export type SyncDeps = {
  client: Pick<Client, "downloadConfig">;
  control: EngineControl;
  /** Without a path there is no test. Without a version it counts as the oldest one that is supported. */
  engine: EngineInUse;
  /** Names the lock's holder in messages of other runs. */
  command: string;
  /** A user asks for it: also try what the running engine refused a short time ago. */
  isAsked?: boolean;
  log: Log;
  system: EngineRunner & Pick<System, "now" | "sleep" | "lookup" | "machineState">;
};

/** Downloads the configuration, or learns that the files in force are the newest. */
export async function fetchConfig(
  { slug, directory, config }: Organization,
  { client, isAsked = false }: Pick<SyncDeps, "client" | "isAsked">,
): Promise<Download> {
  // The ETag covers the whole set of files. Download all if one is missing or cannot be read, if a user asks because one may be
  // damaged, or if the seal is not the one that was compared last: root deleted it, or it is damaged.
  const state = readSyncState(directory);
  const sealHash = heldSealHash(directory);
  const mayKeepFiles = !isAsked && isComplete(directory) && sealHash === (state?.seal?.hash ?? "");
  const etag = mayKeepFiles ? state?.etag || undefined : undefined;
  // Tells which seals this node has, whether or not the files are downloaded.
  const ofSeal = sealHash === "" || sealHash === damagedSeal ? undefined : sealTag(sealHash);
  const tags = [etag, ofSeal].filter((tag) => tag !== undefined).join(", ");
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

/** The next configuration, rendered for this machine. Fields without a comment: as in `SentConfig` of sent-config.ts. */
export type Next = {
  /** The files of the generation. `configYml` takes the place of its config.yml. */
  files: DownloadAnswer["files"];
  /** config.yml as the control plane sent it. */
  serverYml: string;
  /** The same, filtered: what this machine accepts of it. */
  sent: YamlMap;
  leftOut: LeftOut[];
  comparedWithSeal: YamlMap;
  surroundings: string[] | undefined;
  settings: SyncState["settings"];
  /** Names without an address, of settings that were left out for that. */
  unresolved: string[];
  /** What the engine gets: `sent` with this machine's own settings. */
  configYml: string;
  /** Addresses that replace DNS names; undefined if the engine resolves names. */
  names: HostNames | undefined;
  /** Whether the engine gets a control socket. */
  localApi: boolean;
  dataPlane: DataPlane;
  /** What the seal of the organization refuses or, while it is only observed, would refuse. */
  seal?: SyncState["seal"];
  etag: string;
  configVersion: number;
};

/**
 * The files with verified keys and chain; config.yml is not yet filtered. `isNew`: false if the control plane sent nothing, so
 * that these are the files in force.
 */
export type Received = Pick<Next, "files" | "serverYml" | "etag" | "configVersion"> & { isNew: boolean };

/** Throws bad_configuration, naming the file, if it is missing or damaged. */
function readHostKey(directory: string): string {
  const path = join(directory, "host.key");
  const pem = readTextIfThere(path);
  if (pem !== undefined && isHostKey(pem)) return pem;
  throw new AppError("bad_configuration", `${path} is ${pem === undefined ? "missing" : "damaged"}`, {
    hint: `Restore it from a backup of this machine. Else only a new registration helps: \`${brand.executable} doctor\` says how.`,
  });
}

/** Undefined if the files in force came from an older program, which kept no source of them. */
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
    return { files: filesInForce(directory), serverYml, etag: state.etag, configVersion, isNew: false };
  }
  const { answer, etag } = download;
  const received = await checkAnswer(answer, {
    hostKeyPem: readHostKey(directory),
    nodeKeyPem: textOrEmpty(directory, "node.key"),
    slug,
    nodeId: config.node_id,
    now: deps.system.now(),
  });
  const kept = await withPinned(config, received, answer.order_key_proof);
  const nodeConfig = `${JSON.stringify(kept, null, 2)}\n`;
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
  const { isNew, serverYml, etag, configVersion } = received;
  const seal = await sealInForce(directory, organization.slug);
  const files = await underSeal(seal, received.files, () => filesInForce(directory));
  // `next` is the engine of the next start. `version`, below, is the older one of it and of the one that runs: both must accept the
  // file.
  const place = {
    directory,
    slug: organization.slug,
    hostCrt: files["host.crt"],
    machine: await readMachine(directory, deps.system),
    engine: deps.engine.next,
    seal,
  };
  // The networks of files in force were examined when they came.
  if (isNew) refuseNetworks(place, deps.log);
  const { surroundings, settings, comparedWithSeal, ...accepted } = readSent(serverYml, place);
  const { config: sent, leftOut, unresolved } = await withoutUnresolved(accepted.config, deps.system);
  const state = readSyncState(directory);
  const overlay = maskedNetworks(files["host.crt"]);
  const names = await resolveNames(sent, deps.engine.version, state?.host_names ?? {}, deps.system, overlay);
  const localApi = can(deps.engine.version, "local_api");
  const basis = {
    engine: deps.engine.next,
    kernel: place.machine.kernel,
    sent,
    own: readOverrides(directory),
    trial: readTrial(directory),
  };
  const dataPlane = decideDataPlane(basis, state?.data_plane, deps.system.now());
  return {
    files,
    serverYml,
    sent,
    leftOut: [...accepted.leftOut, ...leftOut],
    comparedWithSeal,
    surroundings,
    settings,
    unresolved,
    configYml: finishConfig(sent, directory, { names, localApi, dataPlane }),
    names,
    localApi,
    dataPlane,
    etag,
    configVersion,
  };
}

/**
 * node-config.json as it was sent, but with this machine's own fields and the right order key: that is pinned at registration,
 * and a new one is accepted only if the pinned one has signed it.
 */
async function withPinned(
  pinned: NodeConfig,
  received: NodeConfig,
  proof: string | undefined,
): Promise<NodeConfig> {
  const { order_key: sentKey, ...others } = received;
  const { order_key: pinnedKey } = pinned;
  const own = { mode: pinned.mode, registered_at: pinned.registered_at };
  // No key was pinned at the registration, so no later one can be proven.
  if (pinnedKey === undefined) return { ...others, ...own };
  // Keep the sequence of the fields that were sent: without changes the file stays the same.
  const kept = { ...received, ...own };
  if (sentKey === undefined || sentKey.x === pinnedKey.x || proof === undefined)
    return { ...kept, order_key: pinnedKey };
  const { verifyOrderKey } = await import("../../pki/signed-messages.ts");
  const successor = await verifyOrderKey(proof, pinnedKey);
  return { ...kept, order_key: successor.x === sentKey.x ? successor : pinnedKey };
}
