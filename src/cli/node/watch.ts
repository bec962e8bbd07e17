// `--watch`: shows a report again whenever it changes, until Ctrl-C.

import { printable } from "../../base/log.ts";
import { takesEscapes } from "../../base/system.ts";
import type { Context } from "../command.ts";
import { jsonLine } from "../output.ts";

const lookEveryMs = 1000;

/**
 * Redraws a terminal that takes escape sequences; otherwise prints each change. `volatileFields` matches the fields of the
 * report, as JSON, whose changes do not count.
 */
export async function watch(
  { system, output }: Pick<Context, "system" | "output">,
  read: () => Promise<{ report: Record<string, unknown>; text: string }>,
  volatileFields: RegExp,
): Promise<never> {
  let last = "";
  for (;;) {
    const { report, text } = await read();
    const isRedrawn = !output.json && takesEscapes(system.stdout, system.env);
    const current = JSON.stringify(report).replace(volatileFields, "");
    if (isRedrawn) output.raw(`\u001b[H\u001b[2J${printable(text)}`);
    else if (current !== last) output.raw(output.json ? jsonLine(report) : printable(text));
    last = current;
    await system.sleep(lookEveryMs);
  }
}
