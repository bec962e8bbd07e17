// Writes to standard output for all commands. Text loses its control characters here, and JSON has them as \u
// escapes, so that no server and no node can control a terminal. `raw`, and `file` into a pipe, are written unchanged.

import { printable } from "../base/log.ts";
import { renderPlan } from "../base/plan/plan.ts";
import { unprintable } from "../base/unprintable.ts";
import type { System } from "../base/system.ts";
import type { CommandOutput } from "./command.ts";
import { renderFacts, renderTable } from "./table.ts";

/** `place` adds the places in use to the command lines in a sentence (hints.ts). */
export function makeOutput(
  settings: { json: boolean; color: boolean },
  { stdout, stderr }: Pick<System, "stdout" | "stderr">,
  place: (sentence: string) => string = (sentence) => sentence,
): CommandOutput {
  const say = (text: string) => stderr.write(`${printable(place(text))}\n`);
  const result: CommandOutput["result"] = (object, text) =>
    stdout.write(settings.json ? jsonLine(object) : printable(text));
  const textStyle = () => ({ width: stdout.isTerminal ? stdout.columns : undefined, color: settings.color });
  return {
    json: settings.json,
    result,
    list(object, table, more = "") {
      if (settings.json) return result(object, "");
      if (table.rows.length === 0) say(table.none);
      // renderTable cleans the cells; `printable` would remove its colors.
      else stdout.write(renderTable(table, textStyle()));
      if (more !== "") stdout.write(printable(more));
    },
    facts: (object, facts) =>
      settings.json ? result(object, "") : stdout.write(renderFacts(facts, textStyle())),
    file(object, text) {
      if (settings.json || stdout.isTerminal) result(object, text);
      else stdout.write(text);
      if (!settings.json && stdout.isTerminal && printable(text) !== text)
        say(
          "Control characters of the file are shown as blanks. Write it into a file to get them: add `> FILE`",
        );
    },
    plan: (steps) => result({ plan: steps }, renderPlan(steps)),
    raw: (text) => stdout.write(text),
    say,
  };
}

const unprintables = new RegExp(unprintable, "g");

/** One object on one line. The same JSON, with control characters as escapes. */
export function jsonLine(object: object): string {
  const escape = (char: string) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return `${JSON.stringify(object).replace(unprintables, escape)}\n`;
}
