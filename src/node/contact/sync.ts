// Applies the control plane's configuration to an organization's directory as one transaction: download, verify keys and
// chain, test with the engine, switch, reload, watch the engine. On failure it rolls back to the previous generation.

import { given } from "../../base/given.ts";
import { join } from "node:path";
import * as v from "valibot";
import { formatTime } from "../../base/quantities.ts";
import { can } from "../../engine/features.ts";
import { AppError, fromSystemError, messageOf } from "../../base/errors.ts";
import { readTextIfThere } from "../../base/files.ts";
import { makeSocketDirectory } from "../../platform/systemd/control-socket.ts";
import { NodeConfig } from "../../protocol/stored.ts";
import { wholeConfiguration, type LeftOut } from "../../engine/left-out.ts";
import { endOfCertificates } from "../files/certificate-end.ts";
import { applyCertificates } from "./certificates-alone.ts";
import type { Download } from "./requests/client.ts";
import { changesFirewall, restartNeeds } from "../files/config/needs-restart.ts";
import { readWhole } from "../files/config/read-yaml.ts";
import { finishConfig } from "../files/config/config-file.ts";
import { ownSwitches } from "../files/config/data-plane.ts";
import type { EngineInUse } from "../engine/engine-in-use.ts";
import { unresolved } from "../files/granted/host-names.ts";
import { takeSeals, type TakenSeal } from "../files/held-seal.ts";
import { withLock } from "../files/lock.ts";
import { prefixedAddressesIn, subnetsIn } from "../files/granted/networks.ts";
import {
  currentGeneration,
  dropGeneration,
  finishSwitch,
  generationFile,
  generationFiles,
  isApplied,
  lastApplied,
  markApplied,
  pruneGenerations,
  readSyncState,
  stageGeneration,
  switchGeneration,
  writeSyncState,
  type SyncState,
} from "../files/generations.ts";
import { openOrganization, type Organization } from "../files/organizations.ts";
import {
  completeNext,
  fetchConfig,
  verifyFiles,
  type Next,
  type Received,
  type SyncDeps,
} from "./next-config.ts";
import { faultInOverrides, type TestOverrides } from "./overrides-fault.ts";
import { reloadOrRestart, rollBack, testText } from "./engine-switch.ts";
import { recheckPresent } from "./recheck-config.ts";
import { applyRevocations, applySentRevocations } from "./revocations-alone.ts";
import { checkedState, warnOfLeftOut } from "../files/config/sent-config.ts";
import { sha256Hex } from "../../base/sha256.ts";

export type SyncResult = {
  result: "changed" | "same" | "returned";
  configVersion: number;
  /** Why the previous configuration was restored. */
  reason?: string;
  /** Changed keys that take effect at the engine's next start. */
  restartPending: string[];
  /** Settings of the control plane that this machine does not accept. */
  leftOut: readonly LeftOut[];
  /** Whether the running engine was given the configuration that it refused. */
  reached?: boolean;
};

/** Throws for failures of network or control plane. A configuration that fails here is a result, not an error. */
export async function syncOrganization(organization: Organization, deps: SyncDeps): Promise<SyncResult> {
  const { slug, directory } = organization;
  const fetched = await fetchConfig(organization, deps);
  return withLock(directory, deps.command, deps.system, async () => {
    finishSwitch(directory);
    // Written whatever engine runs: the unit of the next one gets this directory at its start.
    makeSocketDirectory(directory);
    const former = await recheckPresent({ directory, slug }, deps);
    // Another run applied a newer version meanwhile. Download only once more: a restored server may have lost versions.
    const download = isOlder(fetched, directory) ? await fetchConfig(organization, deps) : fetched;
    const present = {
      organization: openOrganization(join(directory, ".."), slug),
      text: former ?? configText(directory),
    };
    const next = await prepareOrRevoke(present.organization, download, deps);
    const before = (readSyncState(directory)?.left_out ?? []).filter(({ key }) => key !== wholeConfiguration);
    const leftOut = next?.leftOut ?? before;
    warnOfLeftOut(slug, before, leftOut, deps.log);
    if (next === undefined || isPresent(next, directory)) {
      const failed = isApplied(directory)
        ? undefined
        : await applyPresent({ slug, directory }, next, former, deps);
      if (failed !== undefined) return failed;
      const configVersion = noteState(directory, download, next);
      return { result: "same", configVersion, restartPending: [], leftOut };
    }
    return applyOrRevoke(
      present.organization,
      next,
      { text: present.text, version: deps.engine.running },
      deps,
    );
  });
}

