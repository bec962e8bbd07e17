// Flags of `serve` and the admin commands: where the data of the control plane is.

import { given } from "../../base/given.ts";
import { brand, defaultServerDirectory } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import { quoteWord } from "../../base/quote.ts";
import type { DataOptions } from "../../server/store/data-directory.ts";
import type { System } from "../../base/system.ts";
import { valueFlag, wordArg, type Values } from "../values.ts";

/** The word ORG of the admin commands. */
export const orgArg = { ORG: wordArg("The organization's slug") };

export const dataFlags = {
  "data-dir": valueFlag(
    "DIR",
    "Directory of the control plane's data (default: below /var/lib for root, else in the home)",
  ),
  "database-url": valueFlag("URL", "Use this PostgreSQL database instead of the file in the data directory", {
    secret: true,
  }),
  "secret-key-file": valueFlag(
    "FILE",
    "Key that encrypts the CA keys in the database (default: secret.key in the data directory)",
  ),
  "public-url": valueFlag(
    "URL",
    "Address of the control plane for nodes and links (default: the listen address)",
  ),
};

/** Where the data is, by flags and variables; else the usual directory of this user. Throws usage. */
export async function readDataOptions(
  values: Values,
  system: Pick<System, "env" | "isRoot">,
): Promise<DataOptions & { publicUrl?: string }> {
  const databaseUrl = await values.secret("database-url");
  const secretKeyFile = values.text("secret-key-file");
  const publicUrl = values.text("public-url");
  return {
    dataDirectory: values.text("data-dir") ?? usualDirectory(system),
    ...(databaseUrl === undefined ? {} : { databaseUrl: checkDatabaseUrl(databaseUrl) }),
    ...given({ secretKeyFile }),
    ...(publicUrl === undefined ? {} : { publicUrl: checkUrl(publicUrl) }),
  };
}

/** Throws bad_configuration for a user without a home: a directory that other users can write must not hold the keys. */
function usualDirectory({ env, isRoot }: Pick<System, "env" | "isRoot">): string {
  const directory = defaultServerDirectory(env, isRoot);
  if (directory !== undefined) return directory;
  throw new AppError("bad_configuration", "There is no place for the control plane's data: HOME is not set", {
    hint: `Set HOME, or give --data-dir. Version 0.1.0 used /tmp/.local/share/${brand.id}/server: if your data is there, move that directory first.`,
  });
}

/** The flags, quoted for a shell, with which admin commands use the same data. Never the URL of the database, which may hold a password. */
export function dataFlagsOf(values: Values): string {
  // `database-url-file`: withSecretFiles adds such a flag for each secret one.
  const given = ["data-dir", "database-url-file", "secret-key-file"].flatMap((name) => {
    const value = values.text(name);
    return value === undefined ? [] : [`--${name} ${quoteWord(value)}`];
  });
  if (values.text("database-url") !== undefined) given.push("--database-url URL");
  return given.map((each) => ` ${each}`).join("");
}

/** The error does not repeat the value: it may hold a password. */
function checkDatabaseUrl(text: string): string {
  if (URL.canParse(text) && /^postgres(ql)?:$/.test(new URL(text).protocol)) return text;
  throw new AppError("usage", "--database-url must be like postgres://USER:PASSWORD@HOST/DATABASE");
}

function checkUrl(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol) || url.search !== "" || url.hash !== "") {
    throw new AppError(
      "usage",
      `--public-url must be a URL such as https://control.example.org, not "${text}"`,
    );
  }
  return text.replace(/(?<!\/)\/+$/, "");
}
