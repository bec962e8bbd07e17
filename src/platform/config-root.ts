// The config root of this machine's services: daemon and units are started for one root, and must not be asked about
// another one, where an organization of the same name is another node.

import { existsSync, readdirSync, realpathSync } from "node:fs";
import { join } from "node:path";
import { brand, defaultPlaces } from "../brand.ts";
import { AppError } from "../base/errors.ts";
import { quoteWord } from "../base/quote.ts";
import { trimSlashes } from "./daemon-args.ts";
import { daemonUnit, packagedUnitDirectory, templateUnit, unitDirectory } from "./systemd/systemd.ts";
import { readUnit } from "./systemd/unit-file.ts";
import { whyHidden } from "./program-safety.ts";

export function isSameRoot(one: string, other: string): boolean {
  return resolved(one) === resolved(other);
}

/** A root that does not exist, or that this user may not see, is compared by its path. */
function resolved(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    return trimSlashes(path, "/\\");
  }
}

/** The config root of the installed units, which is the same for engines and daemon; undefined without units. */
export function rootOfUnits(directories = [unitDirectory, packagedUnitDirectory]): string | undefined {
  const text = [templateUnit, daemonUnit]
    .flatMap((name) => directories.map((directory) => readUnit(join(directory, name))))
    .find((each) => each !== undefined);
  return text === undefined ? undefined : rootIn(text);
}

/** A unit whose command line an administrator has changed counts as one of the usual root. */
export function rootIn(unit: string): string {
  const engine = /^ExecStart=.* -config (?:"(.+)\/%i\/config\.yml"|(.*)\/%i\/config\.yml)$/m.exec(unit);
  const daemon = /^ExecStart=.* --config-root (?:"((?:[^"\\]|\\.)*)"|(\S+))/m.exec(unit);
  const [, inQuotes, plain] = engine ?? daemon ?? [];
  const written = inQuotes ?? plain;
  if (written === undefined) return trimSlashes(defaultPlaces("linux", {}).configRoot);
  // As unit-file.ts has written it. The root "/" is empty before "/%i".
  const text = written.replace(/\\(["\\])/g, "$1");
  return text.replaceAll("%%", "%").replaceAll("$$", "$") || "/";
}

/** Whether systemd runs the organizations of this root. Without units it will, as soon as they are installed. */
export function unitsServe(configRoot: string, root = rootOfUnits()): boolean {
  return root === undefined || isSameRoot(root, configRoot);
}

/** Throws conflict if the units run the organizations of another root. */
export function requireOwnUnits(configRoot: string, root = rootOfUnits()): void {
  if (root === undefined || isSameRoot(root, configRoot)) return;
  throw new AppError(
    "conflict",
    `The services of this machine run the organizations of ${root}, not those of ${configRoot}`,
    {
      hint: `For the services, leave --config-root out or give --config-root ${quoteWord(root)}. For ${configRoot}, start and stop engines by hand, or run a daemon of its own: ${ownDaemon(configRoot)}`,
    },
  );
}

/** Throws if units for this root would take the place of those of another one, or could not see it. */
export function requireRootForUnits(configRoot: string, root = rootOfUnits()): void {
  const hidden = whyHidden(configRoot);
  if (hidden !== undefined)
    throw new AppError("failed", `Services cannot run the organizations of ${configRoot}: ${hidden}`, {
      hint: `Leave --config-root out, or choose a place such as /etc/${brand.id}. Without services (\`register --no-start\`, \`${brand.executable} --ipc-mode socket\`) any place will do.`,
    });
  requireRootForServices(configRoot, root);
}

/**
 * Throws if services for this root would take the place of those of another one, under any service manager. A root that was
 * moved away leaves nothing behind: then the services follow it.
 */
export function requireRootForServices(configRoot: string, root: string | undefined): void {
  if (root !== undefined && hasOrganizations(root)) requireOwnUnits(configRoot, root);
}

/** Whether the root holds an organization of this machine. */
export function hasOrganizations(root: string): boolean {
  try {
    return readdirSync(root).some((name) => existsSync(join(root, name, "node-config.json")));
  } catch {
    return false;
  }
}

/** The daemon's own socket and state, below its root. */
function ownDaemon(configRoot: string): string {
  const flags = [
    `--config-root ${quoteWord(configRoot)}`,
    `--socket-path ${quoteWord(`${configRoot}/daemon.sock`)}`,
    `--state-db-path ${quoteWord(`${configRoot}/state.db`)}`,
  ];
  return `${brand.executable} --ipc-mode socket ${flags.join(" ")}`;
}

/** The answering daemon belongs to another root: this one has none. */
export function foreignDaemon(served: string, configRoot: string): AppError {
  return new AppError(
    "daemon_unreachable",
    `The daemon runs the organizations of ${served}, not those of ${configRoot}`,
    {
      hint: `For the daemon, leave --config-root out or give --config-root ${quoteWord(served)}. For ${configRoot}, run a daemon of its own: ${ownDaemon(configRoot)}`,
    },
  );
}
