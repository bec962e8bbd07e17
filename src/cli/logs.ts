// `agent logs [-f] [-n N] [TEAM]`: what the engines say. The daemon reads its teams' logs for us, so that members of
// its group need no right to the files; the journal has those of mode server.

import { brand } from "../brand.ts";
import type { Command, Context } from "./command.ts";
import { printable } from "../log.ts";
import { daemonAddress } from "./daemon-address.ts";
import { worst } from "./teams.ts";

export const command: Command = {
  name: "logs",
  summary: "Show the logs of the overlay engines",
  flags: {
    follow: { type: "boolean", alias: "f", description: "Go on with what comes, until Ctrl-C" },
    lines: {
      type: "string",
      alias: "n",
      valueHint: "N",
      default: "100",
      description: "How many of the last lines",
    },
  },
  words: [{ name: "TEAM", description: "One organization's slug (default: all)" }],
  examples: [`${brand.executable} logs acme`, `${brand.executable} logs -f -n 20 acme`],
  async run(context) {
    const { settings, words, values, output, system } = context;
    const { chooseOrganizations } = await import("../node/files/organizations.ts");
    const { hasSystemd } = await import("../platform/service-manager.ts");
    const { followLog } = await import("../daemon/read-logs.ts");
    const wish = { lines: values.integer("lines", 0, 10_000) ?? 100, follow: values.on("follow") };
    const teams = chooseOrganizations(settings.configRoot, words[0], output.say);
    const reached = teams.filter(({ config }) => config.mode === "desktop" || hasSystemd(system));
    for (const { slug } of teams.filter((each) => !reached.includes(each))) {
      output.say(
        `${slug}: systemd, which keeps this log, does not run here; look where its engine was started`,
      );
    }
    const address = daemonAddress(settings);
    const logs = teams.map(({ slug }) => ({ team: slug, lines: new Array<string>() }));
    const work = reached.map(({ slug, config }) =>
      followLog({ team: slug, mode: config.mode, ...wish }, address, system, (line) => {
        if (wish.follow) output.raw(shown(context, slug, line, teams.length > 1));
        else logs.find(({ team }) => team === slug)?.lines.push(line);
      }),
    );
    const results = await Promise.allSettled(work);
    const status = worst(results, reached, output);
    if (wish.follow) return status;
    const text = logs.flatMap(({ team, lines }) =>
      lines.map((line) => shown(context, team, line, teams.length > 1)),
    );
    output.result({ logs }, text.join(""));
    return status;
  },
};

function shown({ output }: Context, team: string, line: string, several: boolean): string {
  if (output.json) return `${JSON.stringify({ team, line })}\n`;
  return printable(several ? `${team}: ${line}\n` : `${line}\n`);
}
