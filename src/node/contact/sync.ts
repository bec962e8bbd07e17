// Applies the control plane's configuration to an organization's directory as one transaction: download, verify keys and
// chain, test with the engine, switch, reload, watch the engine. On failure it rolls back to the previous generation.

import { existsSync, rmSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { formatTime } from "../../duration.ts";
import { can } from "../../engine-features.ts";
import { AppError, fromSystemError, messageOf } from "../../errors.ts";
import { readTextIfThere, writeNewFile } from "../../files.ts";
import type { Log } from "../../log.ts";
import { NodeConfig, type DownloadAnswer } from "../../protocol.ts";
import type { System } from "../../system.ts";
import type { LeftOut } from "../../left-out.ts";
import type { YamlMap } from "../../yaml.ts";
import { checkAnswer } from "./verify-download.ts";
import { endOfCertificates } from "./certificate-end.ts";
import type { Client, Download } from "./client.ts";
import { changesFirewall, finishConfig, restartNeeds, type HostNames } from "../files/config-file.ts";
import { testConfig, type EngineControl } from "../engine/engine.ts";
import type { EngineInUse } from "../engine/engine-in-use.ts";
import { resolveNames, unresolved } from "../files/host-names.ts";
import { withLock } from "../files/lock.ts";
import { networksIn, subnetsIn } from "../files/networks.ts";
import {
  currentGeneration,
  dropGeneration,
  finishSwitch,
  generationFile,
  generationFiles,
  isApplied,
  markApplied,
  pruneGenerations,
  readSyncState,
  stageGeneration,
  switchGeneration,
  writeSyncState,
} from "../files/generations.ts";
import { openOrganization, type Organization } from "../files/organizations.ts";
import { recheckPresent } from "./recheck.ts";
import { checkedState, readSent, refuseNetworks, warnOfLeftOut } from "../files/sent-config.ts";

export type SyncResult = {
  result: "changed" | "same" | "returned";
  configVersion: number;
  /** Why the previous configuration was restored. */
  reason?: string;
  /** Changed keys that take effect at the engine's next start. */
  restartPending: string[];
  /** Settings of the control plane that this machine does not accept. */
  leftOut: readonly LeftOut[];
};

export type SyncEdge = {
  client: Pick<Client, "downloadConfig">;
  control: EngineControl;
  /** Without a path there is no test. Without a version the oldest one is assumed. */
  engine: EngineInUse;
  /** Names the lock's holder in messages of other runs. */
  command: string;
  log: Log;
  system: Pick<System, "now" | "sleep" | "run" | "lookup" | "attachedNetworks">;
};

/** How long an engine must run with a new configuration before it counts as applied. */
const proofOfLifeMs = 500;

/** Throws for failures of network or control plane. A configuration that fails here is a result, not an error. */
export async function syncOrganization(organization: Organization, edge: SyncEdge): Promise<SyncResult> {
  const { slug, directory } = organization;
  const fetched = await fetchConfig(organization, edge);
  return withLock(directory, edge.command, edge.system, async () => {
    finishSwitch(directory);
    recheckPresent({ directory, slug }, await edge.system.attachedNetworks(), edge.log);
    // Another run applied a newer version meanwhile. Download only once more: a restored server may have lost versions.
    const download = isOlder(fetched, directory) ? await fetchConfig(organization, edge) : fetched;
    const present = {
      organization: openOrganization(join(directory, ".."), slug),
      text: configText(directory),
    };
    const { version, running } = edge.engine;
    const next = await prepare(present.organization, download, version, edge);
    const before = readSyncState(directory)?.left_out ?? [];
    const leftOut = next?.leftOut ?? before;
    warnOfLeftOut(slug, before, leftOut, edge.log);
    if (next === undefined || isPresent(next, directory)) {
      if (!isApplied(directory)) {
        // A restart, because the changes since the engine's last reload are unknown.
        await reloadOrRestart(edge.control, true);
        markApplied(directory);
      }
      const configVersion = noteState(directory, download, next);
      return { result: "same", configVersion, restartPending: [], leftOut };
    }
    return apply(present.organization, next, { text: present.text, version: running }, edge);
  });
}

export async function fetchConfig(
  { slug, directory, config }: Organization,
  { client }: Pick<SyncEdge, "client">,
): Promise<Download> {
  // Without a complete set of files, download all of them: the ETag covers the whole set.
  const etag = isComplete(directory) ? readSyncState(directory)?.etag || undefined : undefined;
  return client.downloadConfig(slug, config.node_id, etag);
}

function isOlder(download: Download, directory: string): boolean {
  const version = download.changed ? download.answer.config_version : download.configVersion;
  return version !== undefined && version < (readSyncState(directory)?.config_version ?? 0);
}

type Next = {
  files: DownloadAnswer["files"];
  serverYml: string;
  /** The filtered configuration, and what was left out of it. */
  sent: YamlMap;
  leftOut: LeftOut[];
  surroundings: string[] | undefined;
  configYml: string;
  /** Addresses that replace DNS names; undefined if the engine resolves names. */
  names: HostNames | undefined;
  etag: string;
  configVersion: number;
};

/** The files of the next generation, checked; undefined where the present one came from an older program without its source. */
export async function prepare(
  organization: Organization,
  download: Download,
  version: string | undefined,
  edge: SyncEdge,
): Promise<Next | undefined> {
  const { directory, slug, config } = organization;
  const state = readSyncState(directory);
  const finish = async (serverYml: string, hostCrt: string) => {
    const attached = await edge.system.attachedNetworks();
    const { config, ...checked } = readSent(serverYml, { directory, slug, hostCrt, attached });
    const names = await resolveNames(config, version, state?.host_names ?? {}, edge.system);
    return { serverYml, sent: config, ...checked, configYml: finishConfig(config, directory, names), names };
  };
  if (!download.changed) {
    const serverYml = readTextIfThere(generationFile(directory, "server.yml"));
    if (serverYml === undefined || state === undefined) return undefined;
    const files = presentFiles(directory);
    return {
      files,
      ...(await finish(serverYml, files["host.crt"])),
      etag: state.etag,
      configVersion: download.configVersion ?? state.config_version,
    };
  }
  const { answer, etag } = download;
  const received = await checkAnswer(answer, {
    hostKeyPem: readTextIfThere(join(directory, "host.key")) ?? "",
    nodeKeyPem: readTextIfThere(join(directory, "node.key")) ?? "",
    slug,
    nodeId: config.node_id,
    now: edge.system.now(),
  });
  refuseNetworks({ directory, slug, hostCrt: answer.files["host.crt"] });
  const pinned = await keepOrderKey(config, received, answer.order_key_proof);
  const nodeConfig = `${JSON.stringify(pinned, null, 2)}\n`;
  return {
    files: { ...answer.files, "node-config.json": nodeConfig },
    ...(await finish(answer.files["config.yml"], answer.files["host.crt"])),
    etag,
    configVersion: answer.config_version,
  };
}

/** The order key is pinned at registration. A new one is accepted only if the pinned one has signed it. */
async function keepOrderKey(
  pinned: NodeConfig,
  received: NodeConfig,
  proof: string | undefined,
): Promise<NodeConfig> {
  const { order_key: offered, ...rest } = received;
  const { order_key: known } = pinned;
  const kept = { ...rest, mode: pinned.mode, registered_at: pinned.registered_at };
  if (known === undefined) return kept;
  if (offered === undefined || offered.x === known.x || proof === undefined)
    return { ...kept, order_key: known };
  const { verifyOrderKey } = await import("../../pki/tokens.ts");
  const successor = await verifyOrderKey(proof, known);
  return { ...kept, order_key: successor.x === offered.x ? successor : known };
}

async function apply(
  organization: Organization,
  next: Next,
  present: { text: string; version: string | undefined },
  edge: SyncEdge,
): Promise<SyncResult> {
  const { directory } = organization;
  const previous = currentGeneration(directory);
  const now = formatTime(edge.system.now());
  const before = readSyncState(directory);
  const certificatesChangedAt = changesCertificates(directory, next) ? now : before?.certificates_changed_at;
  const state = {
    etag: next.etag,
    config_version: next.configVersion,
    applied_at: now,
    certificate_not_after: endOfCertificates(next.files["host.crt"]),
    ...(certificatesChangedAt === undefined ? {} : { certificates_changed_at: certificatesChangedAt }),
    ...(next.names === undefined ? {} : { host_names: next.names }),
    ...checkedState(next),
  };
  const files = { ...next.files, "config.yml": next.configYml };
  // First remove what a killed run left.
  pruneGenerations(directory);
  const name = stageGeneration(directory, files, state, next.serverYml);
  const failed: Omit<SyncResult, "reason"> = {
    result: "returned",
    configVersion: before?.config_version ?? 0,
    restartPending: [],
    leftOut: next.leftOut,
  };
  try {
    const { path } = edge.engine;
    if (path !== undefined) await testStaged(directory, name, next, path, edge.system);
  } catch (error) {
    dropGeneration(directory, name);
    // Only an error of the engine itself proves that the configuration is bad.
    if (!(error instanceof AppError) || error.code !== "bad_configuration") {
      throw fromSystemError(`try out the new configuration of ${organization.slug}`, error);
    }
    return { ...failed, reason: error.message };
  }
  const { restart, later } = changeNeeds(directory, present, next);
  let reached = false;
  try {
    switchGeneration(directory, name);
    reached = true;
    await reloadOrRestart(edge.control, restart);
  } catch (error) {
    edge.log.warn("The new configuration failed; rolling back to the previous one", {
      reason: messageOf(error),
    });
    if (previous !== undefined) await rollBack(directory, previous, name, { restart, reached }, edge);
    if (!reached) throw error;
    return { ...failed, reason: messageOf(error) };
  }
  markApplied(directory);
  pruneGenerations(directory);
  for (const each of unresolved(next.names)) {
    edge.log.warn("Cannot resolve the public address of a node; config.yml leaves it out", { name: each });
  }
  const { configVersion, leftOut } = next;
  return { result: "changed", configVersion, restartPending: restart ? [] : later, leftOut };
}

/** Whether the running engine needs a restart for the next configuration. */
export function changeNeeds(
  directory: string,
  present: { text: string; version: string | undefined },
  next: Pick<Next, "configYml" | "files">,
): { restart: boolean; later: string[] } {
  const { now, later } = restartNeeds(present.text, next.configYml, present.version);
  const hostCrt = readTextIfThere(join(directory, "host.crt")) ?? "";
  const nextCrt = next.files["host.crt"];
  const takesSubnets =
    can(present.version, "reload_subnets") ||
    (can(present.version, "replace_certificate") && changesFirewall(present.text, next.configYml));
  const restart =
    now.length > 0 ||
    // Every engine applies changes of its own networks only at its start.
    !Bun.deepEquals(networksIn(hostCrt), networksIn(nextCrt)) ||
    (!takesSubnets && !Bun.deepEquals(subnetsIn(hostCrt), subnetsIn(nextCrt)));
  return { restart, later };
}

/** Runs the engine's test on the staged files. */
async function testStaged(
  directory: string,
  name: string,
  { sent, names }: Next,
  engine: string,
  system: SyncEdge["system"],
): Promise<void> {
  const staged = join(directory, "generations", name);
  const path = join(staged, "test.yml");
  try {
    writeNewFile(path, finishConfig(sent, directory, names, staged), 0o644);
    await testConfig(engine, path, system);
  } finally {
    rmSync(path, { force: true });
  }
}

async function reloadOrRestart(control: EngineControl, restart: boolean): Promise<void> {
  if (!(await control.running())) return;
  await (restart ? control.restart() : control.reload());
  await control.alive(proofOfLifeMs);
}

async function rollBack(
  directory: string,
  previous: string,
  failed: string,
  { restart, reached }: { restart: boolean; reached: boolean },
  edge: SyncEdge,
): Promise<void> {
  switchGeneration(directory, previous);
  dropGeneration(directory, failed);
  markApplied(directory);
  // Before the switch, the engine was not told to reload.
  if (!reached) return;
  try {
    const lives = await edge.control.running();
    await (restart || !lives ? edge.control.restart() : edge.control.reload());
  } catch (error) {
    throw new AppError(
      "engine_failed",
      `The overlay engine does not run with the previous configuration either: ${messageOf(error)}`,
      { cause: error },
    );
  }
}

/**
 * Whether all files already have this content, apart from the version in node-config.json. server.yml is compared too,
 * because overrides.yml can hide its changes in config.yml, and the ETag stands for server.yml.
 */
function isPresent(next: Next, directory: string): boolean {
  if (readSyncState(directory) === undefined) return false;
  if (readTextIfThere(generationFile(directory, "server.yml")) !== next.serverYml) return false;
  const wanted: Partial<Record<string, string>> = { ...next.files, "config.yml": next.configYml };
  return generationFiles.every((name) => {
    const present = readTextIfThere(join(directory, name));
    if (name !== "node-config.json" || present === undefined) return present === wanted[name];
    return Bun.deepEquals(withoutVersion(present), withoutVersion(wanted[name] ?? ""));
  });
}

function changesCertificates(directory: string, { files }: Pick<Next, "files">): boolean {
  return (["ca.crt", "host.crt"] as const).some(
    (name) => readTextIfThere(join(directory, name)) !== files[name],
  );
}

function withoutVersion(nodeConfig: string): object {
  const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(), NodeConfig), nodeConfig);
  return parsed.success ? { ...parsed.output, config_version: 0 } : {};
}

