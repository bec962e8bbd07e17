// Where an admin command works: on a control plane over the network, or on the data directory of this machine. Both answer
// the same API, so each command is written once.

import { given } from "../../base/given.ts";
import { lstatSync } from "node:fs";
import { brand, rootServerDirectory } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import { systemErrorCode } from "../../base/system-errors.ts";
import type { Profile } from "../../node/files/profiles.ts";
import { quoteWord } from "../../base/quote.ts";
import type { DataOptions } from "../../server/store/data-directory.ts";
import type { Context } from "../command.ts";
import { trustFlags } from "../join/node-flags.ts";
import { codeFlag } from "../one-time-code.ts";
import { dataFlags, readDataOptions } from "../server/server-flags.ts";
import { switchFlag, valueFlag, variableOf } from "../values.ts";

export const remoteFlags = {
  "api-base": valueFlag("URL", "Work on this control plane over the network"),
  profile: valueFlag("NAME", `Use this profile of \`${brand.executable} login\``),
  local: switchFlag("Work on the data directory of this machine, whatever profile is chosen"),
  "access-token": valueFlag("TOKEN", "Service token, or access token of a user, for --api-base", {
    secret: true,
  }),
  ...codeFlag,
  ...trustFlags,
};

/** The flags of every admin command. */
export const targetFlags = { ...remoteFlags, ...dataFlags };

/** `isSurprising`: the user has signed in at control planes, and no flag chose the local data. */
export type LocalTarget = {
  kind: "local";
  options: DataOptions & { publicUrl?: string };
  name: string;
  isSurprising: boolean;
};
export type Target = LocalTarget | { kind: "remote"; profile: Profile; name: string; token: TokenSource };

/** `profile`: the session of `agent login`. */
type TokenSource = { given: string } | { profile: string };

/** --api-base, else the chosen profile, else the local data. Flags that name local data, and --local, mean that data. */
export async function chooseTarget(context: Context): Promise<Target> {
  const { values } = context;
  if (values.on("local")) return localTarget(context);
  const dataFlag = flagOfData(values);
  const remoteFlag = values.firstOf(["api-base", "profile"]);
  if (dataFlag !== undefined && remoteFlag !== undefined) {
    throw new AppError(
      "usage",
      `--${remoteFlag} names a control plane and --${dataFlag} names local data: give one`,
      {
        hint: "Both may come from environment variables. --local chooses the local data.",
      },
    );
  }
  if (values.text("api-base") !== undefined) return remoteTarget(context);
  return dataFlag === undefined ? targetOfProfile(context) : localTarget(context);
}

/** The profile of --profile, else the one that `login` chose, else the local data. Throws not_found for an unknown profile. */
async function targetOfProfile(context: Context): Promise<Target> {
  const { values, system } = context;
  const { readProfiles } = await import("../../node/files/profiles.ts");
  const known = readProfiles(system);
  const givenName = values.text("profile");
  const name = givenName ?? known.current;
  const token = await values.secret("access-token");
  if (token !== undefined && givenName === undefined) {
    throw new AppError("usage", "Say whose token it is: give --api-base or --profile with --access-token", {
      hint: `The token may come from ${variableOf("access-token")}. Without them, it could go to another control plane than its own.`,
    });
  }
  if (name === null || name === undefined)
    return localTarget(context, { isSurprising: Object.keys(known.profiles).length > 0 });
  const profile = Object.hasOwn(known.profiles, name) ? known.profiles[name] : undefined;
  if (profile !== undefined) return withProfile(name, profile, token);
  const names = Object.keys(known.profiles).join(", ");
  throw new AppError("not_found", `There is no profile ${name}`, {
    hint: `${names === "" ? "There are no profiles yet" : `Profiles: ${names}`}. \`${brand.executable} login --api-base URL\` makes one.`,
  });
}

/** The given flag that names local data. */
const flagOfData = (values: Context["values"]): string | undefined =>
  values.firstOf(["data-dir", "database-url", "database-url-file", "secret-key-file"]);

/**
 * Throws not_found where there is no local data. Unless flags name it, the user of a machine without data probably means the
 * control plane of its organizations, and on the machine of a control plane the data that only root may read.
 */