function isOlder(download: Download, directory: string): boolean {
  const version = download.changed ? download.answer.config_version : download.configVersion;
  return version !== undefined && version < (readSyncState(directory)?.config_version ?? 0);
}

/**
 * Throws where this machine cannot take the configuration as a whole. Whatever it refuses, even the certificates, the
 * revocations that came with it are applied before.
 */
async function prepareOrRevoke(
  organization: Organization,
  download: Download,
  deps: SyncDeps,
): Promise<Next | undefined> {
  const { compareWithSeal, tellUnrendered } = await import("./observe-seal.ts");
  let received: Received | undefined;
  let taken: TakenSeal | undefined;
  try {
    received = await verifyFiles(organization, download, deps);
    if (received === undefined) return undefined;
    const sent = download.changed ? download.answer.seals : undefined;
    // Before anything is rendered. After a kill in between, its hash differs from the one in sync.json.
    taken = takeSeals(sent, organization.directory, deps.system.now());
    const next = await completeNext(organization, received, deps);
    const seal = compareWithSeal(organization, taken, { ...received, told: next.told }, deps);
    return { ...next, ...given({ seal }) };
  } catch (error) {
    const held = taken ?? takeSeals(undefined, organization.directory, deps.system.now());
    tellUnrendered(organization, held, error);
    const sent = download.changed ? download.answer.files["config.yml"] : received?.serverYml;
    const revocations = sent === undefined ? "" : await applySentRevocations(organization, sent, deps);
    if (received !== undefined) await applyCertificates(organization, received.files, deps);
    if (!(error instanceof AppError)) throw error;
    throw new AppError(error.code, `${error.message}${revocations}`, { ...error.details, cause: error });
  }
}

/**
 * config.yml was rechecked, or a kill came between switch and reload. A refused configuration is rolled back as if there had
 * been no kill. `former`: the text that the engine runs with.
 */
async function applyPresent(
  { slug, directory }: { slug: string; directory: string },
  next: Next | undefined,
  former: string | undefined,
  { control, log, engine }: SyncDeps,
): Promise<SyncResult | undefined> {
  try {
    // Without that text the changes since the engine's last reload are unknown. A restart drops all tunnels.
    const isReload =
      former !== undefined &&
      next !== undefined &&
      !changeNeeds(directory, { text: former, version: engine.running }, next).restart;
    await reloadOrRestart(control, { restart: !isReload });
    markApplied(directory);
    return undefined;
  } catch (error) {
    const [failed, previous] = [currentGeneration(directory), lastApplied(directory)];
    if (failed === undefined || previous === undefined || next === undefined) throw error;
    await rollBack(directory, previous, failed, { restart: true, reached: true }, control);
    const revocations = await applyRevocations({ directory, slug }, next.sent, { control, log });
    return { ...returned(directory, next), reason: `${messageOf(error)}${revocations}` };
  }
}

