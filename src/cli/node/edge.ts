// `agent edge`: what an organization needs beside its engine, in the foreground. systemd runs it where it is needed.

import { statSync } from "node:fs";
import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import type { Context, Implementation } from "../command.ts";
import { switchFlag, valueFlag } from "../values.ts";

export const command: Implementation = {
  notes:
    "TCP fallback, for example: on a lighthouse with --tcp-fallback, and on a node while UDP is blocked. In desktop mode the\n" +
    "daemon does it. It ends when nothing is needed.",
  args: {
    "org-slug": valueFlag("SLUG", "The organization's slug (default: the only one)"),
    undo: switchFlag(
      "Undo what exits and routers of all organizations changed on this machine, and end its port mappings: for the uninstaller",
    ),
  },
  examples: [`${brand.executable} edge --org-slug acme`],
  run,
};

/** How often this process looks whether an update has replaced its program. */
const programCheckMs = 10_000;

async function run(context: Context): Promise<void> {
  const { settings, system, values, log, output } = context;
  if (values.on("undo")) return undo(context);
  const { requireRoot } = await import("../../node/enroll/service-checks.ts");
  const { chooseOne } = await import("../../daemon/asking/choose-slugs.ts");
  const { openOrganization, parseSlug } = await import("../../node/files/organizations.ts");
  const { edgeParts, needsEdge } = await import("../../node/edge/parts.ts");
  const { runEdge } = await import("../../node/edge/run-edge.ts");
  const { isStopped } = await import("../../node/files/stopped-by-user.ts");
  const { readRevokedNote } = await import("../../node/files/revoked-notes.ts");
  const { organizationDeps } = await import("../../node/contact/organization-deps.ts");
  const slug = parseSlug(chooseOne(settings.configRoot, values.text("org-slug")));
  const open = () => openOrganization(settings.configRoot, slug);
  const organization = open();
  // There is no plan: runEdge decides in each of its rounds which parts run.
  if (settings.dryRun) return output.plan([]);
  requireRoot(system);
  // The executable is built for short commands, and compiles code late (build.ts). This process compiles as early as usual.
  Bun.unsafe.setJITPolicy(1);
  const command = `${brand.executable} edge`;
  const { control } = organizationDeps(organization, command, context);
  const over = new AbortController();
  for (const signal of ["SIGTERM", "SIGINT"]) process.once(signal, () => over.abort(new Error(signal)));
  const inodeOf = () => statSync(system.executable, { throwIfNoEntry: false })?.ino;
  const inodeAtStart = inodeOf();
  const replaced = new AppError("failed", "An update has replaced this program: it starts again");
  const watch = setInterval(() => {
    if (inodeOf() !== inodeAtStart) over.abort(replaced);
  }, programCheckMs);
  const { directory } = organization;
  const isUp = () => !isStopped(directory) && readRevokedNote(directory) === undefined;
  if (!needsEdge(organization)) output.say(`${slug} needs nothing beside its engine now`);
  // `isLasting`: it returns once no part is needed any more.
  await runEdge(
    { slug, directory, open, control, command, log, system },
    { parts: edgeParts, isUp, isLasting: false, signal: over.signal },
  );
  clearInterval(watch);
  // systemd starts it again after a failure.
  if (over.signal.reason === replaced) throw replaced;
}

/** For the uninstaller: the services of the organizations have stopped. What root permitted stays, for a later installation. */
async function undo({ settings, system, output }: Context): Promise<void> {
  const { requireRoot } = await import("../../node/enroll/service-checks.ts");
  // The kernel shows its tables to root alone.
  requireRoot(system);
  const { applyPossible, endAllMappings, planAllMappingEnds, undoAllChanges } =
    await import("../../node/edge/undo-edge.ts");
  const { planChanges } = await import("../../platform/machine-changes.ts");
  const findChanges = () => undoAllChanges(settings.configRoot, system);
  if (settings.dryRun)
    return output.plan([...planAllMappingEnds(settings.configRoot), ...planChanges(await findChanges())]);
  await endAllMappings(settings.configRoot);
  const [left, ...others] = await applyPossible(findChanges, system);
  if (left === undefined) return;
  const more = others.length === 0 ? "" : `, and ${others.length} more`;
  throw new AppError("failed", `Not undone: ${left.path} (${left.reason})${more}`, {
    hint: `Run \`${brand.executable} edge --undo\` again; \`--dry-run\` shows what is left.`,
  });
}
