// `agent update-run`: carries out an update in rings. The daemon, or the check of server mode, starts it.

import * as v from "valibot";
import { jsonText } from "../../base/text.ts";
import { AppError } from "../../base/errors.ts";
import type { Organization } from "../../node/files/organizations.ts";
import type { Context, Implementation } from "../command.ts";
import { asNode, orderCommand, runAlone, tunnelsOf } from "./order-run.ts";
import { switchSettings } from "./switch-settings.ts";
import { agentLine, engineLine, engineLines } from "./update-logs.ts";

/** Lines of the engine's log in which handshakes are looked for: about an hour of a node with some peers that are away. */
const handshakeLines = 5000;

export const command: Implementation = {
  notes:
    "It runs apart from the daemon, by the executable that is there before the update: that one watches the new version, and\n" +
    "brings the former one back. Without an order of the control plane it does nothing.",
  ...orderCommand("update-run"),
  async run(context) {
    const { settings, system, words, log, output } = context;
    const { openOrganization, parseSlug } = await import("../../node/files/organizations.ts");
    const slug = parseSlug(words[0] ?? "");
    const organization = openOrganization(settings.configRoot, slug);
    const { directory } = organization;
    const { carryOut, planCarryOut } = await import("../../node/update/carry-out.ts");
    if (settings.dryRun) return output.plan(planCarryOut(directory, system.executable));
    const { requireRoot } = await import("../../node/enroll/service-checks.ts");
    requireRoot(system);
    const { openEchoSocket } = await import("../../platform/network/echo-socket.ts");
    await runAlone(`update-run-${slug}.lock`, context, async () => {
      const send = await asNode(organization, context);
      await carryOut({
        slug,
        directory,
        updater: await makeUpdater(context, organization),
        tunnels: () => tunnelsOf(slug, context),
        engineLines: () => engineLines(organization, context, handshakeLines),
        logLine: (of) => (of === "agent" ? agentLine(context) : engineLine(organization, context)),
        report: (report) => send((client, nodeId) => client.reportUpdate(slug, nodeId, report)),
        openEcho: openEchoSocket,
        system,
        log,
      });
    });
  },
};

const Failure = jsonText(v.object({ error: v.object({ message: v.string() }) }));

/** Runs `agent overlay update` as a program of its own, with the places of this one. Throws its error. */
async function updateOverlay(
  words: readonly string[],
  { settings, system }: Pick<Context, "settings" | "system">,
) {
  const places = ["--config-root", settings.configRoot, "--state-db-path", settings.stateDb];
  const engine = settings.overlayBinaryGiven ? ["--overlay-binary", settings.overlayBinary] : [];
  const argv = [system.executable, "overlay", "update", ...words, "--json", ...places, ...engine];
  const result = await system.run([...argv, "--socket-path", settings.socketPath], { timeoutMs: 300_000 });
  if (result.status === 0) return;
  const parsed = v.safeParse(Failure, result.stdout);
  throw new AppError(
    "engine_failed",
    parsed.success ? parsed.output.error.message : `agent overlay update ended with status ${result.status}`,
  );
}

/** What an update in rings does on this machine (carry-out.ts). */
async function makeUpdater(context: Context, organization: Organization) {
  const { settings, system } = context;
  const { directory } = organization;
  const { findEngine } = await import("../../node/engine/find-engine.ts");
  const { engineVersion } = await import("../../node/engine/engine.ts");
  const { engineMirror } = await import("../../node/files/update-order.ts");
  const { selfUpdate, rollBackSelf } = await import("../../node/update/self-update.ts");
  const { versionOf } = await import("../../node/update/update-trial.ts");
  const { buildInfo } = await import("../../build-info.ts");
  const { restoreDaemon } = await import("../../node/update/update-guard.ts");
  const { hasSystemd } = await import("../../platform/service-manager.ts");
  const { daemonUnit } = await import("../../platform/systemd/systemd.ts");
  const { unitProperties } = await import("../../platform/systemd/unit-properties.ts");
  const overlay = (...words: string[]) => updateOverlay(words, { settings, system });
  return {
    async engineVersion() {
      const engine = findEngine(settings, system);
      return engine === undefined ? null : engineVersion(engine.path, system).catch(() => null);
    },
    lacksEngine: () => findEngine(settings, system) === undefined,
    // From source, the executable is Bun, which has another version.
    agentVersion: async () =>
      buildInfo.target === "source"
        ? buildInfo.version
        : ((await versionOf(system.executable, system)) ?? null),
    async updateEngine(version: string) {
      const mirror = engineMirror(directory);
      const url = mirror === undefined ? [] : ["--release-url", mirror];
      await overlay("--source", "release", "--version", version, ...url);
    },
    updateAgent: async (version: string) =>
      void (await selfUpdate({ version, allowDowngrade: false }, settings, system)),
    rollBackEngine: () => overlay("--rollback"),
    rollBackAgent: async () => {
      await rollBackSelf(settings, system);
      await restoreDaemon(system);
    },
    switchSettings: (order: number) => switchSettings(order, organization, context),
    async whyAgentStays() {
      const { findOwner } = await import("../../platform/packages.ts");
      return (await findOwner(system.executable, system)) === undefined
        ? undefined
        : "The agent of this machine belongs to a package, which its package manager updates";
    },
    // How often systemd has started the daemon again: more of them after an update mean that it crashes.
    async agentRestarts() {
      if (!hasSystemd(system)) return undefined;
      const restarts = (await unitProperties(daemonUnit, ["NRestarts"], system))?.NRestarts;
      return restarts === undefined ? undefined : Number(restarts);
    },
  };
}
