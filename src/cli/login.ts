// `agent login`, `agent logout` and `agent whoami`: the profiles with which the admin commands work on a control plane over
// the network.

import { given } from "../base/given.ts";
import { brand } from "../brand.ts";
import { AppError, hasCode, messageOf } from "../base/errors.ts";
import type { Step } from "../base/plan/plan.ts";
import type { Profile, Profiles, Session } from "../node/files/profiles.ts";
import { withSender } from "./admin/api.ts";
import {
  chooseTarget,
  readBase,
  readCa,
  remoteFlags,
  requireLocalData,
  targetFlags,
  type LocalTarget,
  type Target,
} from "./admin/target.ts";
import { readPassword } from "./admin/users/user.ts";
import type { Context, Implementation } from "./command.ts";
import { signInWithCode } from "./one-time-code.ts";
import { switchFlag, valueFlag, wordArg } from "./values.ts";

const { "access-token": tokenFlag, local: _, ...connectionFlags } = remoteFlags;
const profileHelp = "A name for the profile (default: the control plane's host name)";

export const login: Implementation = {
  notes: `With a URL it signs in by a web browser, with whatever the control plane takes there: password, passkey, or a provider of
identities. Where this machine has no browser, or with --device, it prints a code to type in a browser on any machine.
With --api-base it signs in with e-mail and password; the password is not stored. Both make this profile the chosen one. The session is
in the keyring of this machine, else in a file that only you can read. It ends after some time without use (a day, unless
the control plane says otherwise), and 90 days after the sign-in. With --access-token-file, the profile has that service
token instead. Run again for the same profile, it signs in again.`,
  args: {
    URL: wordArg("Sign in with a browser at this control plane", { required: false }),
    ...connectionFlags,
    device: switchFlag("Print a code, to sign in with a browser on another machine"),
    profile: valueFlag("NAME", profileHelp),
    email: valueFlag("EMAIL", "Your e-mail address (default: ask)"),
    "password-file": valueFlag("FILE", "Read the password from a file (- is standard input)"),
    ...given({ "access-token": tokenFlag && { ...tokenFlag, description: "A service token" } }),
  },
  examples: [
    `${brand.executable} login https://control.example.com`,
    `${brand.executable} login --api-base https://control.example.com`,
    `${brand.executable} login --api-base https://control.example.com --profile ci --access-token-file token`,
  ],
  async run(context) {
    const { system, output, settings } = context;
    const files = await import("../node/files/profiles.ts");
    const known = files.readProfiles(system);
    const { name, profile } = await readProfile(context, known);
    if (settings.dryRun) return output.plan(await planLogin(context, name, profile));
    const { session, email } = await signIn(context, profile);
    const profiles = { ...known.profiles, [name]: { ...profile, email } };
    // The profile first: after a kill in between it asks to sign in again, and no secret is left over.
    files.writeProfiles({ current: name, profiles }, system);
    const place = await files.writeSession(name, profile, session, system);
    // Tells the control plane on which machine the session is. Does not fail.
    if ("access" in session) {
      const { proveSession } = await import("./prove-session.ts");
      await proveSession(context, profile, session.access);
    }
    const who = email === null ? "with the service token" : `as ${email}`;
    output.result(
      { profile: name, api_base: profile.api_base, email, stored_in: place },
      `Signed in at ${profile.api_base} ${who}. Admin commands now work there (profile ${name}); --local means this machine's data.\n`,
    );
  },
};

/** The profile by the flags, else the stored one of this name. */
async function readProfile(
  context: Context,
  { current, profiles }: Profiles,
): Promise<{ name: string; profile: Profile }> {
  const { values } = context;
  const { parse } = await import("../server/http/parse-input.ts");
  const { object } = await import("valibot");
  const { ProfileName } = await import("../node/files/profiles.ts");
  const givenName = values.text("profile");
  const [url] = context.words;
  if (url !== undefined && values.text("api-base") !== undefined)
    throw new AppError("usage", "Give the URL or --api-base, not both");
  if (url === undefined && values.text("api-base") === undefined) {
    const name = givenName ?? current ?? "";
    const profile = Object.hasOwn(profiles, name) ? profiles[name] : undefined;
    if (profile !== undefined) return { name, profile };
    throw new AppError("usage", "Missing the URL of the control plane");
  }
  const base = await readBase(context, url);
  const { profile: name } = parse(object({ profile: ProfileName }), {
    profile: givenName ?? new URL(base).host.replaceAll(/[^a-z0-9._-]+/gi, "-").replace(/^-+/, ""),
  });
  const named = Object.hasOwn(profiles, name) ? profiles[name] : undefined;
  // A profile of this name for another control plane is replaced as a whole.
  const stored = named?.api_base === base ? named : undefined;
  const ca = (await readCa(context, base)) ?? stored?.api_ca;
  const profile = {
    api_base: base,
    allow_plain_http: values.on("allow-plain-http"),
    email: stored?.email ?? null,
    by_browser: url !== undefined,
    ...given({ api_ca: ca }),
  };
  return { name, profile };
}

