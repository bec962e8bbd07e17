// `agent overlay install`: installs an overlay engine.

import { lstatSync, readlinkSync } from "node:fs";
import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import type { EngineRequest } from "../../node/engine/overlay-install.ts";
import type { Member } from "../../node/update/overlay-switch.ts";
import type { Step } from "../../base/plan/plan.ts";
import type { Context, Implementation } from "../command.ts";
import { switchFlag, valueFlag } from "../values.ts";

export const engineFlags = {
  source: valueFlag("auto|release|package|file", "Where the engine comes from", { default: "auto" }),
  version: valueFlag("V", "Install this version, even if it is older than the installed one"),
  file: valueFlag("FILE", "Install from this file: an engine or its release archive"),
  sha256: valueFlag("HEX", "Required SHA-256 of the file or archive"),
  "release-url": valueFlag("URL", "Download releases from here"),
  rollback: switchFlag("Reinstall the engine that was replaced last"),
};

export const signedListNotes =
  "An engine is downloaded only if the signed list of releases can be read, or with its hash: --sha256 HEX. Without the\n" +
  "list, --source auto asks the system's package manager, unless --release-url names a mirror.";

export const command: Implementation = {
  notes: `Organizations that run keep their engine until their next restart.\n${signedListNotes}`,
  args: engineFlags,
  examples: [
    `${brand.executable} overlay install`,
    `${brand.executable} overlay install --source package`,
    `${brand.executable} overlay install --source release --version 1.11.1 --sha256 HEX`,
    `${brand.executable} overlay install --source file --file nebula-linux-amd64.tar.gz --sha256 HEX`,
  ],
  run: (context) => runInstall(context, { restarts: false }),
};

/** Flags without an effect, by source. */
const unusedBy = {
  auto: [],
  release: ["file"],
  package: ["file", "sha256", "release-url"],
  file: ["release-url"],
} as const;

/** Which engine the flags ask for. Throws usage for flags that do not go together. */
export async function engineRequest(values: Context["values"]): Promise<EngineRequest> {
  const { isVersion } = await import("../../protocol/updates/version.ts");
  const version = values.text("version");
  if (version !== undefined && !isVersion(version)) {
    throw new AppError("usage", `--version must be a version such as 1.11.1, not "${version}"`);
  }
  const source = values.choice("source", ["auto", "release", "package", "file"]) ?? "auto";
  const unused = values.firstOf(unusedBy[source]);
  if (unused !== undefined) {
    throw new AppError("usage", `--source ${source} and --${unused} exclude each other`, {
      hint: `Leave out --${unused}, or choose another --source.`,
    });
  }
  return {
    source,
    version,
    file: values.text("file"),
    sha256: values.text("sha256"),
    releaseUrl: values.text("release-url"),
  };
}

/**
 * What was installed, as a sentence. `isFirst`: `path` had no file, and an engine of the system was in use. `link`: the target
 * of `path`, if it is a link.
 */
export function outcomeText({
  path,
  from,
  to,
  changed,
  isFirst = false,
  link,
}: {
  path: string;
  from: string | null;
  to: string;
  changed: boolean;
  isFirst?: boolean;
  link?: string | undefined;
}): string {
  if (!changed) return `${path} is already ${to}`;
  const linkText = link === undefined ? "" : `, a link to ${link}`;
  if (from === to)
    return `${path} was ${isFirst ? "made" : "replaced"}${linkText}; ${isFirst ? "the version in use" : "its version"} is still ${to}`;
  return `${path} is now ${to}${linkText}${from === null ? "" : ` (was ${from})`}`;
}

/** The target of a link; undefined for a file. */
function linkAt(path: string): string | undefined {
  return lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink() === true
    ? readlinkSync(path)
    : undefined;
}

