// `agent admin flow …`: who talks to whom on what, as nodes report it.

import type { AnswerOf } from "../../../api/endpoint.ts";
import { flowsApi, maxFlows } from "../../../api/flows.ts";
import { brand } from "../../../brand.ts";
import { given } from "../../../base/given.ts";
import { quoteWord } from "../../../base/quote.ts";
import type { Implementation } from "../../command.ts";
import { orgArg } from "../../server/server-flags.ts";
import { read } from "../api.ts";
import { momentOf } from "../events.ts";
import { nodeByName } from "../lookup.ts";
import { switchFlag, valueFlag } from "../../values.ts";

export const list: Implementation = {
  args: {
    ...orgArg,
    from: valueFlag("NODE", "Only flows that this node began"),
    to: valueFlag("NODE", "Only flows to this node"),
    since: valueFlag(
      "TIME",
      "Only flows since then: 24h (ago), 2026-11-22 or 2026-11-22T08:00:00Z, in UTC (default: 7d)",
    ),
    unanswered: switchFlag("Only flows that nothing answered: a missing rule, or a scan"),
    limit: valueFlag("N", `How many kinds, at most ${maxFlows}`, { default: "200" }),
  },
  notes: `Nodes report flows where the organization wants it: \`${brand.executable} admin org update ORG --flows on\`. Counts are of
whole days (UTC). A flow that an engine refuses is seen by its sender alone. Each run is an event of the audit log.`,
  examples: [
    `${brand.executable} admin flow list acme --from web --to db --since 7d`,
    `${brand.executable} admin flow list acme --unanswered --since 24h`,
  ],
  async run(context) {
    const { values, words, output, system } = context;
    const [slug = ""] = words;
    const since = momentOf(values, "since", system);
    const limit = values.integer("limit", 1, maxFlows)?.toString();
    const unanswered = values.on("unanswered") ? "true" : "false";
    const found = await read(context, async (api) => {
      const idOf = async (flag: "from" | "to") => {
        const name = values.text(flag);
        return name === undefined ? undefined : String((await nodeByName(api, slug, name)).id);
      };
      const query = given({ from: await idOf("from"), to: await idOf("to"), since, limit });
      return api.call(flowsApi.list, { slug }, { ...query, unanswered });
    });
    output.list(found, {
      columns: ["FROM", "TO", "PROTOCOL", "PORT", "FLOWS", "UNANSWERED", "SEEN BY", "LAST"],
      rows: found.flows.map(rowOf),
      none: found.wanted
        ? "No flows are reported."
        : `The organization does not ask for flows: \`${brand.executable} admin org update ${quoteWord(slug)} --flows on\`.`,
    });
    for (const note of notesOn(found)) output.say(note);
  },
};

type Flows = AnswerOf<typeof flowsApi.list>;

function rowOf(flow: Flows["flows"][number]): (string | number | null)[] {
  const { protocol, port, flows, unanswered, seen_by: side, last_at: last } = flow;
  // The reporting node has a name, so `address` stands for its peer.
  const [from, to] = [flow.from_name ?? flow.address, flow.to_name ?? flow.address];
  return [from, to, protocol, port, flows, unanswered, side, last];
}

function notesOn({ wanted, left_out: leftOut, uncounted, nodes, silent }: Flows): string[] {
  const more = silent.count - silent.first.length;
  const names = `${silent.first.join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
  return [
    ...(leftOut > 0
      ? [`${leftOut} more kinds of flows are left out: ask for less, or for a higher --limit.`]
      : []),
    ...(uncounted > 0 ? [`${uncounted} flows more were seen, in too many kinds to list them.`] : []),
    ...(wanted && silent.count > 0
      ? [`${silent.count} of ${nodes} nodes reported nothing within the last hour: ${names}.`]
      : []),
  ];
}
