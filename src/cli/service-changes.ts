// What the commands that install services share: which organizations are meant, and what is said of the files.

import { AppError } from "../errors.ts";
import type { Step } from "../plan.ts";
import type { CommandOutput } from "./command.ts";
import type { Flags } from "./values.ts";

export const serviceFlags: Flags = {
  "org-slug": { type: "string", valueHint: "SLUG", description: "Only this organization" },
  uninstall: { type: "boolean", description: "Stop and remove what was installed" },
};

/** An organization that is named must be there. */
export function requireTeam(slug: string | undefined, teams: readonly unknown[], configRoot: string): void {
  if (slug !== undefined && teams.length === 0)
    throw new AppError("not_registered", `There is no organization "${slug}" in ${configRoot}`);
}

/** Prints which files were changed by the steps that have been carried out. */
export function reportFiles(steps: readonly Step[], output: CommandOutput): void {
  const files = steps.flatMap((step) =>
    step.step === "file" && step.change !== "same" ? [{ path: step.path, change: step.change }] : [],
  );
  output.result(
    { changed: files.length > 0, files },
    files.length === 0
      ? "Everything is as it should be\n"
      : files.map(({ path, change }) => `${path} ${change}\n`).join(""),
  );
}