/** Applies a configuration. If it is refused, at least its revocations and certificates are applied. */
async function applyOrRevoke(
  organization: Organization,
  next: Next,
  present: { text: string; version: string | undefined },
  deps: SyncDeps,
): Promise<SyncResult> {
  const { directory } = organization;
  const digest = digestOf(next, deps.engine);
  const known = deps.isAsked === true ? undefined : recentRefusal(directory, digest, deps.system.now());
  if (known !== undefined) {
    const revocations = await applyRevocations(organization, next.sent, deps);
    const reason = `${known.reason}${revocations}`;
    noteRefused(directory, reason, known);
    return { ...returned(directory, next), reason };
  }
  let result: SyncResult;
  try {
    result = await apply(organization, next, present, deps);
  } catch (error) {
    await applyRevocations(organization, next.sent, deps);
    throw error;
  }
  if (result.reason === undefined) return result;
  const revocations = await applyRevocations(organization, next.sent, deps);
  const certificates = await applyCertificates(organization, next.files, deps);
  const reason = `${result.reason}${revocations}${certificates.text}`;
  // Only a refusal by the running engine is kept: the engine's test disturbs no tunnel.
  const isByRunning = result.reached === true || certificates.reached;
  const at = formatTime(deps.system.now());
  noteRefused(directory, reason, isByRunning ? { digest, reason: result.reason, at } : undefined);
  return { ...result, reason };
}

/** The refusal of this configuration by the running engine, if it is younger than the pause. */
function recentRefusal(directory: string, digest: string, now: number): SyncState["refused"] {
  const refused = readSyncState(directory)?.refused;
  const age = now - Date.parse(refused?.at ?? "");
  return refused?.digest === digest && age >= 0 && age < refusedMs ? refused : undefined;
}

/** Stores a refusal for `status` and `doctor`, until a configuration is applied or the control plane sends the present one again. */
function noteRefused(directory: string, reason: string, refused: SyncState["refused"]): void {
  const state = readSyncState(directory);
  if (state === undefined) return;
  const others = (state.left_out ?? []).filter(({ key }) => key !== wholeConfiguration);
  const entry = { key: wholeConfiguration, reason: reason.slice(0, 400) };
  const noted = { ...state, left_out: [entry, ...others], refused };
  if (!Bun.deepEquals(noted, state)) writeSyncState(directory, noted);
}

/** Pause before the running engine is again given a configuration that it refused: each trial may drop all tunnels. */
const refusedMs = 60 * 60_000;

function digestOf({ files, configYml }: Next, { path, version }: EngineInUse): string {
  const { "node-config.json": _, ...rest } = files;
  const what = JSON.stringify([rest, configYml, path, version]);
  return sha256Hex(what);
}

function returned(directory: string, { leftOut }: Next): Omit<SyncResult, "reason"> {
  const configVersion = readSyncState(directory)?.config_version ?? 0;
  return { result: "returned", configVersion, restartPending: [], leftOut };
}

async function apply(
  organization: Organization,
  next: Next,
  present: { text: string; version: string | undefined },
  deps: SyncDeps,
): Promise<SyncResult> {
  const { directory } = organization;
  const previous = currentGeneration(directory);
  const now = formatTime(deps.system.now());
  const before = readSyncState(directory);
  const certificatesChangedAt = changesCertificates(directory, next) ? now : before?.certificates_changed_at;
  const state = {
    etag: next.etag,
    config_version: next.configVersion,
    applied_at: now,
    certificate_not_after: endOfCertificates(next.files["host.crt"]),
    ...given({ certificates_changed_at: certificatesChangedAt, host_names: next.names }),
    ...checkedState(next),
  };
  const files = { ...next.files, "config.yml": next.configYml };
  // First remove what a killed run left.
  pruneGenerations(directory);
  const name = stageGeneration(directory, files, state, next.serverYml);
  const failed = returned(directory, next);
  const refusal = await tryStaged(organization, name, next, deps);
  if (refusal !== undefined) return { ...failed, reason: refusal };
  const { restart, later } = changeNeeds(directory, present, next);
  let reached = false;
  try {
    switchGeneration(directory, name);
    reached = true;
    await reloadOrRestart(deps.control, { restart });
  } catch (error) {
    deps.log.warn("The new configuration failed; rolling back to the previous one", {
      reason: messageOf(error),
    });
    if (previous !== undefined) await rollBack(directory, previous, name, { restart, reached }, deps.control);
    if (!reached) throw error;
    return { ...failed, reason: messageOf(error), reached };
  }
  markApplied(directory);
  pruneGenerations(directory);
  for (const each of unresolved(next.names)) {
    deps.log.warn("Cannot resolve the public address of a node; config.yml leaves it out", { name: each });
  }
  const { configVersion, leftOut } = next;
  return { result: "changed", configVersion, restartPending: restart ? [] : later, leftOut };
}

