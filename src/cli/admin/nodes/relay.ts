// `agent admin relay …`: what relays forward for others, and their monthly limits.

import { relaysApi } from "../../../api/paths/relays.ts";
import { request } from "../../../api/request.ts";
import { brand } from "../../../brand.ts";
import { formatSize, parseSize } from "../../../base/quantities.ts";
import { AppError } from "../../../base/errors.ts";
import type { Implementation } from "../../command.ts";
import { orgArg } from "../../server/server-flags.ts";
import { read, write } from "../api.ts";
import { nodeByName } from "../lookup.ts";
import { wordArg } from "../../values.ts";

const sizeOf = (bytes: number | null) => (bytes === null ? null : formatSize(bytes));

export const list: Implementation = {
  notes:
    "FORWARDED: what the relay sent on for other nodes in this month (UTC), with the headers of the underlay.\n" +
    "Relays on Linux with nftables count; for others it is empty.",
  args: orgArg,
  examples: [`${brand.executable} admin relay list acme`],
  async run(context) {
    const [slug = ""] = context.words;
    const relays = await read(context, (api) => api.call(relaysApi.list, { slug }));
    context.output.list(
      { relays },
      {
        columns: ["RELAY", "FORWARDED", "LIMIT", "STATE", "REPORTED"],
        rows: relays.map((each) => [
          each.node_name,
          sizeOf(each.bytes),
          sizeOf(each.limit_bytes),
          each.paused ? "paused until the next month" : "in use",
          each.reported_at,
        ]),
        none: `${slug} has no relay.`,
      },
    );
  },
};

export const limit: Implementation = {
  notes:
    "A relay that reaches its limit is left out of all configurations until the next month (UTC). Nodes that need it use\n" +
    "other relays, or lose each other. The limit is looked at about once a minute, so a little more may be forwarded.",
  args: {
    ...orgArg,
    NODE: wordArg("The name of the relay"),
    LIMIT: wordArg("A size such as 500GB, for each month, or none"),
  },
  examples: [
    `${brand.executable} admin relay limit acme lh1 500GB`,
    `${brand.executable} admin relay limit acme lh1 none`,
  ],
  async run(context) {
    const { words, output } = context;
    const [slug = "", name = "", word = ""] = words;
    const bytes = word === "none" ? null : parseSize(word);
    if (bytes === undefined || bytes === 0)
      throw new AppError("usage", `The limit must be a size such as 500MB or 4GB, or none, not "${word}"`);
    const relay = await write(context, async (api) => {
      const { id } = await nodeByName(api, slug, name);
      return request(relaysApi.limit, { slug, id }, { limit_bytes: bytes });
    });
    if (relay === undefined) return;
    const limitText =
      bytes === null
        ? `${relay.node_name} has no limit`
        : `The limit of ${relay.node_name} is ${formatSize(bytes)} a month`;
    const pausedLine = relay.paused
      ? "It is reached: no node uses this relay until the next month (UTC)\n"
      : "";
    const uncountedLine =
      relay.bytes === null && bytes !== null
        ? "The relay has not reported what it forwards: that takes Linux, nftables and a present agent on it\n"
        : "";
    output.result(relay, `${limitText}\n${pausedLine}${uncountedLine}`);
  },
};