export async function requireLocalData(
  {
    values,
    settings,
    system,
  }: Pick<Context, "values" | "system"> & {
    settings: Pick<Context["settings"], "configRoot">;
  },
  options: LocalTarget["options"],
  rootData = rootServerDirectory,
): Promise<void> {
  const { hasData, requireData } = await import("../../server/store/data-directory.ts");
  if (hasData(options)) return;
  if (values.on("local") || flagOfData(values) !== undefined) return requireData(options);
  if (!system.isRoot && isPresent(rootData)) {
    throw new AppError(
      "os_permission",
      `You are not signed in at a control plane, and only root can read the data on this machine, in ${rootData}`,
      {
        hint:
          `Run the command as root: \`sudo ${brand.executable} admin …\`. ` +
          `Or sign in: \`${brand.executable} login --api-base URL\`.`,
      },
    );
  }
  const { knownControlPlanes } = await import("../../node/files/granted/control-planes.ts");
  const [known] = knownControlPlanes(settings.configRoot);
  const loginWords = [known?.apiBase ?? "URL"];
  if (known?.caFingerprint !== undefined) loginWords.push("--ca-fingerprint", known.caFingerprint);
  throw new AppError(
    "not_found",
    "You are not signed in at a control plane, and none has its data on this machine",
    {
      hint: `Sign in: \`${brand.executable} login --api-base ${loginWords.map(quoteWord).join(" ")}\`. If the data is on this machine, give --data-dir.`,
    },
  );
}

/** Whether there is something, also if this user may not read it. */
function isPresent(path: string): boolean {
  try {
    return lstatSync(path, { throwIfNoEntry: false }) !== undefined;
  } catch (error) {
    return systemErrorCode(error) === "EACCES";
  }
}

async function localTarget({ values, system }: Context, { isSurprising = false } = {}): Promise<LocalTarget> {
  const options = await readDataOptions(values, system);
  return { kind: "local", options, name: nameOfLocal(options), isSurprising };
}

/** Names the target before a change. The local data is not named for a user without profiles. */
export function sayTarget(
  target: Target,
  {
    output,
    settings,
  }: { output: Pick<Context["output"], "say">; settings: Pick<Context["settings"], "verbose"> },
): void {
  if (target.kind === "remote" || target.isSurprising || settings.verbose) output.say(`On ${target.name}:`);
}

/** Names the data for a sentence, without the user and password of the database. */
export function nameOfLocal({ databaseUrl, dataDirectory }: DataOptions): string {
  return `the local data in ${databaseUrl === undefined ? dataDirectory : placeOf(databaseUrl)}`;
}

function placeOf(databaseUrl: string): string {
  const { host, pathname } = new URL(databaseUrl);
  return `${host}${pathname}`;
}

function withProfile(name: string, profile: Profile, given?: string): Target {
  if (given !== undefined) return withToken({ ...profile, email: null }, given);
  const who = profile.email ?? "a service token";
  return { kind: "remote", profile, name: `${profile.api_base} as ${who}`, token: { profile: name } };
}

/** A profile of the same control plane gives the session and the CA, unless flags give others. */
async function remoteTarget(context: Context): Promise<Target> {
  const { values, system } = context;
  const token = await values.secret("access-token");
  const base = await readBase(context);
  const { readProfiles } = await import("../../node/files/profiles.ts");
  const { current, profiles } = readProfiles(system);
  const ofThisBase = Object.entries(profiles).filter(([, { api_base }]) => api_base === base);
  const [name, stored] = ofThisBase.find(([each]) => each === current) ?? ofThisBase[0] ?? [];
  if (token === undefined && name !== undefined && stored !== undefined) return withProfile(name, stored);
  if (token === undefined) {
    throw new AppError("credentials_missing", `You are not signed in at ${base}`, {
      hint: `Run \`${brand.executable} login --api-base ${quoteWord(base)}\`, or give a token with --access-token-file.`,
    });
  }
  const ca = (await readCa(context, base)) ?? stored?.api_ca;
  const profile: Profile = {
    api_base: base,
    allow_plain_http: values.on("allow-plain-http"),
    email: null,
    by_browser: false,
    ...given({ api_ca: ca }),
  };
  return withToken(profile, token);
}

function withToken(profile: Profile, given: string): Target {
  return { kind: "remote", profile, name: `${profile.api_base} with the given token`, token: { given } };
}

/** The URL, by default that of --api-base, without a final slash, checked. */
export async function readBase({ values }: Context, url?: string): Promise<string> {
  const { checkBase } = await import("../../node/contact/requests/client.ts");
  return checkBase(url ?? values.required("api-base"), values.on("allow-plain-http"));
}

/** The CA that --ca-fingerprint names, as PEM. */
export async function readCa({ values }: Context, base: string): Promise<string | undefined> {
  const fingerprint = values.text("ca-fingerprint");
  if (fingerprint === undefined) return undefined;
  const { readApiCaByFingerprint } = await import("../../node/enroll/register-input.ts");
  return readApiCaByFingerprint(base, fingerprint);
}
