// Man pages, made from the help texts of the commands: agent(1), and one page for each command, as agent-admin-org(1).

import { brand } from "../src/brand.ts";

export type ManPage = { file: string; text: string };
export type CommandHelp = { name: string; summary: string; help: string };

/** `date`: YYYY-MM-DD. `general`: the help of the program itself. */
export function manPages(
  commands: readonly CommandHelp[],
  general: string,
  { version, date }: { version: string; date: string },
): ManPage[] {
  const { executable, title } = brand;
  const page = (name: string, summary: string, help: string, related: readonly string[]): ManPage => {
    const words = name === "" ? executable : `${executable}-${name.replaceAll(" ", "-")}`;
    const lines = [
      `.TH ${quoted(words.toUpperCase())} 1 ${quoted(date)} ${quoted(`${title} ${version}`)} ${quoted(title)}`,
      ".SH NAME",
      `${escaped(words)} \\- ${escaped(summary)}`,
      ...sectionsOf(help),
      ".SH SEE ALSO",
      related.map((each) => `.BR ${each} (1)`).join(" ,\n"),
    ];
    return { file: `${words}.1`, text: `${lines.join("\n")}\n` };
  };
  const pages = commands.map(({ name, summary, help }) => page(name, summary, help, [executable]));
  const all = commands.map(({ name }) => `${executable}-${name.replaceAll(" ", "-")}`);
  return [page("", `${title}, a node manager for private overlay networks`, general, all), ...pages];
}

/** The sections of a help text. Rows of two columns become tagged paragraphs, which fit any width. */
function sectionsOf(help: string): string[] {
  const lines = [".SH SYNOPSIS", ".nf"];
  let isFilled = false;
  const fill = (next: boolean) => {
    if (next !== isFilled) lines.push(next ? ".fi" : ".nf");
    isFilled = next;
  };
  // The lines before it say what NAME says.
  for (const line of help.slice(help.indexOf("USAGE ")).trim().split("\n")) {
    const [, usage] = /^USAGE +(.*)$/.exec(line) ?? [];
    const [, label, text] = /^ +(\S.*?) {2,}(\S.*)$/.exec(line) ?? [];
    if (usage !== undefined) lines.push(escaped(usage));
    else if (/^[A-Z][A-Z ,]+$/.test(line)) {
      fill(true);
      lines.push(`.SH ${quoted(line)}`);
    } else if (label !== undefined && text !== undefined) {
      fill(true);
      lines.push(".TP", `.B ${escaped(label)}`, escaped(text));
    } else if (line.trim() === "") lines.push(isFilled ? ".PP" : "");
    else {
      fill(false);
      lines.push(escaped(line));
    }
  }
  fill(true);
  return lines;
}

/** A line of text: no escape sequence, no request of roff. */
function escaped(text: string): string {
  const safe = text.replaceAll("\\", "\\e").replaceAll("-", "\\-");
  return /^[.']/.test(safe) ? `\\&${safe}` : safe;
}

function quoted(text: string): string {
  return `"${escaped(text).replaceAll('"', "'")}"`;
}