/** The way of a sign-in, as the flags and the profile have it. Throws usage if it needs an address that cannot be asked for. */
async function chooseWay({ values, system }: Context, profile: Profile) {
  const token = await values.secret("access-token");
  if (token !== undefined) return { kind: "token", token } as const;
  const isDevice = values.on("device");
  const email = values.text("email");
  if (isDevice || (profile.by_browser && email === undefined)) {
    const { browserOf } = await import("../platform/browser.ts");
    return { kind: "browser", browser: isDevice ? undefined : browserOf(system) } as const;
  }
  const known = email ?? profile.email ?? undefined;
  if (known === undefined && !system.stdinIsTerminal)
    throw new AppError("usage", "Missing --email: your e-mail address");
  return { kind: "password", email: known } as const;
}

async function signIn(context: Context, profile: Profile) {
  const { system } = context;
  const { clientOf, sessionOf } = await import("../node/contact/requests/session.ts");
  const way = await chooseWay(context, profile);
  if (way.kind === "token") {
    const { token } = way;
    // Any answer to this proves the token.
    const { unknown } = await import("valibot");
    const { organizationsApi } = await import("../api/organizations.ts");
    await clientOf(profile, system, token).request({ path: organizationsApi.list.path, schema: unknown() });
    return { session: { token }, email: null };
  }
  if (way.kind === "browser") {
    const { signInByBrowser } = await import("./browser-login.ts");
    return signInByBrowser(context, clientOf(profile, system), { base: profile.api_base, ...way });
  }
  const email = (way.email ?? (await askEmail(context))).trim().toLowerCase();
  const password = await readPassword(context, { isNew: false });
  const pair = await signInWithCode(context, clientOf(profile, system), email, password);
  return { session: sessionOf(pair, system.now()), email };
}

/** The requests of `signIn` and of the proof after it. Whether the control plane asks for a second factor is not known yet. */
async function planSignIn(context: Context, profile: Profile): Promise<Step[]> {
  const { commandLineApi } = await import("../api/command-line.ts");
  const { ownSessionsApi, tokenPairsApi } = await import("../api/sessions.ts");
  const { organizationsApi } = await import("../api/organizations.ts");
  const { ownUserApi } = await import("../api/users.ts");
  const { canProve } = await import("./prove-session.ts");
  const asked = (...endpoints: readonly { method: string; path: string }[]): Step[] =>
    endpoints.map(({ method, path }) => ({ step: "request", method, url: profile.api_base + path }));
  const way = await chooseWay(context, profile);
  if (way.kind === "token") return asked(organizationsApi.list);
  const proof = (await canProve(context, profile)) ? [ownSessionsApi.proveNodes] : [];
  if (way.kind === "password") return asked(tokenPairsApi.create, ...proof);
  const { browser } = way;
  if (browser === undefined)
    return asked(commandLineApi.begin, commandLineApi.poll, ownUserApi.retrieve, ...proof);
  const { browserPage } = await import("../node/contact/requests/browser-sign-in.ts");
  return [
    { step: "run", argv: [...browser, browserPage(profile.api_base)] },
    ...asked(commandLineApi.exchange, ownUserApi.retrieve, ...proof),
  ];
}

async function planLogin(context: Context, name: string, profile: Profile): Promise<Step[]> {
  const { system } = context;
  const { join } = await import("node:path");
  const { planDirectories, planRemoved, planReplaced } = await import("../base/plan/plan-file.ts");
  const { profilesPlace } = await import("../node/files/profiles.ts");
  const { keyringState } = await import("../node/files/keyring.ts");
  const directory = profilesPlace(system);
  const session = join(directory, `${name}.session`);
  const hasKeyring = (await keyringState(system)) === "answers";
  return [
    ...(await planSignIn(context, profile)),
    ...planDirectories([directory]),
    planReplaced(join(directory, "profiles.json"), 0o600),
    ...(hasKeyring ? planRemoved(session) : [planReplaced(session, 0o600)]),
  ];
}

async function askEmail({ system }: Context): Promise<string> {
  const { ask } = await import("./ask.ts");
  const [email = ""] = await ask([{ text: "E-mail: ", isSecret: false }], system);
  return email;
}

