// `agent overlay install`: installs an overlay engine.

import { brand } from "../brand.ts";
import { AppError } from "../errors.ts";
import type { Step } from "../plan.ts";
import type { Context, Implementation } from "./command.ts";
import type { Flags } from "./values.ts";

export const engineFlags: Flags = {
  source: {
    type: "string",
    valueHint: "auto|release|package|file",
    default: "auto",
    description: "Where the engine comes from",
  },
  version: {
    type: "string",
    valueHint: "V",
    description: "Install this version, even if it is older than the installed one",
  },
  file: {
    type: "string",
    valueHint: "FILE",
    description: "Install from this file: an engine or its release archive",
  },
  sha256: { type: "string", valueHint: "HEX", description: "Required SHA-256 of the file or archive" },
  "release-url": { type: "string", valueHint: "URL", description: "Download releases from here" },
  rollback: { type: "boolean", description: "Reinstall the engine that was replaced last" },
};

export const signedListNotes =
  "An engine is downloaded only if the signed list of releases can be read, or with its hash: --sha256 HEX. Without the\n" +
  "list, --source auto asks the system's package manager, unless --release-url names a mirror.";

export const command: Implementation = {
  notes: signedListNotes,
  args: engineFlags,
  examples: [
    `${brand.executable} overlay install`,
    `${brand.executable} overlay install --source package`,
    `${brand.executable} overlay install --source release --version 1.11.1 --sha256 HEX`,
    `${brand.executable} overlay install --source file --file nebula-linux-amd64.tar.gz --sha256 HEX`,
  ],
  run: (context) => runInstall(context),
};

const unusedBy = {
  auto: [],
  release: ["file"],
  package: ["file", "sha256", "version", "release-url"],
  file: ["release-url"],
} as const;

export async function engineRequest(values: Context["values"]) {
  const { isVersion } = await import("../release/version.ts");
  const version = values.text("version");
  if (version !== undefined && !isVersion(version)) {
    throw new AppError("usage", `--version must be a version such as 1.11.1, not "${version}"`);
  }
  const source = values.choice("source", ["auto", "release", "package", "file"]) ?? "auto";
  const unused = unusedBy[source].find((flag) => values.text(flag) !== undefined);
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

/** For install and update. `afterChange` runs before the result is printed; `planAfter` is its plan. */
export async function runInstall(
  { settings, system, values, output, log }: Context,
  afterChange: (outcome: { path: string; to: string }) => Promise<void> = async () => {},
  planAfter: () => Promise<Step[]> = async () => [],
): Promise<number> {
  const { installEngine, planEngine, planRollBack, rollBackEngine } =
    await import("../node/engine/overlay-install.ts");
  const request = await engineRequest(values);
  if (settings.dryRun) {
    const engine = values.on("rollback") ? planRollBack(settings) : planEngine(request, settings, system);
    output.plan([...engine, ...(await planAfter())]);
    return 0;
  }
  const outcome = values.on("rollback")
    ? await rollBackEngine(settings, { system, log })
    : await installEngine(request, settings, { system, log });
  if (outcome.changed) await afterChange(outcome);
  output.result(
    outcome,
    outcome.changed
      ? `${outcome.path} is now ${outcome.to}${outcome.from === null ? "" : ` (was ${outcome.from})`}\n`
      : `${outcome.path} is already ${outcome.to}\n`,
  );
  return 0;
}
