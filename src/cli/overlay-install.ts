// `agent overlay install`: puts an overlay engine in its place.

import { brand } from "../brand.ts";
import { AppError } from "../errors.ts";
import type { Command, Context, Flags } from "./command.ts";

export const engineFlags: Flags = {
  source: {
    type: "string",
    valueHint: "auto|release|package|file",
    default: "auto",
    description: "Where it comes from",
  },
  version: {
    type: "string",
    valueHint: "V",
    description: "This version, also if it is lower than the present one",
  },
  file: {
    type: "string",
    valueHint: "FILE",
    description: "An engine, or its release archive, on this machine",
  },
  sha256: { type: "string", valueHint: "HEX", description: "What the file or archive must have" },
  "release-url": { type: "string", valueHint: "URL", description: "Take releases from here" },
  rollback: { type: "boolean", description: "Bring back the engine that was replaced last" },
};

export const command: Command = {
  name: "overlay install",
  summary: "Download and install the overlay engine",
  flags: engineFlags,
  examples: [
    `${brand.executable} overlay install`,
    `${brand.executable} overlay install --source package`,
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
    throw new AppError("usage", `--version takes a number such as 1.11.1, not "${version}"`);
  }
  const source = values.choice("source", ["auto", "release", "package", "file"]) ?? "auto";
  const unused = unusedBy[source].find((flag) => values.text(flag) !== undefined);
  if (unused !== undefined) {
    throw new AppError("usage", `--source ${source} takes no --${unused}`, {
      hint: "Leave it out, or choose another --source.",
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

/** Shared by install and update; `afterChange` runs before the result is printed. */
export async function runInstall(
  { settings, system, values, output, log }: Context,
  afterChange: (outcome: { path: string; to: string }) => Promise<void> = async () => {},
): Promise<number> {
  const { installEngine, planEngine, planRollBack, rollBackEngine } =
    await import("../node/engine/overlay-install.ts");
  const request = await engineRequest(values);
  if (settings.dryRun) {
    output.plan(values.on("rollback") ? planRollBack(settings) : planEngine(request, settings, system));
    return 0;
  }
  const outcome = values.on("rollback")
    ? await rollBackEngine(settings, { system, log })
    : await installEngine(request, settings, { system, log });
  if (outcome.changed) await afterChange(outcome);
  output.result(
    outcome,
    outcome.changed
      ? `${outcome.path} is now ${outcome.to}${outcome.from === null ? "" : `, was ${outcome.from}`}\n`
      : `${outcome.path} is ${outcome.to} already\n`,
  );
  return 0;
}
