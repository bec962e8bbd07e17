// What an update in rings reads in the logs of this machine: the engine's, and the agent's own.

import type { Organization } from "../../node/files/organizations.ts";
import type { Context } from "../command.ts";

/** The lines in which the last complaint of engine or agent is looked for. */
const logLines = 200;

/** The last lines of the engine's log: of the journal in server mode, else of the file. */
export async function engineLines(
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

const maxLineLength = 500;

/** The engine's last line that complains, else its last one. */
export async function engineLine(organization: Organization, context: Context): Promise<string | undefined> {
  const { lastComplaint } = await import("../../node/engine/log-lines.ts");
  const lines = await engineLines(organization, context, logLines);
  return (lastComplaint(lines) ?? lines.findLast((line) => line.trim() !== ""))?.slice(0, maxLineLength);
}

/**
 * The last complaint of the daemon, else of the checks of server mode. A program that fails at once writes nothing: then
 * systemd says how it ended.
 */
export async function agentLine({ system }: Context): Promise<string | undefined> {
  const { authUnit, daemonUnit, journalCommand } = await import("../../platform/systemd/systemd.ts");
  const { hasSystemd } = await import("../../platform/service-manager.ts");
  if (!hasSystemd(system)) return undefined;
  for (const unit of [daemonUnit, authUnit]) {
    // Of five minutes: an older complaint is not about this update.
    const argv = journalCommand(unit, `--lines=${logLines}`, "--since=-300s");
    const { stdout } = await system.run(argv).catch(() => ({ stdout: "" }));
    const complaint = /^\S+Z (error|warn) |Main process exited, /;
    const line = stdout.split("\n").findLast((each) => complaint.test(each));
    if (line !== undefined) return line.slice(0, maxLineLength);
  }
  return undefined;
}
