// `agent peers [ORG]`: the other nodes that this one has a tunnel with, and what their tunnels are worth.

import { brand } from "../brand.ts";
import { printable } from "../log.ts";
import { jsonLine } from "./output.ts";
import { takesEscapes } from "../system.ts";
import type { Context, Implementation } from "./command.ts";
import { daemonAddress } from "./daemon-address.ts";
import { worst } from "./teams.ts";

export const command: Implementation = {
  notes:
    "Path: direct, or relayed by which node. Broken: it answered in the last ten minutes, and has stopped. Not probed: it\n" +
    "answers no ICMP, which is a firewall rule. Loss is that of the last minute; the tunnel's age is since it was first seen.",
  args: {
    ORG: { type: "positional", description: "The slug of one organization (default: all)", required: false },
    watch: { type: "boolean", description: "Show each change until Ctrl-C" },
  },
  examples: [`${brand.executable} peers`, `${brand.executable} peers acme --watch`],
  async run(context) {
    if (context.values.on("watch")) return watch(context);
    const { report, text, status } = await look(context);
    context.output.result(report, text);
    return status;
  },
};

async function look({ system, settings, words, output }: Context) {
  const { chooseSlugs } = await import("../daemon/choose-slugs.ts");
  const { readPeers } = await import("../daemon/read-peers.ts");
  const { renderPeers } = await import("../daemon/peers-text.ts");
  const chosen = chooseSlugs(settings.configRoot, words[0]);
  const edge = { address: daemonAddress(settings), settings };
  const results = await Promise.allSettled(chosen.map((each) => readPeers(each, undefined, edge, system)));
  const status = worst(
    results,
    chosen.map((slug) => ({ slug })),
    output,
  );
  const seen = results.flatMap((each, at) =>
    each.status === "fulfilled" ? [{ team: chosen[at] ?? "", ...each.value }] : [],
  );
  const now = system.now();
  const width = system.stdout.isTerminal ? system.stdout.columns : undefined;
  return {
    report: { teams: seen },
    text: seen.map(({ team, ...peers }) => renderPeers(team, peers, now, width)).join("\n"),
    status,
  };
}

const lookEveryMs = 1000;

/** Redraws a terminal that takes escape sequences; otherwise prints each change of a path. */
async function watch(context: Context): Promise<never> {
  const { system, output } = context;
  let shown = "";
  for (;;) {
    const { report, text } = await look(context);
    const redraw = !output.json && takesEscapes(system.stdout, system.env);
    const seen = JSON.stringify(report).replace(/"(age_s|rtt_ms|loss)":[\d.]+,?/g, "");
    if (redraw) output.raw(`\u001b[H\u001b[2J${printable(text)}`);
    else if (seen !== shown) output.raw(output.json ? jsonLine(report) : printable(text));
    shown = seen;
    await system.sleep(lookEveryMs);
  }
}
