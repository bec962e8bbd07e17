// Writes for all commands to standard output. Text for people loses its control characters; `raw` is written unchanged.

import { printable } from "../log.ts";
import { renderPlan } from "../plan.ts";
import type { System } from "../system.ts";
import type { CommandOutput } from "./command.ts";

export function makeOutput(
  settings: { json: boolean },
  system: Pick<System, "stdout" | "stderr">,
): CommandOutput {
  return {
    json: settings.json,
    result: (object, text) =>
      system.stdout.write(settings.json ? `${JSON.stringify(object)}\n` : printable(text)),
    plan: (steps) =>
      system.stdout.write(
        settings.json ? `${JSON.stringify({ plan: steps })}\n` : printable(renderPlan(steps)),
      ),
    raw: (text) => system.stdout.write(text),
    say: (text) => system.stderr.write(`${printable(text)}\n`),
  };
}
