// `agent admin node transfer`: gives a node to a user or to the organization.

import { brand } from "../../../brand.ts";
import { AppError } from "../../../base/errors.ts";
import { nodesApi } from "../../../api/nodes.ts";
import { request } from "../../../api/request.ts";
import type { Implementation } from "../../command.ts";
import { orgArg } from "../../server/server-flags.ts";
import { write } from "../api.ts";
import { nodeArg, nodeByName } from "../lookup.ts";
import { switchFlag, valueFlag } from "../../values.ts";

export const transfer: Implementation = {
  notes:
    "A node that was registered with a registration token belongs to the organization; with a user's own sign-in, to this\n" +
    "user. The nodes of a user who leaves are listed, and revoked with --revoke-nodes or if the organization is so set.",
  args: {
    ...orgArg,
    ...nodeArg,
    to: valueFlag("EMAIL", "The member whose node it becomes"),
    "to-organization": switchFlag("Give the node to the organization"),
  },
  examples: [
    `${brand.executable} admin node transfer acme laptop --to ada@example.org`,
    `${brand.executable} admin node transfer acme build-server --to-organization`,
  ],
  async run(context) {
    const { values, words, output } = context;
    const [slug = "", name = ""] = words;
    const email = values.text("to");
    if ((email === undefined) !== values.on("to-organization"))
      throw new AppError("usage", "Give --to EMAIL or --to-organization");
    const body = { owner: email ?? null };
    const node = await write(context, async (api) =>
      request(nodesApi.transfer, { slug, id: (await nodeByName(api, slug, name)).id }, body),
    );
    if (node === undefined) return;
    output.result(node, `${node.name} belongs to ${email ?? `the organization ${slug}`} now\n`);
  },
};
