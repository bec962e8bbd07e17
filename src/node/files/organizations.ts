// The registered organizations of this machine and their directories: chooses, opens and reads them, and writes
// credentials.json. No network access here.

import { lstatSync } from "node:fs";
import { basename, join } from "node:path";
import * as v from "valibot";
import { brand } from "../../brand.ts";
import { AppError, hasCode, messageOf } from "../../base/errors.ts";
import { readTextIfThere, writeFileAtomic } from "../../base/files.ts";
import { kindOf } from "../../base/open-file.ts";
import { Credentials, NodeConfig } from "../../protocol/organization-files.ts";
import { Slug, type OrderKey } from "../../protocol/values.ts";
import { quoteWord } from "../../base/quote.ts";
import { readJsonFile, readValidJson } from "./json-file.ts";
import { listOrganizations, notRegistered } from "./list-organizations.ts";
import { refuseForeignDirectory } from "./own-files.ts";
import { finishReplacement } from "./replacement.ts";

export type Organization = {
  slug: string;
  directory: string;
  config: NodeConfig;
  /** Set if node-config.json is damaged: `config` is then a copy, good for revocations alone (damaged-organization.ts). */
  damage?: Damage;
};

/** Why node-config.json cannot be read, and all order keys of its copies: the newest copy may have a former key. */
export type Damage = { error: AppError; orderKeys: OrderKey[] };

/**
 * Throws not_registered if the organization does not exist here, bad_configuration if its file is damaged, foreign_files
 * if others than root can change its directory.
 */
export function openOrganization(configRoot: string, slug: string): Organization {
  const directory = join(configRoot, slug);
  requireDirectory(directory);
  refuseForeignDirectory(directory);
  const path = join(directory, "node-config.json");
  // A registration that was killed between its two renames leaves no directory here.
  if (!isThere(path)) finishReplacement(configRoot, slug);
  const config = readNodeConfig(path, slug);
  if (config !== undefined) return { slug, directory, config };
  if (isThere(path)) throw damagedError(slug, `${path} is a dangling link`);
  throw notRegistered(configRoot, slug);
}

/** Throws for anything but a directory. A link would lead to a place that the services may not see. */
function requireDirectory(directory: string): void {
  const found = lstatSync(directory, { throwIfNoEntry: false });
  if (found === undefined || found.isDirectory()) return;
  const kind = found.isSymbolicLink() ? "a link" : kindOf(found);
  throw new AppError("bad_configuration", `${directory} is ${kind}, not the directory of an organization`, {
    hint: `Look at it with \`ls -ld ${quoteWord(directory)}\`, and move it away.`,
  });
}

function readNodeConfig(path: string, slug: string): NodeConfig | undefined {
  let config: NodeConfig | undefined;
  try {
    config = readJsonFile(path, NodeConfig);
  } catch (error) {
    if (hasCode(error, "bad_configuration")) throw damagedError(slug, error.message, error);
    throw error;
  }
  if (config === undefined || config.org_slug === slug) return config;
  throw damagedError(slug, `${path} belongs to the organization "${config.org_slug}"`);
}

function isThere(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false }) !== undefined;
}

function damagedError(slug: string, message: string, cause?: unknown): AppError {
  return new AppError("bad_configuration", message, {
    cause,
    hint: `Write it again with \`${brand.executable} register --force --org-slug ${quoteWord(slug)} …\`, or remove it with \`${brand.executable} unregister --org-slug ${quoteWord(slug)}\`.`,
  });
}

/**
 * The organizations that a command works on: the named one, else all. Throws not_registered if there is none. A damaged one
 * is reported by `say` and skipped. Throws the error of the first one if none can be opened.
 */
export function chooseOrganizations(
  configRoot: string,
  slug: string | undefined,
  say: (text: string) => void,
): Organization[] {
  const failed: { slug: string; error: unknown }[] = [];
  const opened = chooseEach(configRoot, slug).flatMap((chosen) => {
    try {
      return [chosen.open()];
    } catch (error) {
      failed.push({ slug: chosen.slug, error });
      return [];
    }
  });
  const thrown = opened.length === 0 ? failed.shift() : undefined;
  for (const { slug: damaged, error } of failed) say(`${damaged}: ${messageOf(error)}`);
  if (thrown !== undefined) throw thrown.error;
  return opened;
}

/** A slug names a directory, so it must not be a path. Throws usage. */
export function parseSlug(text: string): string {
  const parsed = v.safeParse(Slug, text);
  if (parsed.success) return parsed.output;
  throw new AppError("usage", `--org-slug "${text}": ${parsed.issues[0].message}`);
}

export type Chosen = { slug: string; open(): Organization };

/**
 * Like chooseOrganizations, but the caller opens each one, and decides what a damaged one means for the others. A single one is
 * opened here, so that its error is that of the command.
 */
export function chooseEach(configRoot: string, slug: string | undefined, open = openOrganization): Chosen[] {
  const slugs = slug === undefined ? listOrganizations(configRoot) : [parseSlug(slug)];
  const [first, ...others] = slugs;
  if (first === undefined) throw notRegistered(configRoot);
  if (others.length > 0) return slugs.map((name) => ({ slug: name, open: () => open(configRoot, name) }));
  const only = open(configRoot, first);
  return [{ slug: first, open: () => only }];
}

/**
 * Reads credentials.json. Throws credentials_missing, and bad_configuration if it is damaged, or belongs to another organization or
 * node than the directory: the token of one node must not be used for another.
 */
export function readCredentials(directory: string): Credentials {
  const path = join(directory, "credentials.json");
  const slug = basename(directory);
  const credentials = readJsonFile(path, Credentials);
  const node = readValidJson(join(directory, "node-config.json"), NodeConfig);
  const owner = credentials === undefined ? undefined : otherOwner(credentials, slug, node);
  if (owner !== undefined) throw damagedError(slug, `${path} belongs to ${owner}`);
  if (credentials === undefined) {
    throw new AppError("credentials_missing", `There is no ${path}`, {
      hint: `Register again with \`${brand.executable} register --force\`.`,
    });
  }
  return credentials;
}

/** To what the credentials belong, if not to this node of this organization. */
function otherOwner(
  { org_slug, node_id }: Credentials,
  slug: string,
  node: NodeConfig | undefined,
): string | undefined {
  if (org_slug !== slug) return `the organization "${org_slug}", not to "${slug}"`;
  if (node === undefined || node.node_id === node_id) return undefined;
  return `node ${node_id}, but this machine is node ${node.node_id} of "${slug}"`;
}

/** credentials.json, unless it is damaged or of another organization: for what also works without it. */
export function credentialsIfOwn(directory: string): Credentials | undefined {
  const credentials = readValidJson(join(directory, "credentials.json"), Credentials);
  return credentials?.org_slug === basename(directory) ? credentials : undefined;
}

/** The PEM of the control plane's own TLS authority, if the registration pinned one. */
export function readApiCa(directory: string): string | undefined {
  return readTextIfThere(join(directory, "api-ca.crt"));
}

/** Replaces the token in credentials.json. */
export function writeCredentials(directory: string, credentials: Credentials): void {
  writeFileAtomic(join(directory, "credentials.json"), `${JSON.stringify(credentials, null, 2)}\n`, 0o600);
}
