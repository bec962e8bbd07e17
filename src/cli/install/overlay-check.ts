// `agent overlay check`: whether an engine is installed, its version, and its known vulnerabilities.

import { brand } from "../../brand.ts";
import type { Implementation } from "../command.ts";

export const command: Implementation = {
  notes: "Exit status 0 if an engine is installed, 1 if not.",
  examples: [`${brand.executable} overlay check`, `${brand.executable} overlay check --json`],
  async run({ settings, system, output }) {
    const { advisoriesFor } = await import("../../engine/features.ts");
    const { findEngine } = await import("../../node/engine/find-engine.ts");
    const engine = findEngine(settings, system);
    if (engine === undefined) {
      output.result(
        { installed: false, path: settings.overlayBinary, version: null, source: null, advisories: [] },
        `There is no overlay engine at ${settings.overlayBinary}. Install one: ${brand.executable} overlay install\n`,
      );
      return 1;
    }
    const { engineVersion } = await import("../../node/engine/engine.ts");
    const version = await engineVersion(engine.path, system);
    const advisories = advisoriesFor(version);
    const missing = engine.path === settings.overlayBinary ? "" : ` (${settings.overlayBinary} is missing)`;
    const origin = engine.source === "package" ? ", from a package of the system" : "";
    output.result(
      { installed: true, path: engine.path, version, source: engine.source, advisories },
      [
        `${engine.path} ${version}${origin}${missing}`,
        ...advisories.map(({ id, severity, fixed_in }) => `${id} (${severity}) is fixed in ${fixed_in}`),
        "",
      ].join("\n"),
    );
    return 0;
  },
};
