// The syntax of systemd unit files (systemd.syntax(7), systemd.service(5)): sections, and quoted values without special
// meaning. Must not know what the units are for.

import { brand } from "../brand.ts";
import { AppError } from "../errors.ts";

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
