// `agent admin node show`: all of one node. A new column of nodes gets a line in `factsOf`.

import { brand } from "../../../brand.ts";
import { describeDataPlane } from "../../../engine/data-plane-words.ts";
import { joinHostPort } from "../../../base/ip.ts";
import { groupsByOwner } from "../../../protocol/shown-groups.ts";
import type { Node } from "../../../protocol/node.ts";
import type { Implementation } from "../../command.ts";
import { orgArg } from "../../server/server-flags.ts";
import type { Cell, Facts } from "../../table.ts";
import { read } from "../api.ts";
import { nodeArg, nodeByName } from "../lookup.ts";
import { ownerOf, ownersOf, roleOf, stateOf } from "./node-cells.ts";

export const show: Implementation = {
  args: { ...orgArg, ...nodeArg },
  examples: [`${brand.executable} admin node show acme laptop`],
  async run(context) {
    const [slug = "", name = ""] = context.words;
    const { node, owners } = await read(context, async (api) => {
      const found = await nodeByName(api, slug, name);
      return { node: found, owners: context.output.json ? new Map() : await ownersOf(api, slug, [found]) };
    });
    context.output.facts(node, await factsOf(node, ownerOf(node, owners), context.system.now()));
  },
};

/** What an administrator sees and chooses, then what the node has and reports. `owner`: "" for the organization. `now`: ms since 1970. */
async function factsOf(node: Node, owner: string, now: number): Promise<Facts> {
  const { daysLeft, roughly } = await import("../../../daemon/asking/text-table.ts");
  const { public_ip: ip, external_port: port, certificate, config_overrides: overrides } = node;
  const lastSeenAgoS = node.last_checkin_at === null ? 0 : (now - Date.parse(node.last_checkin_at)) / 1000;
  const byOwner = groupsByOwner(node);
  return [
    ["name", node.name],
    ["state", stateOf(node, now)],
    ...(node.revoked_at === null ? [] : [["revoked", node.revoked_at] as const]),
    ["address", [node.ip_address, ...(node.ip_address6 === null ? [] : [node.ip_address6])].join(", ")],
    ["role", roleOf(node) || "node"],
    ...(ip === null ? [] : [["public address", port === null ? ip : joinHostPort(ip, port)] as const]),
    ["groups", node.groups.join(", ")],
    ...(byOwner.length === 0 ? [] : [["groups by its owner", byOwner.join(", ")] as const]),
    ["subnets", node.subnets.join(", ")],
    ...(node.exit_groups?.length ? [["exit for", node.exit_groups.join(", ")] as const] : []),
    ["owner", owner || "the organization"],
    ...Object.entries(overrides).map(([key, value]) => [`override ${key}`, JSON.stringify(value)] as const),
    ["certificate", certificateOf(certificate, daysLeft(certificate?.not_after ?? "", now))],
    ["fingerprint", certificate?.fingerprint ?? null],
    ["configuration", configurationOf(node)],
    ...(node.phone == null ? [] : [["import again", importOf(node.phone)] as const]),
    [
      "last check-in",
      node.last_checkin_at === null ? "never" : `${node.last_checkin_at}, ${roughly(lastSeenAgoS)} ago`,
    ],
    ["mode", node.ephemeral === true ? `${node.mode ?? "-"}, ephemeral` : node.mode],
    ["engine", node.overlay_version],
    ...(node.data_plane == null ? [] : [["packets", describeDataPlane(node.data_plane)] as const]),
    ["agent", node.agent_version],
    ["platform", node.platform],
    ["created", node.created_at],
    ["number", node.id],
  ];
}

function certificateOf(certificate: Node["certificate"], left: string): Cell {
  if (certificate === null) return null;
  const { not_after: end, version } = certificate;
  const text = `until ${end} (${left}), version ${version}`;
  return left === "expired" ? { text, mark: "bad" } : text;
}

function importOf({ import_by }: NonNullable<Node["phone"]>): Cell {
  return import_by === null
    ? { text: "now: CAs, groups or name have changed", mark: "wait" }
    : `before ${import_by}`;
}

function configurationOf(node: Node): Cell {
  const { config_version: newest, applied_config_version: applied, phone } = node;
  if (phone != null) return `of the import at ${phone.imported_at}`;
  if (applied === null) return `version ${newest}; the node has not reported one`;
  if (applied >= newest) return `version ${newest}, applied`;
  return { text: `version ${newest}; the node has version ${applied}`, mark: "wait" };
}
