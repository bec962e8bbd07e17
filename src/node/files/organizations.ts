// An organization's directory: what lies where, how it appears whole, and how one rename swaps the five files that
// the control plane sends (`current` says which generation of them counts). Knows no network.

import { chmodSync, existsSync, lstatSync, mkdirSync, readdirSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { brand } from "../../brand.ts";
import { AppError, fromSystemError, messageOf, systemErrorCode } from "../../errors.ts";
import { quoteWord } from "../../plan.ts";
import {
  hasMode,
  makeDirectory,
  readTextIfThere,
  removeTree,
  syncDirectory,
  writeFileAtomic,
  writeNewFile,
} from "../../files.ts";
import { rename } from "../../platform/file-system.ts";
import { generationPointer } from "../../platform/generation-pointer.ts";
import {
  Credentials,
  NodeConfig,
  RevokedNote,
  Slug,
  maxEtagLength,
  type ConfigFiles,
} from "../../protocol.ts";
import { listOrganizations } from "./list-organizations.ts";

export type Organization = { slug: string; directory: string; config: NodeConfig };

const time = v.pipe(v.string(), v.maxLength(64));
const address = v.pipe(v.string(), v.maxLength(64));
const hostName = v.pipe(v.string(), v.maxLength(253));

/** What the last change of configuration left for the next request. */
export const SyncState = v.object({
  etag: v.pipe(v.string(), v.maxLength(maxEtagLength)),
  config_version: v.number(),
  applied_at: time,
  /** For those who only show it. */
  certificate_not_after: v.optional(time),
  /** When certificates or CAs of the overlay last changed; unset since the registration. */
  certificates_changed_at: v.optional(time),
  /** Names that config.yml holds as addresses, and which (host-names.ts). */
  host_names: v.optional(
    v.pipe(v.record(hostName, v.pipe(v.array(address), v.maxLength(10_000))), v.maxEntries(200_000)),
  ),
  /** By which rules config.yml was checked (sent-config.ts), and what they left out. */
  rules: v.optional(v.number()),
  left_out: v.optional(
    v.pipe(
      v.array(
        v.object({
          key: v.pipe(v.string(), v.maxLength(1000)),
          reason: v.pipe(v.string(), v.maxLength(1000)),
        }),
      ),
      v.maxLength(10_000),
    ),
  ),
});
export type SyncState = v.InferOutput<typeof SyncState>;

/** Raised with every change of what sent-config.ts leaves out: a configuration in force is then checked anew. */
export const rulesVersion = 1;

export function isChecked({ rules }: SyncState): boolean {
  return rules === rulesVersion;
}

/** The files of a generation, in the order in which they are written. All are public: 0644. */
export const generationFiles = ["ca.crt", "host.crt", "node.crt", "config.yml", "node-config.json"] as const;
const keptGenerations = 3;
export const takenUpMark = "taken-up";
const restoredNote = "auth-restored.json";

function isThere(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false }) !== undefined;
}

/** Throws not_registered where there is no such organization here, bad_configuration where its file is damaged. */
export function openOrganization(configRoot: string, slug: string): Organization {
  const directory = join(configRoot, slug);
  const path = join(directory, "node-config.json");
  const config = readNodeConfig(path, slug);
  if (config === undefined && isThere(path)) throw damaged(slug, `${path} leads to no file`);
  if (config === undefined) {
    throw new AppError("not_registered", `This machine is not registered with the organization "${slug}"`, {
      hint: `Register it with \`${brand.executable} register --org-slug ${quoteWord(slug)} …\`.`,
    });
  }
  return { slug, directory, config };
}

function readNodeConfig(path: string, slug: string): NodeConfig | undefined {
  let config: NodeConfig | undefined;
  try {
    config = readJsonFile(path, NodeConfig);
  } catch (error) {
    if (error instanceof AppError && error.code === "bad_configuration")
      throw damaged(slug, error.message, error);
    throw error;
  }
  if (config === undefined || config.org_slug === slug) return config;
  throw damaged(slug, `${path} is of the organization "${config.org_slug}"`);
}

function damaged(slug: string, message: string, cause?: unknown): AppError {
  return new AppError("bad_configuration", message, {
    cause,
    hint: `Write it anew with \`${brand.executable} register --force --org-slug ${quoteWord(slug)} …\`, or remove it with \`${brand.executable} unregister --org-slug ${quoteWord(slug)}\`.`,
  });
}

/**
 * The organizations that a command means: one by name, else all. Throws not_registered where that is none. Of several,
 * one that is damaged is said and left out.
 */
