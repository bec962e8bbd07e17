// `agent update-run`: carries out an update in rings. The daemon, or the check of server mode, starts it.

import * as v from "valibot";
import { brand } from "../../brand.ts";
import type { Organization } from "../../node/files/organizations.ts";
import type { Context, Implementation } from "../command.ts";
import { asNode, orderCommand, runAlone, tunnelsOf } from "./order-run.ts";

/** In these the last complaint of engine or agent is looked for. */
const logLines = 200;
/** About an hour of a node with some peers that are away. */
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
    const { requireRoot } = await import("../../node/enroll/services.ts");
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

/** The last lines of the engine's log: of the journal in server mode, else of the file. */
async function engineLines(
  { slug, directory, config }: Organization,
  { settings, system }: Context,
  count: number,
): Promise<string[]> {
  const { dirname, join } = await import("node:path");
  const { lastLines } = await import("../../node/engine/engine-log.ts");
  const { isRunByUnits } = await import("../../node/engine/systemd-engine.ts");
  const { engineUnit, journalCommand } = await import("../../platform/systemd/systemd.ts");
  // The mode decides, not the file: a node that was in desktop mode before has one of that time.
  if (!isRunByUnits({ directory, mode: config.mode }, system))
    return lastLines(join(dirname(settings.stateDb), "logs", `${slug}.log`), count);
  const argv = journalCommand(engineUnit(slug), `--lines=${count}`);
  return ((await system.run(argv).catch(() => undefined))?.stdout ?? "").split("\n");
}

/** The last line that complains, else the last one. */
async function engineLine(organization: Organization, context: Context): Promise<string | undefined> {
  const { lastComplaint } = await import("../../node/engine/log-lines.ts");
  const lines = await engineLines(organization, context, logLines);
  return (lastComplaint(lines) ?? lines.findLast((line) => line.trim() !== ""))?.slice(0, 500);
}

/**
 * The last complaint of the daemon, else of the checks of server mode. A program that fails at once writes nothing: then
 * systemd says how it ended.
 */
async function agentLine({ system }: Context): Promise<string | undefined> {
  const { authUnit, daemonUnit, journalCommand } = await import("../../platform/systemd/systemd.ts");
  const { hasSystemd } = await import("../../platform/service-manager.ts");
  if (!hasSystemd(system)) return undefined;
  for (const unit of [daemonUnit, authUnit]) {
    const argv = journalCommand(unit, `--lines=${logLines}`, "--since=-300s");
    const { stdout } = await system.run(argv).catch(() => ({ stdout: "" }));
    const complaint = /^\S+Z (error|warn) |Main process exited, /;
    const line = stdout.split("\n").findLast((each) => complaint.test(each));
    if (line !== undefined) return line.slice(0, 500);
  }
  return undefined;
}

/** The settings come with the check-in that brings the order, or with the next one. */
const settingsComeWithinMs = 120_000;
/** The control plane may be away: then this process applies the settings itself, and the daemon goes on asking. */
const daemonAnswersWithinMs = 15_000;

/**
 * Puts the chosen settings into force: those of this order, or the former ones when the order is taken back (update-order.ts).
 * Throws if the engine does not run with them.
 */
async function switchSettings(order: number, organization: Organization, context: Context): Promise<void> {
  const { settings, system, log } = context;
  const { readSyncState } = await import("../../node/files/generations.ts");
  const { chosenSettings } = await import("../../node/files/update-order.ts");
  const { hasChosenSettings, makeLocalSync } = await import("../../node/contact/local-sync.ts");
  const { AppError } = await import("../../base/errors.ts");
  const { within } = await import("../../base/within.ts");
  const readState = () => readSyncState(organization.directory);
  const end = system.monotonic() + settingsComeWithinMs;
  while (chosenSettings(organization.directory) === order && readState()?.settings?.order !== order) {
    if (system.monotonic() > end) throw new AppError("not_found", "The settings have not come");
    await system.sleep(500);
  }
  const { engineMembers } = await import("../node/engine-members.ts");
  const member = (await engineMembers(context, { isOptional: true })).find(
    ({ slug }) => slug === organization.slug,
  );
  const findPid = async () => (await member?.examine())?.process?.pid;
  const pidBefore = await findPid();
  const { syncThroughDaemon } = await import("../node/through-daemon.ts");
  const asked = syncThroughDaemon(organization, context).catch(() => undefined);
  await within(system, daemonAnswersWithinMs, asked, undefined);
  const { organizationDeps } = await import("../../node/contact/organization-deps.ts");
  const deps = organizationDeps(organization, settings, {
    system,
    log,
    command: `${brand.executable} update-run`,
  });
  const state = await makeLocalSync(organization, deps)().then((known) => known ?? readState());
  if (state === undefined || hasChosenSettings(organization, state)) {
    // Restart an engine that only reloaded: much of what a reload takes matters to new tunnels alone, so that a bad setting
    // would cut off the node later, when nobody watches.
    const pid = await findPid();
    if (pid !== undefined && pid === pidBefore) await member?.restart?.();
    return;
  }
  const { wholeConfiguration } = await import("../../engine/left-out.ts");
  const refused = state.left_out?.find(({ key }) => key === wholeConfiguration);
  throw new AppError("engine_failed", refused?.reason ?? "The settings could not be put into force");
}

const Failure = v.pipe(v.string(), v.parseJson(), v.object({ error: v.object({ message: v.string() }) }));

/** Runs `agent overlay update`, as a program of its own. Throws its error. */
async function updateOverlay(
  words: readonly string[],
  { settings, system }: Pick<Context, "settings" | "system">,
) {
  const { AppError } = await import("../../base/errors.ts");
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
  const { findEngine } = await import("../../node/engine/overlay.ts");
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
  const installed = async () => {
    const found = findEngine(settings, system);
    return found === undefined ? null : engineVersion(found.path, system).catch(() => null);
  };
  return {
    engineVersion: installed,
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
    async agentRestarts() {
      if (!hasSystemd(system)) return undefined;
      const restarts = (await unitProperties(daemonUnit, ["NRestarts"], system))?.NRestarts;
      return restarts === undefined ? undefined : Number(restarts);
    },
  };
}
