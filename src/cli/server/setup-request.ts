// What `agent setup` will do: from flags, present settings and data, and answers on a terminal. Changes nothing.

import { NewPassword } from "../../api/users.ts";
import { Email } from "../../api/values.ts";
import { existsSync } from "node:fs";
import { networkInterfaces } from "node:os";
import { resolve } from "node:path";
import * as v from "valibot";
import { brand, rootServerDirectory } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import { readTextIfThere } from "../../base/files.ts";
import { given } from "../../base/given.ts";
import { maskNetwork, networksOverlap, parseNetwork } from "../../base/ip.ts";
import { PublicAddress, Slug } from "../../protocol/values.ts";
import type { SetupData } from "../../server/setup.ts";
import type { Context } from "../command.ts";
import { parseSettings } from "../settings-file.ts";
import { readNamedFile } from "../values.ts";

export type SetupRequest = {
  dataDirectory: string;
  /** The new content of the settings file. */
  settings: string;
  publicUrl: string;
  listen: { hostname: string; port: number };
  tls: Tls;
  /** Undefined if there are users. Without a password, one that is never shown is set. */
  administrator: { email: string; password: string | undefined } | undefined;
  /** The present administrator, who has not signed in yet: a killed run may not have shown the password. */
  newcomer: string | undefined;
  email: string | undefined;
  /** The organization to create, or the existing one to work on; undefined if several exist and none is named. */
  org: { slug: string; network: string } | undefined;
  hasLighthouse: boolean;
  /** How many the organization has now. */
  counted: { nodes: number; lighthouses: number };
  wantsLighthouse: boolean;
  /** The directory of `serve --releases`, from the settings. */
  releasesDirectory: string | undefined;
  machines: number;
};

type Tls = "auto" | "acme" | "files" | "off";
/** The settings file as it is, by key. */
type PresentSettings = Record<string, unknown>;

