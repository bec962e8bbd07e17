// `--watch`: shows a report again whenever it changes, until Ctrl-C.

import { printable } from "../../base/log.ts";
import { takesEscapes } from "../../base/system.ts";
import type { Context } from "../command.ts";
import { jsonLine } from "../output.ts";

const lookEveryMs = 1000;

/**
 * Redraws a terminal that takes escape sequences; otherwise prints each change. `passing` matches values whose
 * changes do not count.
 */
export async function watch(
  { system, output }: Pick<Context, "system" | "output">,
  read: () => Promise<{ report: Record<string, unknown>; text: string }>,
  passing: RegExp,
): Promise<never> {
  let shown = "";
  for (;;) {
    const { report, text } = await read();
    const redraw = !output.json && takesEscapes(system.stdout, system.env);
    const current = JSON.stringify(report).replace(passing, "");
    if (redraw) output.raw(`\u001b[H\u001b[2J${printable(text)}`);
    else if (current !== shown) output.raw(output.json ? jsonLine(report) : printable(text));
    shown = current;
    await system.sleep(lookEveryMs);
  }
}
