// `agent whois ADDRESS|NAME`: which node it is, from the names that this node may see and from its tunnel's certificate.

import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import { quoteWord } from "../../base/quote.ts";
import { daemonAddress } from "./daemon-address.ts";
import type { Implementation } from "../command.ts";
import { valueFlag, wordArg } from "../values.ts";

export const command: Implementation = {
  notes: "Groups and certificate are known of nodes that this one has a tunnel with, from engine 1.12 on.",
  args: {
    NODE: wordArg("A node's name, or an overlay address"),
    "org-slug": valueFlag("SLUG", "Only this organization"),
  },
  examples: [`${brand.executable} whois 10.42.0.7`, `${brand.executable} whois beta`],
  async run({ system, settings, words, values, output }) {
    const [node = ""] = words;
    const { findPeer } = await import("../../daemon/asking/find-peer.ts");
    const { isUnknown } = await import("../../node/health/shown-peer.ts");
    const { pathText } = await import("../../daemon/asking/peers-text.ts");
    const deps = { address: daemonAddress(settings), settings };
    const found = await findPeer(node, values.text("org-slug"), deps, system);
    const { slug, peer } = found;
    if (isUnknown(peer)) {
      throw new AppError("not_found", `No node of ${slug} is known at ${peer.address}`, {
        hint: `Nodes that no rule connects with this one are not shown. All nodes: \`${brand.executable} admin node list ${quoteWord(slug)}\`.`,
      });
    }
    const facts: [string, string | undefined][] = [
      ["node", peer.name],
      ["organization", slug],
      ["address", peer.address],
      ["role", peer.lighthouse === true ? "lighthouse" : undefined],
      ["path", peer.this_machine === true ? "this machine" : pathText(peer)],
      ["groups", peer.groups === undefined ? undefined : peer.groups.join(", ") || "none"],
      [
        "certificate",
        peer.certificate_not_after === undefined ? undefined : `until ${peer.certificate_not_after}`,
      ],
      ["fingerprint", peer.fingerprint],
    ];
    output.facts(
      { team: slug, ...peer },
      facts.flatMap(([name, value]) => (value === undefined ? [] : [[name, value] as const])),
    );
  },
};
