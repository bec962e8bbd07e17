// `agent admin path …`: how nodes reach their peers.

import { pathKinds, pathsApi, probeResults } from "../../../api/paths/paths.ts";
import { brand } from "../../../brand.ts";
import type { Implementation } from "../../command.ts";
import { given } from "../../../base/given.ts";
import { orgArg } from "../../server/server-flags.ts";
import { read } from "../api.ts";
import { nodeByName } from "../lookup.ts";
import { valueFlag } from "../../values.ts";

export const list: Implementation = {
  args: {
    ...orgArg,
    node: valueFlag("NODE", "Only the paths of this node"),
    path: valueFlag("direct|relayed|none|unknown", "Only paths of this kind"),
    probe: valueFlag(
      "answers|broken|not_probed",
      "Only paths whose probes are answered, are no longer answered, or were not sent",
    ),
  },
  examples: [
    `${brand.executable} admin path list acme`,
    `${brand.executable} admin path list acme --probe broken`,
  ],
  async run(context) {
    const { values, words, output } = context;
    const [slug = ""] = words;
    const node = values.text("node");
    const filters = given({
      path: values.choice("path", pathKinds),
      probe: values.choice("probe", probeResults),
    });
    const paths = await read(context, async (api) => {
      if (node === undefined) return api.all(pathsApi.list, { slug }, filters);
      const { id } = await nodeByName(api, slug, node);
      return api.all(pathsApi.ofNode, { slug, id }, filters);
    });
    output.list(
      { paths },
      {
        columns: ["NODE", "PEER", "PATH", "PROBE", "ROUND TRIP", "LOSS", "REPORTED"],
        rows: paths.map((each) => [
          each.node_name,
          each.peer_name ?? each.peer_address,
          wayOf(each),
          each.probe.replace("_", " "),
          each.rtt_ms === null ? null : `${each.rtt_ms} ms`,
          each.loss === null ? null : `${Math.round(each.loss * 100)} %`,
          each.reported_at,
        ]),
        none: "No paths are reported.",
      },
    );
  },
};

/** `direct 203.0.113.7:4242`, `relayed by lh1`. */
function wayOf({ path, remote, relays }: { path: string; remote: string | null; relays: string[] }): string {
  if (path === "direct" && remote !== null) return `direct ${remote}`;
  return path === "relayed" && relays.length > 0 ? `relayed by ${relays.join(", ")}` : path;
}