export async function readSetupRequest(context: Context): Promise<SetupRequest> {
  const { values } = context;
  const { controlSettingsPath } = await import("../../platform/systemd/control-unit.ts");
  const fileText = readTextIfThere(controlSettingsPath);
  const known = fileText === undefined ? {} : parseSettings(fileText, controlSettingsPath);
  const dataDirectory = typeof known["data-dir"] === "string" ? known["data-dir"] : rootServerDirectory;
  const data = await readData(dataDirectory, context);
  const typed = await askMissing(known, data, context);
  const service = await readServiceSettings(known, values, typed.name);
  const email = values.text("email");
  return {
    dataDirectory,
    ...service,
    settings: writeSettings(fileText, known, { ...service.changed, "data-dir": dataDirectory }),
    administrator: data.hasUsers ? undefined : await readAdministrator(typed, context),
    newcomer: data.newcomer,
    email,
    org: await readOrg(data, typed, context),
    hasLighthouse: data.hasLighthouse,
    counted: { nodes: data.nodes, lighthouses: data.lighthouses },
    wantsLighthouse: values.text("lighthouse") !== "false",
    releasesDirectory: typeof known["releases"] === "string" ? known["releases"] : undefined,
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

type Service = Pick<SetupRequest, "publicUrl" | "listen" | "tls"> & {
  /** The keys of the settings file that flags change; undefined removes a key. */
  changed: Record<string, string | readonly string[] | undefined>;
};

/** The service's settings by the flags, else as they are. `typedName`: the public name, asked for if neither has it. */
export async function readServiceSettings(
  known: PresentSettings,
  values: Context["values"],
  typedName: string | undefined,
): Promise<Service> {
  const url = typeof known["public-url"] === "string" ? new URL(known["public-url"]) : undefined;
  const flags = ["public-name", "port", "tls", "tls-cert", "tls-key", "tls-ca", "acme-directory", "acme-ca"];
  const tls = values.choice("tls", ["auto", "acme", "files", "off"]) ?? presentTls(known);
  if (url !== undefined && flags.every((flag) => values.text(flag) === undefined)) {
    const { parseListen } = await import("../../server/http/edge.ts");
    const listen = typeof known["listen"] === "string" ? known["listen"] : "127.0.0.1:8420";
    const publicUrl = url.href.replace(/\/+$/, "");
    return { publicUrl, listen: parseListen("listen", listen), tls, changed: {} };
  }
  const name = readPublicName(url, values, typedName);
  const port = values.integer("port", 1, 65_535) ?? Number(url?.port || 443);
  const host = name.includes(":") ? `[${name}]` : name;
  const publicUrl = `https://${host}${port === 443 ? "" : `:${port}`}`;
  const listen = tls === "off" ? { hostname: "127.0.0.1", port: 8420 } : { hostname: anyAddress(), port };
  const { cert, key } = tlsFiles(tls, known, values);
  const listenHost = listen.hostname.includes(":") ? `[${listen.hostname}]` : listen.hostname;
  return {
    publicUrl,
    listen,
    tls,
    changed: {
      listen: `${listenHost}:${listen.port}`,
      "public-url": publicUrl,
      tls: tls === "auto" || tls === "acme" ? tls : undefined,
      "acme-directory": acmeDirectory(tls, known, values),
      "acme-ca": caFile("acme-ca", { neededTls: ["acme"], tls }, known, values),
      "tls-ca": caFile("tls-ca", { neededTls: ["acme", "files"], tls }, known, values),
      "tls-cert": cert,
      "tls-key": key,
      "trusted-proxy": tls === "off" ? ["127.0.0.1/32"] : undefined,
    },
  };
}

function acmeDirectory(tls: Tls, known: PresentSettings, values: Context["values"]): string | undefined {
  const value = values.text("acme-directory");
  if (tls !== "acme" && value !== undefined) throw new AppError("usage", "--acme-directory needs --tls acme");
  const present = known["acme-directory"];
  if (tls !== "acme") return undefined;
  return value ?? (typeof present === "string" ? present : undefined);
}

/** An absolute path: the service runs in another directory. */
function caFile(
  flag: "acme-ca" | "tls-ca",
  { neededTls, tls }: { neededTls: readonly Tls[]; tls: Tls },
  known: PresentSettings,
  values: Context["values"],
): string | undefined {
  const value = values.text(flag);
  if (!neededTls.includes(tls)) {
    if (value === undefined) return undefined;
    throw new AppError("usage", `--${flag} needs --tls ${neededTls.join(" or ")}`);
  }
  const present = known[flag];
  if (value === undefined) return typeof present === "string" ? present : undefined;
  if (existsSync(value)) return resolve(value);
  throw new AppError("usage", `--${flag}: there is no file ${value}`);
}

function presentTls(known: PresentSettings): Tls {
  if (known["tls"] === "acme") return "acme";
  if (known["tls-cert"] !== undefined) return "files";
  return known["public-url"] !== undefined && known["tls"] === undefined ? "off" : "auto";
}

/** Absolute paths, or neither. */
function tlsFiles(
  tls: Tls,
  known: PresentSettings,
  values: Context["values"],
): { cert?: string; key?: string } {
  const cert = values.text("tls-cert") ?? known["tls-cert"];
  const key = values.text("tls-key") ?? known["tls-key"];
  if (tls !== "files") {
    if (values.text("tls-cert") === undefined && values.text("tls-key") === undefined) return {};
    throw new AppError("usage", "--tls-cert and --tls-key need --tls files");
  }
  if (typeof cert === "string" && typeof key === "string" && existsSync(cert) && existsSync(key))
    return { cert: resolve(cert), key: resolve(key) };
  throw new AppError("usage", "--tls files needs --tls-cert FILE and --tls-key FILE, which exist");
}

/** IPv4 and IPv6, unless the kernel has no IPv6. */
function anyAddress(): string {
  const all = Object.values(networkInterfaces()).flatMap((each) => each ?? []);
  return all.some(({ family }) => family === "IPv6") ? "::" : "0.0.0.0";
}

function readPublicName(
  url: URL | undefined,
  values: Context["values"],
  typedName: string | undefined,
): string {
  const name = values.text("public-name") ?? url?.hostname.replace(/^\[|\]$/g, "") ?? typedName;
  if (name === undefined) throw missing("--public-name HOST");
  const parsed = v.safeParse(PublicAddress, name);
  if (parsed.success) return parsed.output.toLowerCase();
  throw new AppError("usage", `--public-name must be a DNS name or an address, not "${name}"`);
}

async function readAdministrator(
  typed: Typed,
  { values, system }: Context,
): Promise<SetupRequest["administrator"]> {
  const email = values.text("email") ?? typed.email;
  if (email === undefined) throw missing("--email EMAIL");
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

/** A network that none of this machine's interfaces has, and none of its routes leads to. */
async function freeNetwork({ system }: Context): Promise<string> {
  const { addresses, routes } = await system.machineState();
  const used = [...addresses.map(({ address }) => address), ...routes.map((each) => each.network)].flatMap(
    (each) => parseNetwork(maskNetwork(each) ?? "") ?? [],
  );
  const isFree = (text: string) => {
    const network = parseNetwork(text);
    return network !== undefined && !used.some((each) => networksOverlap(each, network));
  };
  const candidates = Array.from({ length: 100 }, (_, at) => `10.${77 + at}.0.0/16`);
  return candidates.find(isFree) ?? "10.77.0.0/16";
}

const usualSlug = "main";

/** What was typed on the terminal. */
type Typed = Partial<Record<"name" | "email" | "password" | "slug" | "network", string>>;

/**
 * Asks on a terminal for everything that flags, settings and data leave open. All at once: the answers may be pasted.
 */
async function askMissing(known: PresentSettings, data: SetupData, context: Context): Promise<Typed> {
  const { values, system, settings } = context;
  if (values.on("yes") || !system.stdinIsTerminal || settings.dryRun) return {};
  const has = (flag: string) => values.text(flag) !== undefined;
  const isFirstOrg = !data.hasOrgs;
  const free = isFirstOrg && !has("network") ? await freeNetwork(context) : "";
  const questions = [
    {
      key: "name",
      text: "Name or address under which other machines reach this one",
      isAsked: !has("public-name") && known["public-url"] === undefined,
    },
    {
      key: "email",
      text: "E-mail address of the first administrator",
      isAsked: !data.hasUsers && !has("email"),
    },
    { key: "password", text: "Password (not shown)", isAsked: !data.hasUsers && !has("password-file") },
    { key: "again", text: "Again", isAsked: !data.hasUsers && !has("password-file") },
    {
      key: "slug",
      text: `Short name of the organization [${usualSlug}]`,
      isAsked: isFirstOrg && !has("org-slug"),
    },
    { key: "network", text: `Its overlay network [${free}]`, isAsked: isFirstOrg && !has("network") },
  ].filter(({ isAsked }) => isAsked);
  if (questions.length === 0) return {};
  const { ask } = await import("../ask.ts");
  const secret = ["password", "again"];
  const answers = await ask(
    questions.map(({ key, text }) => ({ text: `${text}: `, isSecret: secret.includes(key) })),
    system,
  );
  // An empty answer takes the default. Spaces belong to a password.
  const textOf = (key: string, text = "") => (secret.includes(key) ? text : text.trim()) || undefined;
  const typed = new Map(questions.map(({ key }, at) => [key, textOf(key, answers[at])]));
  if (typed.get("password") !== typed.get("again"))
    throw new AppError("usage", "The two passwords differ: run the command again");
  const keys = ["name", "email", "password", "slug", "network"] as const;
  return given(Object.fromEntries(keys.map((key) => [key, typed.get(key)])));
}

function missing(flag: string): AppError {
  return new AppError("usage", `Missing ${flag}`, {
    hint: `Without a terminal, or with --yes, \`${brand.executable} setup\` needs --public-name and --email.`,
  });
}

const header = `# Settings of the control plane: the flags of \`${brand.executable} serve\`, without their dashes.
# After a change: systemctl restart ${brand.id}-control
`;

/**
 * The settings file after the changes. Replaces single lines, so that comments and other keys of the administrator stay.
 * `fileText`: as it is; `known`: its values; undefined in `changed` removes a key.
 */
export function writeSettings(
  fileText: string | undefined,
  known: Record<string, unknown>,
  changed: Record<string, string | readonly string[] | undefined>,
): string {
  let text = fileText ?? header;
  for (const [key, value] of Object.entries(changed)) {
    if (Bun.deepEquals(known[key], value)) continue;
    const line = new RegExp(`^[ \\t]*${key}[ \\t]*=.*\\n?`, "m");
    const next = value === undefined ? "" : `${key} = ${JSON.stringify(value)}\n`;
    text = line.test(text) ? text.replace(line, () => next) : `${text.replace(/(?<!\n)$/, "\n")}${next}`;
  }
  return text;
}