/** Whether the running engine needs a restart for the next configuration. */
export function changeNeeds(
  directory: string,
  present: { text: string; version: string | undefined },
  next: Pick<Next, "configYml" | "files" | "dataPlane">,
): { restart: boolean; later: string[] } {
  const waiting = ownSwitches(next.dataPlane);
  const { now, later } = restartNeeds(present.text, next.configYml, present.version, waiting);
  const hostCrt = readTextIfThere(join(directory, "host.crt")) ?? "";
  const nextCrt = next.files["host.crt"];
  const takesSubnets =
    can(present.version, "reload_subnets") ||
    (can(present.version, "replace_certificate") && changesFirewall(present.text, next.configYml));
  const restart =
    now.length > 0 ||
    // Every engine applies changes of its own networks only at its start.
    !Bun.deepEquals(prefixedAddressesIn(hostCrt), prefixedAddressesIn(nextCrt)) ||
    (!takesSubnets && !Bun.deepEquals(subnetsIn(hostCrt), subnetsIn(nextCrt)));
  return { restart, later };
}

/** Why the engine refuses the staged generation, which is then removed; undefined if it takes it. */
async function tryStaged(
  { slug, directory }: Organization,
  name: string,
  next: Next,
  { engine, system }: SyncDeps,
): Promise<string | undefined> {
  try {
    if (engine.path !== undefined) await testStaged(directory, name, next, engine.path, system);
    return undefined;
  } catch (error) {
    dropGeneration(directory, name);
    // Only an error of the engine itself proves that the configuration is bad.
    if (error instanceof AppError && error.code === "bad_configuration") return error.message;
    throw fromSystemError(`try out the new configuration of ${slug}`, error);
  }
}

/** Runs the engine's test on the staged files. */
async function testStaged(
  directory: string,
  name: string,
  { sent, names, localApi, dataPlane }: Next,
  engine: string,
  system: SyncDeps["system"],
): Promise<void> {
  const staged = join(directory, "generations", name);
  const test: TestOverrides = async (own = {}) => {
    const text = finishConfig(sent, directory, { names, localApi, dataPlane, filesIn: staged, ...own });
    await testText(engine, staged, text, system, own.name);
  };
  await test().catch(async (error: unknown) => {
    throw (await faultInOverrides(directory, test)) ?? error;
  });
}

/**
 * Whether all files already have this content, apart from the version in node-config.json. server.yml is compared too,
 * because overrides.yml can hide its changes in config.yml, and the ETag stands for server.yml.
 */
export function isPresent(next: Next, directory: string): boolean {
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

/** Without changed files, the reported version and the ETag still change. */
function noteState(directory: string, download: Download, next: Next | undefined): number {
  const state = readSyncState(directory);
  const configVersion = download.changed
    ? download.answer.config_version
    : (download.configVersion ?? state?.config_version ?? 0);
  const etag = download.changed ? download.etag : (state?.etag ?? "");
  if (state !== undefined) {
    const checked = next === undefined ? {} : checkedState(next);
    const moved = { ...state, config_version: configVersion, etag, ...checked, refused: undefined };
    if (!Bun.deepEquals(moved, state)) writeSyncState(directory, moved);
  }
  return configVersion;
}

/** Empty if it is damaged: the engine needs a restart with whatever replaces it. */
function configText(directory: string): string {
  return readWhole(join(directory, "config.yml")) ?? "";
}
