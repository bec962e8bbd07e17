// The syntax of systemd unit files (systemd.syntax(7), systemd.service(5)): sections, and quoted values without special
// meaning. Must not know what the units are for.

import { existsSync, lstatSync, readlinkSync } from "node:fs";
import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import { readTextIfThere } from "../../base/files.ts";

export type Setting = readonly [name: string, value: string];

/** The text of a unit. A setting may occur more than once. `command`: ours that writes it. */
export function unit(sections: Record<string, readonly Setting[]>, command = "install-systemd"): string {
  const blocks = Object.entries(sections).map(
    ([title, settings]) => `[${title}]\n${settings.map(([name, value]) => `${name}=${value}\n`).join("")}`,
  );
  return `# Written by \`${brand.executable} ${command}\`, which replaces it; changes belong into a drop-in.\n${blocks.join("\n")}`;
}

/** One argument of a command line (systemd.service(5)): doubles % and $, and adds quotes if needed. */
export function word(text: string): string {
  return quoted(specifierFree(text).replaceAll("$", "$$$$"));
}

/** The program of a command line: $ has no special meaning there, and quotes are not possible. */
export function program(text: string): string {
  if (/["'\\]/.test(text))
    throw new AppError("usage", `A unit cannot start ${text}: its path contains quotes or backslashes`);
  return quoted(specifierFree(text));
}

export function specifierFree(text: string): string {
  // oxlint-disable-next-line no-control-regex
  if (!text.startsWith("/") || /[\u0000-\u001f]/.test(text)) {
    throw new AppError("usage", `A unit needs absolute paths without control characters, not "${text}"`);
  }
  return text.replaceAll("%", "%%");
}

export function quoted(text: string): string {
  return /^[\w@%+:,./$-]+$/.test(text) ? text : `"${text.replace(/["\\]/g, "\\$&")}"`;
}

/**
 * The text of a unit file; undefined if there is none, and behind the link to /dev/null that `systemctl mask` makes: it holds
 * nothing, and what unmasks the unit finds the package's.
 */
export function readUnit(path: string): string | undefined {
  const isMask =
    lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink() && readlinkSync(path) === "/dev/null";
  return isMask === true ? undefined : readTextIfThere(path);
}

/** The program that a unit starts, if it is one of ours; undefined for other texts. */
export function programOf(unitText: string): string | undefined {
  const [, inQuotes, plain] = /^ExecStart=(?:"([^"]*)"|(\S+))(?: |$)/m.exec(unitText) ?? [];
  return (inQuotes ?? plain)?.replaceAll("%%", "%");
}

/** A unit whose program was deleted counts as missing. */
export function lacksProgram(unitText: string): boolean {
  const path = programOf(unitText);
  return path !== undefined && path.startsWith("/") && !existsSync(path);
}
