// `agent edge`: what an organization needs beside its engine, in the foreground. systemd runs it where it is needed.

import { statSync } from "node:fs";
import { join } from "node:path";
import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import type { Context, Implementation } from "../command.ts";

export const command: Implementation = {
  notes:
    "TCP fallback, for example: on a lighthouse with --tcp-fallback, and on a node while UDP is blocked. In desktop mode the\n" +
    "daemon does it. It ends when nothing is needed.",
  args: {
    "org-slug": {
      type: "string",
      valueHint: "SLUG",
      description: "The organization's slug (default: the only one)",
    },
    undo: {
      type: "boolean",
      description:
        "Take back what exits and routers of all organizations changed of the machine: for the uninstaller",
    },
  },
  examples: [`${brand.executable} edge --org-slug acme`],
  run,
};

/** How often it looks whether an update has replaced its program. */
const programMs = 10_000;

async function run({ settings, system, values, log, output }: Context): Promise<void> {
  const { requireRoot } = await import("../../node/enroll/services.ts");
  const { chooseOne } = await import("../../daemon/asking/choose-slugs.ts");
  const { openOrganization, parseSlug } = await import("../../node/files/organizations.ts");
  const { edgeParts, needsEdge } = await import("../../node/edge/parts.ts");
  const { runEdge } = await import("../../node/edge/edge.ts");
  const { isStopped } = await import("../../node/files/stopped.ts");
  const { readRevokedNote } = await import("../../node/files/revoked-notes.ts");
  const { makeOrganizationEdge } = await import("../../node/contact/organization-edge.ts");
  if (values.on("undo")) {
    if (settings.dryRun) return output.plan([]);
    requireRoot(system);
    return await undoAll(settings.configRoot, system);
  }
  const slug = parseSlug(chooseOne(settings.configRoot, values.text("org-slug")));
  const open = () => openOrganization(settings.configRoot, slug);
  const organization = open();
  if (settings.dryRun) return output.plan([]);
  requireRoot(system);
  // The executable is built for short commands (build.ts).
  Bun.unsafe.setJITPolicy(1);
  const command = `${brand.executable} edge`;
  const { control } = makeOrganizationEdge(organization, settings, { system, log, command });
  const over = new AbortController();
  for (const signal of ["SIGTERM", "SIGINT"]) process.once(signal, () => over.abort(new Error(signal)));
  const programOf = () => statSync(system.executable, { throwIfNoEntry: false })?.ino;
  const [program, replaced] = [
    programOf(),
    new AppError("failed", "An update has replaced this program: it starts again"),
  ];
  const watch = setInterval(() => {
    if (programOf() !== program) over.abort(replaced);
  }, programMs);
  const { directory } = organization;
  const isUp = () => !isStopped(directory) && readRevokedNote(directory) === undefined;
  if (!needsEdge(organization)) output.say(`${slug} needs nothing beside its engine now`);
  await runEdge(
    { slug, directory, open, control, command, log, system },
    { parts: edgeParts, isUp, isLasting: false, signal: over.signal },
  );
  clearInterval(watch);
  // systemd starts it again after a failure.
  if (over.signal.reason === replaced) throw replaced;
}

/** The services of the organizations have stopped. What root permitted stays, for a later installation. */
async function undoAll(configRoot: string, system: Context["system"]): Promise<void> {
  const { listOrganizations } = await import("../../node/files/list-organizations.ts");
  const { leaveKernel } = await import("../../node/exit/use-exit.ts");
  const { unmakeRouter } = await import("../../node/routing/router.ts");
  const { removeTables } = await import("../../platform/nftables.ts");
  for (const slug of listOrganizations(configRoot)) {
    const directory = join(configRoot, slug);
    await leaveKernel({ slug, directory }, system);
    await unmakeRouter(directory, system);
    await removeTables(slug, system);
  }
}
