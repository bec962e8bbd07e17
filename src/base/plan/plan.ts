// The plan of a command for --dry-run: files, programs and requests in order, and its text. Reads no file, so that
// every command can load it cheaply.

import { quoteWord } from "../quote.ts";

export type Step =
  | {
      step: "file";
      path: string;
      mode: string;
      change: "created" | "changed" | "same" | "removed";
      diff?: string;
    }
  | { step: "run"; argv: readonly string[] }
  | { step: "request"; method: string; url: string };

/** The plan as text. */
export function renderPlan(steps: readonly Step[]): string {
  if (steps.length === 0) return "Nothing would change.\n";
  return steps.map(renderStep).join("");
}

function renderStep(step: Step): string {
  switch (step.step) {
    case "file":
      return `file     ${step.path} (${step.mode}) ${step.change}\n${(step.diff ?? "").replace(/^(?=.)/gm, "         ")}`;
    case "run":
      return `run      ${step.argv.map(quoteWord).join(" ")}\n`;
    case "request":
      return `request  ${step.method} ${step.url}\n`;
  }
}
