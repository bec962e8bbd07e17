// `agent peers [ORG]`: the other nodes that this one has a tunnel with, and what their tunnels are worth.

import { brand } from "../../brand.ts";
import type { Context, Implementation } from "../command.ts";
import { daemonAddress } from "./daemon-address.ts";
import { anyOrgArg, outcomeOf, reportFailures } from "./organizations.ts";
import { switchFlag } from "../values.ts";

/** Fields that change all the time: a watch prints no line for them alone. */
const volatileFields = /"(age_s|rtt_ms|loss)":[\d.]+,?/g;

export const command: Implementation = {
  notes:
    "Path: direct, or relayed by which node. Broken: it answered in the last ten minutes, and has stopped. Not probed: it\n" +
    "answers no ICMP, which is a firewall rule. Loss is that of the last minute; the tunnel's age is since it was first seen.",
  args: {
    ...anyOrgArg,
    watch: switchFlag("Show each change until Ctrl-C"),
  },
  examples: [`${brand.executable} peers`, `${brand.executable} peers acme --watch`],
  async run(context) {
    if (context.values.on("watch")) {
      const { watch } = await import("./watch.ts");
      return watch(context, () => readReport(context), volatileFields);
    }
    const { report, text, status } = await readReport(context);
    context.output.result(report, text);
    return status;
  },
};

async function readReport({ system, settings, words, output }: Context) {
  const { chooseSlugs } = await import("../../daemon/asking/choose-slugs.ts");
  const { readPeers } = await import("../../daemon/asking/read-peers.ts");
  const { renderPeers } = await import("../../daemon/asking/peers-text.ts");
  const chosen = chooseSlugs(settings.configRoot, words[0]);
  const deps = { address: daemonAddress(settings), settings };
  const outcomes = await Promise.all(
    chosen.map((slug) => outcomeOf(slug, readPeers({ slug }, deps, system))),
  );
  const status = reportFailures(outcomes, output);
  const views = outcomes.flatMap((each) => ("value" in each ? [{ team: each.slug, ...each.value }] : []));
  const now = system.now();
  const width = system.stdout.isTerminal ? system.stdout.columns : undefined;
  return {
    report: { teams: views },
    text: views.map(({ team, ...peers }) => renderPeers(team, peers, now, width)).join("\n"),
    status,
  };
}
