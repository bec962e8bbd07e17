// `agent logs [-f] [-n N] [ORG]`: the logs of the engines. In desktop mode the daemon reads the files, so that members of
// its group need no access to them. In server mode the logs are in the journal.

import { brand } from "../../brand.ts";
import type { Implementation } from "../command.ts";
import { printable } from "../../base/log.ts";
import { jsonLine } from "../output.ts";
import { daemonAddress } from "./daemon-address.ts";
import { anyOrgArg, outcomeOf, reportFailures } from "./organizations.ts";
import { switchFlag, valueFlag } from "../values.ts";

export const command: Implementation = {
  args: {
    ...anyOrgArg,
    raw: switchFlag("Print the engine's lines as they are"),
    follow: switchFlag("Print new lines until Ctrl-C", { alias: "f" }),
    lines: valueFlag("N", "How many lines to show at first", { alias: "n", default: "100" }),
  },
  examples: [`${brand.executable} logs acme`, `${brand.executable} logs -f -n 20 acme`],
  async run(context) {
    const { settings, words, values, output, system } = context;
    const { chooseOrganizations } = await import("../../node/files/organizations.ts");
    const { hasSystemd } = await import("../../platform/service-manager.ts");
    const { followLog } = await import("../../daemon/asking/read-logs.ts");
    const { readableLine } = await import("../../daemon/asking/log-text.ts");
    const textOf = values.on("raw") ? (line: string) => line : readableLine;
    const range = { lines: values.integer("lines", 0, 10_000) ?? 100, follow: values.on("follow") };
    const organizations = chooseOrganizations(settings.configRoot, words[0], output.say);
    const reached = organizations.filter(({ config }) => config.mode === "desktop" || hasSystemd(system));
    for (const { slug } of organizations.filter((each) => !reached.includes(each))) {
      output.say(
        `${slug}: its log is in the journal of systemd, which does not run here. See where its engine was started.`,
      );
    }
    const lineText = (line: string, slug: string) => {
      if (output.json) return jsonLine({ team: slug, line });
      const prefix = organizations.length > 1 ? `${slug}: ` : "";
      return printable(`${prefix}${textOf(line)}\n`);
    };
    const address = daemonAddress(settings);
    const logs = organizations.map(({ slug }) => ({ team: slug, lines: new Array<string>() }));
    const outcomes = await Promise.all(
      reached.map(({ slug, directory, config }) => {
        const request = { slug, directory, mode: config.mode, ...range };
        const work = followLog(request, address, system, (line) => {
          if (range.follow) output.raw(lineText(line, slug));
          else logs.find(({ team }) => team === slug)?.lines.push(line);
        });
        return outcomeOf(slug, work);
      }),
    );
    const status = reportFailures(outcomes, output);
    if (range.follow) return status;
    const printed = logs.flatMap(({ team: slug, lines }) => lines.map((line) => lineText(line, slug)));
    output.result({ logs }, printed.join(""));
    return status;
  },
};
