// `agent status [TEAM]`: what people run most, so it loads the least. The daemon answers for teams of mode desktop;
// systemd is asked only where there are teams of mode server.

import { brand } from "../brand.ts";
import { AppError } from "../errors.ts";
import { printable } from "../log.ts";
import type { Command, Context } from "./command.ts";
import { daemonAddress } from "./daemon-address.ts";

export const command: Command = {
  name: "status",
  summary: "Show the teams of this machine and how they do",
  notes: "Exit status 3: there are teams for the daemon, and it is not reachable.",
  flags: {
    watch: { type: "boolean", description: "Show it again whenever something changes, until Ctrl-C" },
  },
  words: [{ name: "TEAM", description: "One organization's slug (default: all)" }],
  examples: [`${brand.executable} status`, `${brand.executable} status acme --json`],
  async run(context) {
    if (context.values.on("watch")) return watch(context);
    const { report, text, status } = await look(context);
    context.output.result(report, text);
    return status;
  },
};

async function look({ system, settings, words }: Context) {
  const [team] = words;
  const { isDaemonMissed, readStatus, renderStatus } = await import("../daemon/status-report.ts");
  // Not spread: that would ask whether the output is a terminal, which costs as much as all the rest.
  const places = { configRoot: settings.configRoot, address: daemonAddress(settings) };
  const report = await readStatus(places, team, system);
  if (team !== undefined && report.teams.length === 0) {
    throw new AppError("not_registered", `There is no team "${team}" on this machine`, {
      hint: `\`${brand.executable} status\` shows all; register it with \`${brand.executable} register --org-slug ${team} …\`.`,
    });
  }
  return { report, text: renderStatus(report, system.now()), status: isDaemonMissed(report) ? 3 : 0 };
}

const lookEveryMs = 1000;

/** On a terminal the picture is redrawn, else each change is printed. */
async function watch(context: Context): Promise<never> {
  const { system, output } = context;
  let shown = "";
  for (;;) {
    const { report, text } = await look(context);
    const redraw = !output.json && system.stdout.isTerminal;
    // Seconds that pass are no change.
    const seen = JSON.stringify(report).replace(/"uptime_s":\d+,?/g, "");
    if (redraw) output.raw(`\u001b[H\u001b[2J${printable(text)}`);
    else if (seen !== shown) output.raw(output.json ? `${JSON.stringify(report)}\n` : printable(text));
    shown = seen;
    await system.sleep(lookEveryMs);
  }
}
