// The doctor's report as one file for support: checks, configurations, public certificates, the last lines of the log. It
// must not read keys or credentials; text that looks like a secret is redacted.

import { join } from "node:path";
import { buildInfo } from "../../build-info.ts";
import { fromSystemError, messageOf } from "../../base/errors.ts";
import { readTextIfThere, writeFileAtomic } from "../../base/files.ts";
import { redact } from "../../base/redact.ts";
import { lastLines } from "../engine/engine-log.ts";
import { localChangesPath } from "../files/config/local-changes.ts";
import { hangLog } from "../health/hanging-engine.ts";
import type { Check } from "./check.ts";

const filesOfOrganization = [
  "config.yml",
  "ca.crt",
  "host.crt",
  "node.crt",
  "node-config.json",
  "overrides.yml",
  "permissions.json",
  "auth-revoked.json",
  "auth-restored.json",
  "stopped",
  "current/sync.json",
];

/** Of each log. */
const mostLines = 500;

type BundlePlaces = { configRoot: string; logOf: (slug: string) => string };

/** Writes the .tar.gz with mode 0600. Returns the names of its files. */
export async function writeBundle(
  path: string,
  checks: readonly Check[],
  slugs: readonly string[],
  { configRoot, logOf }: BundlePlaces,
): Promise<string[]> {
  const content = new Map<string, string>([
    ["doctor.json", `${JSON.stringify({ ...buildInfo, checks }, null, 2)}\n`],
  ]);
  for (const slug of slugs) {
    for (const name of filesOfOrganization) {
      const text = readOrReason(join(configRoot, slug, name));
      if (text !== undefined) content.set(`${slug}/${name.replace("current/", "")}`, text);
    }
    const log = logOf(slug);
    // Of these only the last lines, which is enough for local-changes.json: it has one.
    const files = {
      "engine.log": log,
      "engine.log.hang": hangLog(log),
      "local-changes.json": localChangesPath(join(configRoot, slug)),
    };
    for (const [name, file] of Object.entries(files)) {
      const lines = lastLines(file, mostLines);
      if (lines.length > 0) content.set(`${slug}/${name}`, `${lines.join("\n")}\n`);
    }
  }
  const clean = Object.fromEntries([...content].map(([name, text]) => [name, redact(text)]));
  try {
    writeFileAtomic(path, await new Bun.Archive(clean, { compress: "gzip" }).bytes(), 0o600);
  } catch (error) {
    throw fromSystemError(`write ${path}`, error);
  }
  return [...content.keys()];
}

/** An unreadable file is reported by its error. */
function readOrReason(path: string): string | undefined {
  try {
    return readTextIfThere(path);
  } catch (error) {
    return `${messageOf(error)}\n`;
  }
}