export function chooseOrganizations(
  configRoot: string,
  slug: string | undefined,
  say: (text: string) => void,
): Organization[] {
  return chooseEach(configRoot, slug).flatMap(({ slug: each, open }) => {
    try {
      return [open()];
    } catch (error) {
      if (slug !== undefined || listOrganizations(configRoot).length < 2) throw error;
      say(`${each}: ${messageOf(error)}`);
      return [];
    }
  });
}

/** No path: it names a directory. */
export function parseSlug(text: string): string {
  const parsed = v.safeParse(Slug, text);
  if (parsed.success) return parsed.output;
  throw new AppError("usage", `--org-slug "${text}": ${parsed.issues[0].message}`);
}

export type Chosen = { slug: string; open(): Organization };

/** The same for whoever opens each by itself: of several, one that is damaged does not keep a command from the others. */
export function chooseEach(configRoot: string, slug: string | undefined): Chosen[] {
  const slugs = slug === undefined ? listOrganizations(configRoot) : [parseSlug(slug)];
  if (slugs.length === 0) {
    throw new AppError("not_registered", `No organization is registered below ${configRoot}`, {
      hint: `Register this machine with \`${brand.executable} register\`.`,
    });
  }
  const [first = ""] = slugs;
  if (slugs.length > 1)
    return slugs.map((each) => ({ slug: each, open: () => openOrganization(configRoot, each) }));
  const only = openOrganization(configRoot, first);
  return [{ slug: first, open: () => only }];
}

/** credentials.json of the specification; throws credentials_missing. */
export function readCredentials(directory: string): Credentials {
  const path = join(directory, "credentials.json");
  const credentials = readJsonFile(path, Credentials);
  if (credentials === undefined) {
    throw new AppError("credentials_missing", `There is no ${path}`, {
      hint: `Register again with \`${brand.executable} register --force\`.`,
    });
  }
  return credentials;
}

/** The PEM of the control plane's own TLS authority, where one was pinned at registration. */
export function readApiCa(directory: string): string | undefined {
  return readTextIfThere(join(directory, "api-ca.crt"));
}

export function revokedNotePath(directory: string): string {
  return join(directory, "auth-revoked.json");
}

/**
 * Stands in for a note that cannot be read: its existence alone keeps the services from starting, and no damage may
 * keep a signed order from being obeyed.
 */
export const damagedNote: RevokedNote = Object.freeze({
  revoked_at: "",
  reason: `auth-revoked.json is damaged, so the overlay stays stopped until it is restored or \`${brand.executable} register --force\` is run`,
  node_id: 0,
});

/** `damagedNote` where there is something else in its place. */
export function readRevokedNote(directory: string): RevokedNote | undefined {
  return readNote(revokedNotePath(directory));
}

function readNote(path: string): RevokedNote | undefined {
  try {
    return readJsonFile(path, RevokedNote);
  } catch (error) {
    if (error instanceof AppError && error.code === "bad_configuration") return damagedNote;
    throw error;
  }
}

/** Undefined also where it is damaged: the next synchronization writes it anew. */
export function readSyncState(directory: string): SyncState | undefined {
  return readSound(generationFile(directory, "sync.json"), SyncState);
}

function readFile(path: string): string | undefined {
  try {
    return readTextIfThere(path);
  } catch (error) {
    if (!(error instanceof AppError) || systemErrorCode(error.details.cause) !== "EISDIR") throw error;
    throw new AppError("bad_configuration", `${path} is damaged: it is a directory`, { cause: error });
  }
}

/** Undefined if there is no such file; bad_configuration, naming it, if it does not hold what it should. */
export function readJsonFile<T>(path: string, schema: v.GenericSchema<unknown, T>): T | undefined {
  const text = readFile(path);
  if (text === undefined) return undefined;
  const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(), schema), text);
  if (parsed.success) return parsed.output;
  throw new AppError("bad_configuration", `${path} is damaged: ${parsed.issues[0].message}`);
}

/** The same, where damage counts as if there were no file: for what may be mended. */
export function readSound<T>(path: string, schema: v.GenericSchema<unknown, T>): T | undefined {
  try {
    return readJsonFile(path, schema);
  } catch {
    return undefined;
  }
}

/**
 * Writes a new generation beside the present one and syncs it; nothing uses it yet. Returns its name. `serverYml` is
 * config.yml as the control plane sent it, from which a change of overrides.yml alone is applied.
 */
