// `agent ping NODE`: probes a peer once a second, and says when its path changes.

import { brand } from "../../brand.ts";
import { printable } from "../../base/log.ts";
import type { Context, Implementation } from "../command.ts";
import { daemonAddress } from "./daemon-address.ts";
import { switchFlag, valueFlag, wordArg } from "../values.ts";

export const command: Implementation = {
  notes:
    "Exit status 1: the node did not answer, or with --until-direct the path is still relayed. A node may refuse ICMP\n" +
    "by a firewall rule, and carry other traffic all the same.",
  args: {
    NODE: wordArg("The node's name, or its overlay address"),
    "org-slug": valueFlag("SLUG", "Only this organization"),
    count: valueFlag("N", "How many probes", { alias: "c", default: "4" }),
    "until-direct": switchFlag("Stop as soon as the path is direct (at most 60 probes)"),
  },
  examples: [`${brand.executable} ping beta`, `${brand.executable} ping beta --until-direct`],
  run: ping,
};

type Probe = { path: string; rtt_ms: number | null };

async function ping({ system, settings, words, values, output }: Context): Promise<number> {
  const [node = ""] = words;
  const { findPeer } = await import("../../daemon/asking/find-peer.ts");
  const { milliseconds, pathText } = await import("../../daemon/asking/peers-text.ts");
  const untilDirect = values.on("until-direct");
  const count = untilDirect ? 60 : (values.integer("count", 1, 10_000) ?? 4);
  const deps = { address: daemonAddress(settings), settings };
  const probes: Probe[] = [];
  let slug = values.text("org-slug");
  let isDirect = false;
  let name = node;
  while (probes.length < count) {
    if (probes.length > 0) await system.sleep(1000);
    // It also probes the node that it finds.
    const found = await findPeer(node, slug, deps, system);
    const { peer } = found;
    // Only the first search goes through all organizations.
    slug = found.slug;
    name = `${peer.name} (${peer.address})`;
    if (peer.this_machine === true) {
      output.result({ node: name, team: slug, ok: true, probes }, `${name} is this machine\n`);
      return 0;
    }
    const path = pathText(peer);
    const lastPath = probes.at(-1)?.path;
    isDirect = peer.path === "direct";
    const rtt = peer.rtt_ms ?? null;
    probes.push({ path, rtt_ms: rtt });
    const answer = rtt === null ? "no answer" : milliseconds(rtt);
    const change = lastPath === undefined || lastPath === path ? "" : `, changed from ${lastPath}`;
    if (!output.json) output.raw(printable(`${name}: ${answer}, ${path}${change}\n`));
    if (untilDirect && isDirect) break;
  }
  const answered = probes.filter(({ rtt_ms }) => rtt_ms !== null).length;
  const isOk = untilDirect ? isDirect : answered > 0;
  if (output.json) output.result({ node: name, team: slug, ok: isOk, probes }, "");
  else output.raw(printable(`${answered} of ${probes.length} probes answered\n`));
  return isOk ? 0 : 1;
}
