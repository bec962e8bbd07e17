// The flags that `serve` and the admin commands share: where the control plane's data lies.

import { defaultServerDirectory } from "../brand.ts";
import { AppError } from "../errors.ts";
import { quoteWord } from "../plan.ts";
import type { DataOptions } from "../server/store/data-directory.ts";
import type { System } from "../system.ts";
import type { Flags, Values } from "./values.ts";

export const dataFlags: Flags = {
  "data-dir": {
    type: "string",
    valueHint: "DIR",
    description: "Where the control plane keeps its data (default: /var/lib/… for root, else below the home)",
  },
  "database-url": {
    type: "string",
    valueHint: "URL",
    secret: true,
    description: "PostgreSQL instead of the file in the data directory",
  },
  "secret-key-file": {
    type: "string",
    valueHint: "FILE",
    description: "What encrypts the CA keys at rest (default: secret.key in the data directory)",
  },
  "public-url": {
    type: "string",
    valueHint: "URL",
    description: "What nodes and links are told (default: where it listens)",
  },
};

export async function readDataOptions(
  values: Values,
  system: Pick<System, "env" | "isRoot">,
): Promise<DataOptions & { publicUrl?: string }> {
  const databaseUrl = await values.secret("database-url");
  const secretKeyFile = values.text("secret-key-file");
  const publicUrl = values.text("public-url");
  return {
    dataDirectory: values.text("data-dir") ?? defaultServerDirectory(system.env, system.isRoot),
    ...(databaseUrl === undefined ? {} : { databaseUrl: checkDatabaseUrl(databaseUrl) }),
    ...(secretKeyFile === undefined ? {} : { secretKeyFile }),
    ...(publicUrl === undefined ? {} : { publicUrl: checkUrl(publicUrl) }),
  };
}

/** For a shell: the flags by which the admin commands come to the same data. Never the database's password. */
export function dataFlagsOf(values: Values): string {
  const given = ["data-dir", "database-url-file", "secret-key-file"].flatMap((name) => {
    const value = values.text(name);
    return value === undefined ? [] : [`--${name} ${quoteWord(value)}`];
  });
  if (values.text("database-url") !== undefined) given.push("--database-url URL");
  return given.map((each) => ` ${each}`).join("");
}

/** What was given is not said again: there may be a password in it. */
function checkDatabaseUrl(text: string): string {
  if (URL.canParse(text) && /^postgres(ql)?:$/.test(new URL(text).protocol)) return text;
  throw new AppError("usage", "--database-url takes postgres://USER:PASSWORD@HOST/DATABASE");
}

function checkUrl(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol) || url.search !== "" || url.hash !== "") {
    throw new AppError(
      "usage",
      `--public-url takes an address such as https://control.example.org, not "${text}"`,
    );
  }
  return text.replace(/(?<!\/)\/+$/, "");
}