export function stageGeneration(
  directory: string,
  files: ConfigFiles,
  state: SyncState,
  serverYml: string,
): string {
  const root = join(directory, "generations");
  const name = String(Math.max(0, ...generations(directory)) + 1);
  const target = join(root, name);
  try {
    makeDirectory(root, 0o755);
    mkdirSync(target);
    openToAll(root, target);
    for (const file of generationFiles) {
      const content = files[file];
      if (content !== undefined) writeNewFile(join(target, file), content, 0o644);
    }
    writeNewFile(join(target, "server.yml"), serverYml, 0o644);
    writeNewFile(join(target, "sync.json"), `${JSON.stringify(state)}\n`, 0o644);
    syncDirectory(target);
    syncDirectory(root);
    return name;
  } catch (error) {
    removeTree(target);
    throw fromSystemError(`write a configuration below ${root}`, error);
  }
}

/** The swap: one rename makes `name` the generation that counts. */
export function switchGeneration(directory: string, name: string): void {
  try {
    generationPointer.set(directory, name);
    generationPointer.follow(directory, generationFiles);
  } catch (error) {
    throw fromSystemError(`switch ${directory} to its new configuration`, error);
  }
}

/** What holds public files, whatever the umask or an older program has made of it. */
function openToAll(...directories: string[]): void {
  for (const each of directories) if (existsSync(each) && !hasMode(each, 0o755)) chmodSync(each, 0o755);
}

/** What a kill has left undone of a swap. */
export function finishSwitch(directory: string): void {
  try {
    openToAll(join(directory, "generations"), generationPointer.present(directory));
    generationPointer.follow(directory, generationFiles);
  } catch (error) {
    throw fromSystemError(`finish the switch of ${directory}`, error);
  }
}

export function currentGeneration(directory: string): string | undefined {
  try {
    return generationPointer.name(directory);
  } catch (error) {
    throw fromSystemError(`read ${directory}/current`, error);
  }
}

/** A file of the present generation that has no name outside it. */
export function generationFile(directory: string, file: string): string {
  return join(generationPointer.present(directory), file);
}

/** Puts another state beside the present generation: its version, or its etag, has moved on without a new file. */
export function writeSyncState(directory: string, state: SyncState): void {
  writeFileAtomic(generationFile(directory, "sync.json"), `${JSON.stringify(state)}\n`, 0o644);
}

/** Whether the present generation is in force: a kill between the swap and the reload leaves that undone. */
export function isTakenUp(directory: string): boolean {
  return existsSync(generationFile(directory, takenUpMark));
}

export function markTakenUp(directory: string): void {
  if (!isTakenUp(directory)) writeFileAtomic(generationFile(directory, takenUpMark), "", 0o644);
}

/** Removes a generation that nothing points to. */
export function dropGeneration(directory: string, name: string): void {
  removeTree(join(directory, "generations", name));
}

/** Keeps the present generation and the two before it; what a kill left behind, newer than the present, goes too. */
export function pruneGenerations(directory: string): void {
  const current = Number(currentGeneration(directory) ?? 0);
  const kept = generations(directory)
    .filter((name) => name <= current)
    .slice(-keptGenerations);
  for (const name of generations(directory)) {
    if (!kept.includes(name)) dropGeneration(directory, String(name));
  }
}

function generations(directory: string): number[] {
  try {
    return readdirSync(join(directory, "generations"))
      .filter((name) => /^\d+$/.test(name))
      .map(Number)
      .sort((a, b) => a - b);
  } catch (error) {
    if (systemErrorCode(error) === "ENOENT") return [];
    throw error;
  }
}

/** Marks an organization as stopped by an order; the services do not start while the note is there. */
export function writeRevokedNote(directory: string, note: RevokedNote): void {
  writeFileAtomic(revokedNotePath(directory), `${JSON.stringify(note)}\n`, 0o644);
}

/** The note of an organization that an order starts again; it lies there until that is done. */
export function readRestoredNote(directory: string): RevokedNote | undefined {
  return readNote(join(directory, restoredNote));
}

/** The services may start from here on. */
export function setRevokedNoteAside(directory: string): void {
  try {
    // A directory in its place cannot be replaced by a rename.
    removeTree(join(directory, restoredNote));
    rename(revokedNotePath(directory), join(directory, restoredNote));
    syncDirectory(directory);
  } catch (error) {
    throw fromSystemError(`set the note in ${directory} aside`, error);
  }
}

export function removeRestoredNote(directory: string): void {
  removeTree(join(directory, restoredNote));
  syncDirectory(directory);
}

/** Replaces the token in credentials.json. */
export function writeCredentials(directory: string, credentials: Credentials): void {
  writeFileAtomic(join(directory, "credentials.json"), `${JSON.stringify(credentials, null, 2)}\n`, 0o600);
}
