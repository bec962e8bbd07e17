// The settings file of the control plane for `agent setup`: what its flags change in the present file.

import { existsSync } from "node:fs";
import { networkInterfaces } from "node:os";
import { resolve } from "node:path";
import * as v from "valibot";
import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import { PublicAddress } from "../../protocol/values.ts";
import type { Context } from "../command.ts";
import { missingFlag } from "./setup-questions.ts";

type Tls = "auto" | "acme" | "files" | "off";
/** The values of the settings file as it is, by key. */
export type PresentSettings = Record<string, unknown>;

export type ServiceSettings = {
  publicUrl: string;
  listen: { hostname: string; port: number };
  tls: Tls;
  /** The keys of the settings file that flags change; undefined removes a key. */
  changed: Record<string, string | readonly string[] | undefined>;
};

/** The settings by the flags, else as they are. `typedName`: the public name that was typed, if neither has it. */
export async function readServiceSettings(
  present: PresentSettings,
  values: Context["values"],
  typedName: string | undefined,
): Promise<ServiceSettings> {
  const url = typeof present["public-url"] === "string" ? new URL(present["public-url"]) : undefined;
  const flags = ["public-name", "port", "tls", "tls-cert", "tls-key", "tls-ca", "acme-directory", "acme-ca"];
  const tls = values.choice("tls", ["auto", "acme", "files", "off"]) ?? presentTls(present);
  // Nothing is changed. Without `listen`, the address is the default of `serve`.
  if (url !== undefined && values.firstOf(flags) === undefined) {
    const { parseListen } = await import("../../server/http/edge.ts");
    const listen = typeof present["listen"] === "string" ? present["listen"] : "127.0.0.1:8420";
    const publicUrl = url.href.replace(/\/+$/, "");
    return { publicUrl, listen: parseListen("listen", listen), tls, changed: {} };
  }
  const name = readPublicName(url, values, typedName);
  const port = values.integer("port", 1, 65_535) ?? Number(url?.port || 443);
  const host = name.includes(":") ? `[${name}]` : name;
  const publicUrl = `https://${host}${port === 443 ? "" : `:${port}`}`;
  // `off`: a proxy on this machine has TLS and the public port.
  const listen = tls === "off" ? { hostname: "127.0.0.1", port: 8420 } : { hostname: anyAddress(), port };
  const { cert, key } = tlsFiles(tls, present, values);
  const listenHost = listen.hostname.includes(":") ? `[${listen.hostname}]` : listen.hostname;
  return {
    publicUrl,
    listen,
    tls,
    changed: {
      listen: `${listenHost}:${listen.port}`,
      "public-url": publicUrl,
      tls: tls === "auto" || tls === "acme" ? tls : undefined,
      "acme-directory": acmeDirectory(tls, present, values),
      "acme-ca": caFile("acme-ca", { neededTls: ["acme"], tls }, present, values),
      "tls-ca": caFile("tls-ca", { neededTls: ["acme", "files"], tls }, present, values),
      "tls-cert": cert,
      "tls-key": key,
      "trusted-proxy": tls === "off" ? ["127.0.0.1/32"] : undefined,
    },
  };
}

function acmeDirectory(tls: Tls, present: PresentSettings, values: Context["values"]): string | undefined {
  const value = values.text("acme-directory");
  if (tls !== "acme" && value !== undefined) throw new AppError("usage", "--acme-directory needs --tls acme");
  const inFile = present["acme-directory"];
  if (tls !== "acme") return undefined;
  return value ?? (typeof inFile === "string" ? inFile : undefined);
}

/** An absolute path: the service runs in another directory. */
function caFile(
  flag: "acme-ca" | "tls-ca",
  { neededTls, tls }: { neededTls: readonly Tls[]; tls: Tls },
  present: PresentSettings,
  values: Context["values"],
): string | undefined {
  const value = values.text(flag);
  if (!neededTls.includes(tls)) {
    if (value === undefined) return undefined;
    throw new AppError("usage", `--${flag} needs --tls ${neededTls.join(" or ")}`);
  }
  const inFile = present[flag];
  if (value === undefined) return typeof inFile === "string" ? inFile : undefined;
  if (existsSync(value)) return resolve(value);
  throw new AppError("usage", `--${flag}: there is no file ${value}`);
}

/** Files that `setup` wrote have `tls` or a certificate, except behind a proxy. */
function presentTls(present: PresentSettings): Tls {
  if (present["tls"] === "acme") return "acme";
  if (present["tls-cert"] !== undefined) return "files";
  return present["public-url"] !== undefined && present["tls"] === undefined ? "off" : "auto";
}

/** Absolute paths, or neither. */
function tlsFiles(
  tls: Tls,
  present: PresentSettings,
  values: Context["values"],
): { cert?: string; key?: string } {
  if (tls !== "files") {
    if (values.text("tls-cert") === undefined && values.text("tls-key") === undefined) return {};
    throw new AppError("usage", "--tls-cert and --tls-key need --tls files");
  }
  const cert = values.text("tls-cert") ?? present["tls-cert"];
  const key = values.text("tls-key") ?? present["tls-key"];
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
  if (name === undefined) throw missingFlag("--public-name HOST");
  const parsed = v.safeParse(PublicAddress, name);
  if (parsed.success) return parsed.output.toLowerCase();
  throw new AppError("usage", `--public-name must be a DNS name or an address, not "${name}"`);
}

const header = `# Settings of the control plane: the flags of \`${brand.executable} serve\`, without their dashes.
# After a change: systemctl restart ${brand.id}-control
`;

/**
 * The settings file after the changes. Replaces single lines, so that comments and other keys of the administrator stay.
 * `fileText`: as it is; `present`: its values; undefined in `changed` removes a key. `path` is for errors only. Throws
 * bad_configuration if that does not give the wanted values, for example because a list is on several lines.
 */
export function writeSettings(
  fileText: string | undefined,
  present: PresentSettings,
  changed: Record<string, string | readonly string[] | undefined>,
  path: string,
): string {
  const edits: string[] = [];
  let text = fileText ?? header;
  for (const [key, value] of Object.entries(changed)) {
    if (Bun.deepEquals(present[key], value)) continue;
    const line = new RegExp(`^[ \\t]*${key}[ \\t]*=.*\\n?`, "m");
    const setting = value === undefined ? "" : `${key} = ${JSON.stringify(value)}`;
    const next = setting && `${setting}\n`;
    text = line.test(text) ? text.replace(line, () => next) : `${text.replace(/(?<!\n)$/, "\n")}${next}`;
    edits.push(value === undefined ? `remove ${key}` : `write ${setting}`);
  }
  if (hasValues(text, { ...present, ...changed })) return text;
  throw new AppError(
    "bad_configuration",
    `Cannot change ${path}: not each setting is one line like: tls = "auto"`,
    { hint: `Edit it yourself: ${edits.join(", ")}. Then run this command again.` },
  );
}

function hasValues(text: string, wanted: Record<string, unknown>): boolean {
  try {
    return Bun.deepEquals(Bun.TOML.parse(text), wanted);
  } catch {
    return false;
  }
}
