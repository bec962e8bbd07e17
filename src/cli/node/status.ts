// `agent status [ORG]`: the most used command, so it loads the least. The daemon reports organizations in desktop mode;
// systemd is asked only about those in server mode.

import { brand } from "../../brand.ts";
import type { StatusReport } from "../../daemon/asking/status-report.ts";
import type { Context, Implementation } from "../command.ts";
import { daemonAddress } from "./daemon-address.ts";
import { anyOrgArg } from "./organizations.ts";
import { switchFlag } from "../values.ts";

/** Fields that change all the time: a watch prints no line for them alone. */
const volatileFields = /"(uptime_s":\d+|checked_at":"[^"]*"),?/g;

export const command: Implementation = {
  notes:
    "Running: the engine runs, and a lighthouse answered within 15 seconds. Degraded: it runs, and traffic does not pass.\n" +
    "With --check, exit status 1: an organization is degraded, or does not run although it should; or none runs. One that\n" +
    "a user has stopped does not count while others run, unless it is ORG.\n" +
    "Exit status 3: an organization is in desktop mode, and the daemon is not reachable.",
  args: {
    ...anyOrgArg,
    check: switchFlag("Probe now; exit status 1 if traffic does not pass"),
    peers: switchFlag("Show the peers, as `agent peers` does"),
    watch: switchFlag("Show each change until Ctrl-C"),
  },
  examples: [`${brand.executable} status`, `${brand.executable} status acme --json`],
  async run(context) {
    if (context.values.on("peers")) return (await import("./peers.ts")).command.run(context);
    if (context.values.on("watch")) {
      const { watch } = await import("./watch.ts");
      return watch(context, () => readReport(context), volatileFields);
    }
    const { report, text, status } = await readReport(context);
    context.output.result(report, text);
    return status;
  },
};

async function readReport({ system, settings, words, values }: Context) {
  const [slug] = words;
  const isProbed = values.on("check");
  const { areHealthy, isDaemonMissed, readStatus } = await import("../../daemon/asking/status-report.ts");
  const { renderStatus } = await import("../../daemon/asking/status-text.ts");
  // Not `...settings`: that reads `color`, which costs as much as the rest of the command.
  const { configRoot, stateDb } = settings;
  const places = { configRoot, stateDb, address: daemonAddress(settings) };
  const probing = isProbed
    ? {
        probe: await import("../../daemon/asking/probe-now.ts").then(
          ({ probeNow }) =>
            (read: StatusReport) =>
              probeNow(read, settings, system),
        ),
      }
    : {};
  const report = await readStatus(places, { slug, ...probing }, system);
  if (slug !== undefined && report.teams.length === 0) {
    const { notRegistered } = await import("../../node/files/list-organizations.ts");
    throw notRegistered(settings.configRoot, slug);
  }
  const status = isProbed && !areHealthy(report, slug) ? 1 : 0;
  const width = system.stdout.isTerminal ? system.stdout.columns : undefined;
  return {
    report,
    text: renderStatus(report, system.now(), width),
    status: isDaemonMissed(report) ? 3 : status,
  };
}
