// `agent admin seal pending`: the nodes that need a certificate of the offline CA.

import { sealedRenewalDays, sealsApi, type Sealable } from "../../../api/certificates/seals.ts";
import { brand } from "../../../brand.ts";
import type { Implementation } from "../../command.ts";
import { orgArg } from "../../server/server-flags.ts";
import type { Cell } from "../../table.ts";
import { read } from "../api.ts";

export const pending: Implementation = {
  notes: `Lists the nodes that need a certificate of the offline CA: members of the privileged groups of the newest seal, lighthouses, relays,
routers and exits. A certificate is due ${sealedRenewalDays} days before its end. \`sign\` makes them.`,
  args: orgArg,
  examples: [`${brand.executable} admin seal pending acme`],
  async run(context) {
    const [slug = ""] = context.words;
    const { newestOf } = await import("../../../server/config/next-seal.ts");
    const { dueIn } = await import("../../../server/config/sign-seal.ts");
    const { nodes } = await read(context, async (api) => {
      const { seals } = await api.call(sealsApi.list, { slug });
      const groups = newestOf(seals)?.seal.state.sealing?.privileged ?? [];
      return api.call(sealsApi.sealable, { slug }, { groups });
    });
    const due = dueIn(nodes, context.system.now());
    const rows = due.map((node): Cell[] => [
      node.name,
      node.why.join(", "),
      stateOf(node),
      node.agent_version,
      node.engine_version,
    ]);
    const listed = due.map(({ name, why, certified_until, is_whole, agent_version, engine_version }) => ({
      name,
      why,
      certified_until,
      is_whole,
      agent_version,
      engine_version,
    }));
    context.output.list(
      { waiting: listed, signed: nodes.length - due.length },
      {
        columns: ["NODE", "BECAUSE", "CERTIFICATE", "AGENT", "ENGINE"],
        rows,
        none: "No node waits for a certificate of the offline CA.",
      },
    );
  },
};

/** `is_whole`: the certificate has the groups and networks that the node needs now. */
function stateOf({ certified_until: until, is_whole: isWhole }: Sealable): string {
  if (until === null) return "none";
  return isWhole ? `until ${until}` : "outdated";
}
