// For the commands that install services: the flags, the check of --org-slug, and the report of changed files.

import type { Step } from "../../base/plan/plan.ts";
import type { CommandOutput } from "../command.ts";
import { switchFlag, valueFlag } from "../values.ts";

export const serviceFlags = {
  "org-slug": valueFlag("SLUG", "Only this organization"),
  uninstall: switchFlag("Stop and remove the services"),
};

/** Throws if --org-slug names an organization that is not here, or is damaged. `organizations`: those that the command is about. */
export async function requireOrganization(
  slug: string | undefined,
  organizations: readonly unknown[],
  configRoot: string,
): Promise<void> {
  if (slug === undefined || organizations.length > 0) return;
  const { openOrganization } = await import("../../node/files/organizations.ts");
  openOrganization(configRoot, slug);
}

/** Prints the files that the steps have changed. */
export function reportFiles(steps: readonly Step[], output: CommandOutput): void {
  const files = steps.flatMap((step) =>
    step.step === "file" && step.change !== "same" ? [{ path: step.path, change: step.change }] : [],
  );
  output.result(
    { changed: files.length > 0, files },
    files.length === 0
      ? "Everything is up to date\n"
      : files.map(({ path, change }) => `${path} ${change}\n`).join(""),
  );
}