export const logout: Implementation = {
  notes: "Ends the session at the control plane, and removes it here. Other sessions of the user go on.",
  args: { profile: valueFlag("NAME", "Default: the chosen profile") },
  examples: [`${brand.executable} logout`],
  async run(context) {
    const { values, system, output, settings } = context;
    const files = await import("../node/files/profiles.ts");
    const { current, profiles } = files.readProfiles(system);
    const name = values.text("profile") ?? current ?? "";
    const { [name]: profile, ...others } = profiles;
    if (name === "") throw new AppError("credentials_missing", "You are not signed in at a control plane");
    if (profile === undefined || !Object.hasOwn(profiles, name))
      throw new AppError("not_found", `There is no profile ${name}`);
    const session = await files.readSession(name, profile, system);
    if (settings.dryRun) return output.plan(await planSignOut(name, profile, session, system));
    let isEnded = true;
    // A service token has no session to end.
    if (session !== undefined && "refresh" in session) {
      const { clientOf } = await import("../node/contact/requests/session.ts");
      await clientOf(profile, system)
        .signOut(session.refresh)
        .catch((error: unknown) => {
          if (hasCode(error, "token_not_valid")) return;
          isEnded = false;
          output.say(
            `The session could not be ended at the control plane: ${messageOf(error)}. It ends by itself.`,
          );
        });
    }
    await files.removeSession(name, system);
    files.writeProfiles({ current: current === name ? null : current, profiles: others }, system);
    output.result({ profile: name, ended: isEnded }, `Signed out of ${profile.api_base}\n`);
  },
};

async function planSignOut(
  name: string,
  profile: Profile,
  session: Session | undefined,
  system: Context["system"],
): Promise<Step[]> {
  const { join } = await import("node:path");
  const { planRemoved, planReplaced } = await import("../base/plan/plan-file.ts");
  const { profilesPlace } = await import("../node/files/profiles.ts");
  const directory = profilesPlace(system);
  const { tokenPairsApi } = await import("../api/sessions.ts");
  const url = profile.api_base + tokenPairsApi.revoke.path;
  const hasSignedIn = session !== undefined && "refresh" in session;
  return [
    ...(hasSignedIn ? [{ step: "request", method: "POST", url } as const] : []),
    ...planRemoved(join(directory, `${name}.session`)),
    planReplaced(join(directory, "profiles.json"), 0o600),
  ];
}

export const whoami: Implementation = {
  notes:
    "Admin commands work on --api-base, else on the chosen profile, else on the data directory of this machine.",
  args: targetFlags,
  examples: [`${brand.executable} whoami`],
  async run(context) {
    const { system, output } = context;
    const { readProfiles } = await import("../node/files/profiles.ts");
    const { profiles } = readProfiles(system);
    const names = Object.keys(profiles);
    const target = await chooseTarget(context);
    if (context.settings.dryRun) {
      const isAsked = target.kind === "remote" && target.profile.email !== null;
      const { ownUserApi } = await import("../api/users.ts");
      const url = isAsked ? target.profile.api_base + ownUserApi.retrieve.path : "";
      return output.plan(isAsked ? [{ step: "request", method: "GET", url }] : []);
    }
    const who = await identity(context, target);
    const missing = target.kind === "local" ? await missingData(context, target) : undefined;
    const profilesLine = names.length === 0 ? "" : `Profiles: ${names.join(", ")}\n`;
    output.result(
      { target: target.kind, ...who, profiles: names },
      `${missing ?? `Admin commands work on ${target.name}${who.is_staff === true ? " (staff)" : ""}`}\n${profilesLine}`,
    );
  },
};

/** The message of an admin command without data; undefined if there is data. */
async function missingData(context: Context, { options }: LocalTarget) {
  try {
    await requireLocalData(context, options);
    return undefined;
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    return [error.message, ...(error.details.hint === undefined ? [] : [error.details.hint])].join("\n");
  }
}

async function identity(context: Context, target: Target) {
  if (target.kind === "local") {
    const { options } = target;
    return { data_dir: options.databaseUrl === undefined ? options.dataDirectory : null };
  }
  const { api_base, email } = target.profile;
  if (email === null) return { api_base, email };
  const { request } = await import("../api/request.ts");
  const { ownUserApi } = await import("../api/users.ts");
  const me = await withSender(context, target, {}, (send) => send(request(ownUserApi.retrieve, {})));
  return { api_base, email: me.body?.email ?? email, is_staff: me.body?.is_staff ?? false };
}
