// The syntax of systemd unit files (systemd.syntax(7), systemd.service(5)): sections, and quoted values without special
// meaning. Must not know what the units are for.

import { existsSync, lstatSync, readlinkSync } from "node:fs";
import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import { readTextIfThere } from "../../base/files.ts";

export type Setting = readonly [name: string, value: string];

/** The text of a unit. A setting may occur more than once. `command`: our command that writes the file. */
export function unitText(sections: Record<string, readonly Setting[]>, command = "install-systemd"): string {
  const blocks = Object.entries(sections).map(
    ([title, settings]) => `[${title}]\n${settings.map(([name, value]) => `${name}=${value}\n`).join("")}`,
  );
  return `# Written by \`${brand.executable} ${command}\`, which replaces it; changes belong into a drop-in.\n${blocks.join("\n")}`;
}

/** One argument of a command line (systemd.service(5)): doubles % and $, and adds quotes if needed. */
export function argumentWord(text: string): string {
  return quotedWord(withoutExpansion(text));
}

/** The part of an argument that is a path, as argumentWord() has it, without the quotes that the whole may need. */
export function withoutExpansion(text: string): string {
  return withoutVariables(withoutSpecifiers(text));
}

/**
 * An argument with $ doubled, so that systemd replaces no variable of the environment in it. (In the text of a replacement, $$ is one
 * $.)
 */
export const withoutVariables = (text: string): string => text.replaceAll("$", "$$$$");

/** The program of a command line: $ has no special meaning there, and quotes are not possible. */
export function programWord(text: string): string {
  if (/["'\\]/.test(text))
    throw new AppError("usage", `A unit cannot start ${text}: its path contains quotes or backslashes`);
  return quotedWord(withoutSpecifiers(text));
}

/** The path with % doubled, so that systemd takes no part of it for a specifier (systemd.unit(5)). Throws usage for a relative one. */
export function withoutSpecifiers(text: string): string {
  // oxlint-disable-next-line no-control-regex
  if (!text.startsWith("/") || /[\u0000-\u001f]/.test(text)) {
    throw new AppError("usage", `A unit needs absolute paths without control characters, not "${text}"`);
  }
  return text.replaceAll("%", "%%");
}

/** The word, in quotes if it has characters that mean something in a command line. */
export function quotedWord(text: string): string {
  return /^[\w@%+:,./$-]+$/.test(text) ? text : `"${text.replace(/["\\]/g, "\\$&")}"`;
}

/** The text of a unit file. Undefined if there is none, or if it is the link to /dev/null that `systemctl mask` makes. */
export function readUnit(path: string): string | undefined {
  const isMask =
    lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink() && readlinkSync(path) === "/dev/null";
  return isMask === true ? undefined : readTextIfThere(path);
}

/** The program that a unit of ours starts. Undefined if the text has no such line. */
export function programOf(text: string): string | undefined {
  const [, inQuotes, plain] = /^ExecStart=(?:"([^"]*)"|(\S+))(?: |$)/m.exec(text) ?? [];
  return (inQuotes ?? plain)?.replaceAll("%%", "%");
}

/** A unit whose program was deleted counts as missing. */
export function lacksProgram(text: string): boolean {
  const path = programOf(text);
  return path !== undefined && path.startsWith("/") && !existsSync(path);
}
