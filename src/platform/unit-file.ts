// The syntax of systemd's unit files (systemd.syntax(7), systemd.service(5)): sections, and values quoted so that no path
// means more than itself. Knows nothing of what the units are for.

import { brand } from "../brand.ts";
import { AppError } from "../errors.ts";

export type Setting = readonly [name: string, value: string];

/** The text of a unit; a name may stand more than once. */
export function unit(sections: Record<string, readonly Setting[]>): string {
  const blocks = Object.entries(sections).map(
    ([title, settings]) => `[${title}]\n${settings.map(([name, value]) => `${name}=${value}\n`).join("")}`,
  );
  return `# Written by \`${brand.executable} install-systemd\`, which replaces it; changes belong into a drop-in.\n${blocks.join("\n")}`;
}

/** One word of a command line as systemd.service(5) reads it: % and $ doubled, quoted if need be. */
export function word(text: string): string {
  return quoted(specifierFree(text).replaceAll("$", "$$$$"));
}

/** The first word of a command line: $ is only a letter in it, quotes cannot stand in it. */
export function program(text: string): string {
  if (/["'\\]/.test(text))
    throw new AppError("usage", `A unit cannot start ${text}: it has quotes in its path`);
  return quoted(specifierFree(text));
}

export function specifierFree(text: string): string {
  // oxlint-disable-next-line no-control-regex
  if (!text.startsWith("/") || /[\u0000-\u001f]/.test(text)) {
    throw new AppError("usage", `A unit needs absolute paths, not "${text}"`);
  }
  return text.replaceAll("%", "%%");
}

export function quoted(text: string): string {
  return /^[\w@%+:,./$-]+$/.test(text) ? text : `"${text.replace(/["\\]/g, "\\$&")}"`;
}
