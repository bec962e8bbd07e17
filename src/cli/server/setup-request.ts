// What `agent setup` will do: from flags, present settings and data, and answers on a terminal. Changes nothing.

import { NewPassword } from "../../api/users.ts";
import { Email } from "../../api/values.ts";
import { existsSync } from "node:fs";
import * as v from "valibot";
import { rootServerDirectory } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import { readTextIfThere } from "../../base/files.ts";
import { maskNetwork } from "../../base/ip.ts";
import { Slug } from "../../protocol/values.ts";
import type { SetupData } from "../../server/setup.ts";
import type { Context } from "../command.ts";
import { parseSettings } from "../settings-file.ts";
import { readNamedFile } from "../values.ts";
import { askMissing, freeNetwork, missingFlag, usualSlug, type Typed } from "./setup-questions.ts";
import {
  readServiceSettings,
  writeSettings,
  type PresentSettings,
  type ServiceSettings,
} from "./setup-settings.ts";

export type SetupRequest = Pick<ServiceSettings, "publicUrl" | "listen" | "tls"> & {
  dataDirectory: string;
  /** The new content of the settings file. */
  settings: string;
  /** Undefined if there are users. Without a password, one that is never shown is set. */
  administrator: { email: string; password: string | undefined } | undefined;
  /** The present administrator, who has not signed in yet: a killed run may not have shown the password. */
  newcomer: string | undefined;
  /** --email: the owner of a new organization; undefined: a staff user is it. */
  email: string | undefined;
  /** The organization to create, or the existing one to work on; undefined if several exist and none is named. */
  org: { slug: string; network: string } | undefined;
  hasLighthouse: boolean;
  /** How many the organization has now. */
  counted: { nodes: number; lighthouses: number };
  wantsLighthouse: boolean;
  /** The directory of `serve --releases`, from the settings. */
  releasesDirectory: string | undefined;
  /** How many join keys to make, each for one machine. */
  machines: number;
};

export async function readSetupRequest(context: Context): Promise<SetupRequest> {
  const { values } = context;
  const { controlSettingsPath } = await import("../../platform/systemd/control-unit.ts");
  const fileText = readTextIfThere(controlSettingsPath);
  const present: PresentSettings = fileText === undefined ? {} : parseSettings(fileText, controlSettingsPath);
  const dataDirectory = typeof present["data-dir"] === "string" ? present["data-dir"] : rootServerDirectory;
  const data = await readData(dataDirectory, context);
  const typed = await askMissing(data, { hasPublicUrl: present["public-url"] !== undefined }, context);
  const service = await readServiceSettings(present, values, typed.name);
  const email = values.text("email");
  return {
    dataDirectory,
    ...service,
    settings: writeSettings(
      fileText,
      present,
      { ...service.changed, "data-dir": dataDirectory },
      controlSettingsPath,
    ),
    administrator: data.hasUsers ? undefined : await readAdministrator(typed, context),
    newcomer: data.newcomer,
    email,
    org: await readOrg(data, typed, context),
    hasLighthouse: data.hasLighthouse,
    counted: { nodes: data.nodes, lighthouses: data.lighthouses },
    // Only --no-lighthouse says no.
    wantsLighthouse: values.text("lighthouse") !== "false",
    releasesDirectory: typeof present["releases"] === "string" ? present["releases"] : undefined,
    // Shows join keys until a machine has joined, because a killed run may not have shown any. Later runs are for
    // changes.
    machines: values.integer("machines", 0, 100) ?? (data.hasOtherNodes ? 0 : 2),
  };
}

async function readData(dataDirectory: string, { system, values }: Context): Promise<SetupData> {
  const none: SetupData = {
    hasUsers: false,
    hasOrgs: false,
    org: undefined,
    nodes: 0,
    lighthouses: 0,
    hasLighthouse: false,
    hasOtherNodes: false,
    newcomer: undefined,
  };
  const { databasePath } = await import("../../server/store/data-directory.ts");
  if (!system.isRoot || !existsSync(databasePath({ dataDirectory }))) return none;
  const { withAdmin } = await import("../../server/admin.ts");
  const { readSetup } = await import("../../server/setup.ts");
  return withAdmin({ dataDirectory }, system, (admin) => readSetup(admin, values.text("org-slug")));
}

async function readAdministrator(
  typed: Typed,
  { values, system }: Context,
): Promise<SetupRequest["administrator"]> {
  const email = values.text("email") ?? typed.email;
  if (email === undefined) throw missingFlag("--email EMAIL");
  const address = v.safeParse(Email, email);
  if (!address.success) throw new AppError("usage", `--email "${email}": ${address.issues[0].message}`);
  const file = values.text("password-file");
  const password = file === undefined ? typed.password : await readNamedFile("password-file", file, system);
  const checked = v.safeParse(v.optional(NewPassword), password);
  if (checked.success) return { email: address.output, password: checked.output };
  throw new AppError("usage", `The password: ${checked.issues[0].message}`);
}

async function readOrg(data: SetupData, typed: Typed, context: Context): Promise<SetupRequest["org"]> {
  const { values } = context;
  if (data.org !== undefined) return { slug: data.org.slug, network: data.org.network };
  const named = values.text("org-slug");
  // Several organizations, and none is named: the service alone is set up.
  if (data.hasOrgs && named === undefined) return undefined;
  const slug = v.safeParse(Slug, named ?? typed.slug ?? usualSlug);
  if (!slug.success) throw new AppError("usage", `--org-slug: ${slug.issues[0].message}`);
  const free = await freeNetwork(context);
  const network = values.text("network") ?? typed.network ?? free;
  if (maskNetwork(network) === network) return { slug: slug.output, network };
  throw new AppError("usage", `--network must be like ${free}, not "${network}"`);
}