function isComplete(directory: string): boolean {
  const wanted = generationFiles.filter(
    (name) => name !== "node.crt" || existsSync(join(directory, "node.key")),
  );
  return wanted.every((name) => readTextIfThere(join(directory, name)) !== undefined);
}

/** Without changed files, the reported version and the ETag still change. */
function noteState(directory: string, download: Download, next: Next | undefined): number {
  const state = readSyncState(directory);
  const configVersion = download.changed
    ? download.answer.config_version
    : (download.configVersion ?? state?.config_version ?? 0);
  const etag = download.changed ? download.etag : (state?.etag ?? "");
  if (state !== undefined) {
    const checked = next === undefined ? {} : checkedState(next);
    const moved = { ...state, config_version: configVersion, etag, ...checked };
    if (!Bun.deepEquals(moved, state)) writeSyncState(directory, moved);
  }
  return configVersion;
}

function presentFiles(directory: string): DownloadAnswer["files"] {
  const text = (file: string) => readTextIfThere(join(directory, file));
  const nodeCrt = text("node.crt");
  return {
    "config.yml": text("config.yml") ?? "",
    "ca.crt": text("ca.crt") ?? "",
    "host.crt": text("host.crt") ?? "",
    "node-config.json": text("node-config.json") ?? "",
    ...(nodeCrt === undefined ? {} : { "node.crt": nodeCrt }),
  };
}

function configText(directory: string): string {
  return readTextIfThere(join(directory, "config.yml")) ?? "";
}
