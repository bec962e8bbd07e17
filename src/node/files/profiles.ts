// The profiles of `agent login`: which control planes this user administers, and as whom. One file has them all, without
// secrets. The session of a profile is in the keyring, else in a file of mode 0600.

import { statSync } from "node:fs";
import { dirname, join } from "node:path";
import * as v from "valibot";
import { boundedText, jsonText } from "../../base/text.ts";
import { profilesDirectory } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import { damageOf } from "./json-file.ts";
import {
  makeDirectory,
  readTextIfThere,
  removeTree,
  writeFileAtomic,
  textOrEmpty,
} from "../../base/files.ts";
import { strictRecord } from "../../base/strict-record.ts";
import type { System } from "../../base/system.ts";
import { keyringToken, removeFromKeyring, storeInKeyring } from "./keyring.ts";

export const ProfileName = v.pipe(
  boundedText(63),
  v.regex(/^[a-z0-9][a-z0-9._-]*$/i, "A profile name has 1 to 63 letters, digits, dots, dashes and _."),
);
const Profile = v.object({
  api_base: boundedText(2048),
  /** PEM of the only CA that may issue the server's TLS certificate. */
  api_ca: v.optional(boundedText(65_536)),
  allow_plain_http: v.optional(v.boolean(), false),
  /** The user who signed in; null: a service token. */
  email: v.nullable(boundedText(254)),
  /** The user signed in with a browser: the next sign-in uses one, too. */
  by_browser: v.optional(v.boolean(), false),
});
export type Profile = v.InferOutput<typeof Profile>;
const Profiles = v.object({
  current: v.nullable(ProfileName),
  profiles: v.pipe(strictRecord(ProfileName, Profile), v.maxEntries(1000)),
});
export type Profiles = v.InferOutput<typeof Profiles>;

/** `token`: a service token. Else a user's pair of tokens; `until`: when the access token ends here, in ms. */
const Session = v.union([
  v.object({ token: boundedText(8192) }),
  v.object({ refresh: boundedText(8192), access: boundedText(8192), until: v.number() }),
]);
export type Session = v.InferOutput<typeof Session>;
/** The control plane of the session. Former versions did not store it. */
const Issuer = v.object({ api_base: v.optional(boundedText(2048)) });

type UsedSystem = Pick<System, "run" | "env" | "platform" | "executable" | "isRoot">;

/**
 * The directory of the profiles. If HOME belongs to another user, as after a sudo that keeps it, root takes its own home: a profile
 * decides which control plane gets root's commands and secrets. Undefined without a home.
 */
function findPlace({
  platform,
  env,
  isRoot,
}: Pick<UsedSystem, "platform" | "env" | "isRoot">): string | undefined {
  const directory = profilesDirectory(platform, env);
  if (directory === undefined || !isRoot || isRootsOwn(directory)) return directory;
  const home = /^[^:]+:[^:]*:0:[^:]*:[^:]*:([^:]+):/m.exec(textOrEmpty("/etc/passwd"))?.[1];
  return home === undefined ? undefined : profilesDirectory(platform, { HOME: home });
}

/** By the owner of the directory, or of the nearest one above that exists. On Windows every owner is 0. */
function isRootsOwn(directory: string): boolean {
  const owner = statSync(directory, { throwIfNoEntry: false })?.uid;
  return owner === undefined ? isRootsOwn(dirname(directory)) : owner === 0;
}

/** Like findPlace, but throws bad_configuration for a user without a home. */
export function profilesPlace(system: Pick<UsedSystem, "platform" | "env" | "isRoot">): string {
  const directory = findPlace(system);
  if (directory !== undefined) return directory;
  throw new AppError("bad_configuration", "There is no place for profiles: HOME is not set", {
    hint: "Set HOME, or give --api-base and --access-token-file.",
  });
}

const listPath = (system: UsedSystem) => join(profilesPlace(system), "profiles.json");
const sessionPath = (name: string, system: UsedSystem) => join(profilesPlace(system), `${name}.session`);

/** Throws bad_configuration for a damaged file. */
export function readProfiles(system: UsedSystem): Profiles {
  const none = { current: null, profiles: {} };
  if (findPlace(system) === undefined) return none;
  const path = listPath(system);
  const content = readTextIfThere(path);
  if (content === undefined) return none;
  const parsed = v.safeParse(jsonText(Profiles), content);
  if (parsed.success) return parsed.output;
  throw new AppError("bad_configuration", `${path} is damaged: ${damageOf(parsed.issues[0])}`, {
    hint: "Remove the file, and sign in again.",
  });
}

export function writeProfiles(profiles: Profiles, system: UsedSystem): void {
  makeDirectory(profilesPlace(system), 0o700);
  writeFileAtomic(listPath(system), `${JSON.stringify(profiles, undefined, 2)}\n`, 0o600);
}

const account = (name: string) => `profile ${name}`;

/**
 * The session of a profile. Undefined if there is none, or if the keyring that has it does not answer. Undefined also if the session
 * belongs to another control plane than the profile has now, after an interrupted login with another address.
 */
export async function readSession(
  name: string,
  { api_base: base }: Pick<Profile, "api_base">,
  system: UsedSystem,
): Promise<Session | undefined> {
  const stored = readTextIfThere(sessionPath(name, system)) ?? (await keyringToken(account(name), system));
  const parsed = v.safeParse(jsonText(v.intersect([Session, Issuer])), stored);
  if (!parsed.success) return undefined;
  const { api_base: issuer = base, ...session } = parsed.output;
  return issuer === base ? session : undefined;
}

/** Stores the session in the keyring, else in the file. Never in both: the older one would be found later. */
export async function writeSession(
  name: string,
  { api_base }: Pick<Profile, "api_base">,
  session: Session,
  system: UsedSystem,
): Promise<"keyring" | "file"> {
  const path = sessionPath(name, system);
  const content = JSON.stringify({ ...session, api_base });
  if (await storeInKeyring(account(name), content, system)) {
    removeTree(path);
    return "keyring";
  }
  makeDirectory(profilesPlace(system), 0o700);
  writeFileAtomic(path, content, 0o600);
  return "file";
}

export async function removeSession(name: string, system: UsedSystem): Promise<void> {
  removeTree(sessionPath(name, system));
  await removeFromKeyring(account(name), system);
}