/** For install and update: `restarts` restarts the engines that run, and fails if one does not run the new engine. */
export async function runInstall(context: Context, { restarts }: { restarts: boolean }): Promise<number> {
  const { settings, system, values, output, log } = context;
  const { installEngine } = await import("../../node/engine/overlay-install.ts");
  const { rememberEngine, rollBackEngine } = await import("../../node/engine/overlay-rollback.ts");
  const { applyChanges } = await import("../../platform/machine-changes.ts");
  const { planUnitEngine } = await import("../../node/enroll/services.ts");
  const { findEngine } = await import("../../node/engine/find-engine.ts");
  const { adaptConfigurations, examineMembers, describeMember, switchEngines } =
    await import("../../node/update/overlay-switch.ts");
  const { compareVersions } = await import("../../protocol/updates/version.ts");
  const { rememberVersions } = await import("../../node/engine/engine.ts");
  const { engineMembers } = await import("../node/engine-members.ts");
  const request = { ...(await engineRequest(values)), isUpdate: restarts };
  // The organizations of this machine, each with what examines and restarts its engine.
  const members = await engineMembers(context, { isOptional: !restarts });
  if (settings.dryRun) {
    output.plan(await plan(request, restarts ? members : [], context));
    return 0;
  }
  const isFirst = lstatSync(settings.overlayBinary, { throwIfNoEntry: false }) === undefined;
  // Before the installation: what a failure brings back.
  const restore = rememberEngine(settings, system);
  const former = findEngine(settings, system);
  const outcome = values.on("rollback")
    ? await rollBackEngine(settings, { system })
    : await installEngine(request, settings, { system, log });
  const engine = { path: outcome.path, version: outcome.to };
  // The units name the path of their engine.
  const startWith = (path: string) => applyChanges(planUnitEngine(path, settings, system), system);
  await startWith(engine.path);
  const versionOf = rememberVersions(system);
  /** False: there is nothing that it could bring back. */
  const undo = async () => {
    if (!restore()) return false;
    if (former !== undefined) await startWith(former.path);
    return true;
  };
  // An older engine may refuse settings that the newer one takes.
  if (outcome.from !== null && compareVersions(outcome.to, outcome.from) < 0)
    await adaptConfigurations(members, engine, settings.configRoot, undo, { log, system });
  const switching = { isNew: outcome.changed, former: former?.path, versionOf, log };
  if (restarts) await switchEngines(members, engine, undo, switching);
  const organizations = await examineMembers(members, engine, versionOf);
  const behind = organizations.filter(({ current }) => !current).map((each) => describeMember(each, engine));
  const text = outcomeText({ ...outcome, isFirst, link: linkAt(outcome.path) });
  if (restarts) requireNoneBehind(text, behind);
  const stepsLeft = behind.map(({ what, next }) => `${what}. Run: ${next}\n`).join("");
  output.result({ ...outcome, organizations }, `${text}\n${stepsLeft}`);
  return 0;
}

/** Throws if an organization does not run the new engine. `what`: why; `next`: what to type. */
function requireNoneBehind(text: string, behind: readonly { what: string; next: string }[]): void {
  if (behind.length === 0) return;
  throw new AppError("engine_failed", `${text}, but ${behind.map(({ what }) => what).join("; ")}`, {
    hint: `Run: ${behind.map(({ next }) => next).join("; ")}`,
  });
}

/** The plan of runInstall. Whether a running engine is another one is not known yet, so each of `members` is listed. */
async function plan(
  request: EngineRequest,
  members: readonly Member[],
  { settings, system, values }: Context,
): Promise<Step[]> {
  const { planEngine } = await import("../../node/engine/overlay-install.ts");
  const { planRollBack } = await import("../../node/engine/overlay-rollback.ts");
  const { planChanges } = await import("../../platform/machine-changes.ts");
  const { planUnitEngine } = await import("../../node/enroll/services.ts");
  const running = await Promise.all(
    members.map(async ({ plan: steps, examine }) => ((await examine()).process === undefined ? [] : steps)),
  );
  return [
    ...(values.on("rollback") ? planRollBack(settings, system) : planEngine(request, settings, system)),
    ...planChanges(planUnitEngine(settings.overlayBinary, settings, system)),
    ...running.flat(),
  ];
}
